"""Finds the folders from which an environment's Python imports packages, and the packages' metadata in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from groundwork.files import read_text

_PYTHON = re.compile(r"python(3\.\d+t?)")
#: setuptools' module for an editable installation maps names to folders.
_FINDER = "__editable__*_finder.py"
_MAPPED = re.compile(r"""['"]([\w.]+)['"]: *['"]([^'"\n]+)['"]""")


@dataclass(frozen=True, kw_only=True)
class SitePackages:
    """A folder that a Python imports packages from."""

    folder: Path
    python: str  #: ``3.12``; ``3.13t`` if free-threaded.


def find_site_packages(prefix: Path) -> list[SitePackages]:
    """Return an environment's site-packages folders; folders whose Python is in ``bin`` come first.

    Links duplicate a folder or point into another environment: conda-forge's Pythons 3.10 to 3.12 have
    ``lib/python3.1 -> python3.12``, Fedora has ``lib64 -> lib``. Paths with links are used only if all have links.
    """
    folders = []
    for folder in (*prefix.glob("lib*/python3*/site-packages"), *prefix.glob("lib*/python3*/dist-packages")):
        version = _PYTHON.fullmatch(folder.parent.name)
        if version and folder.is_dir():
            folders.append(SitePackages(folder=folder, python=version[1]))
    # old conda put noarch packages into python3.13 although the Python is 3.13t

    def sort_key(site: SitePackages) -> tuple[bool, str]:
        has_python = (prefix / "bin" / f"python{site.python}").exists()
        return not has_python, str(site.folder)

    folders.sort(key=sort_key)
    by_target: dict[str, SitePackages] = {}
    for site in sorted(folders, key=_count_links):
        by_target.setdefault(os.path.realpath(site.folder), site)
    fewest = min(map(_count_links, by_target.values()), default=0)
    return [site for site in by_target.values() if _count_links(site) == fewest]


def find_metadata(site: Path) -> list[Path]:
    """Return the ``.dist-info`` and ``.egg-info`` folders of the packages in a folder.

    Names that begin with ``~`` are remains that pip could not delete, not packages.
    """
    folders = []
    for path in site.glob("*.*-info"):
        if path.suffix in (".dist-info", ".egg-info") and not path.name.startswith("~"):
            folders.append(path)
    return sorted(folders)


def _count_links(site: SitePackages) -> int:
    """Count the links among the two parent folders: ``lib64`` and ``python3.1``."""
    return sum(1 for path in site.folder.parents[:2] if path.is_symlink())


def find_import_folders(site: Path) -> list[Path]:
    """Return the folders outside ``site`` that files in it add to Python's path, each once; nothing is run.

    These are editable installations, and folders named in .pth files.
    """
    folders: list[Path] = []
    for pth in sorted(site.glob("*.pth")):
        for line in _read_or_empty(pth).splitlines():
            # a line that begins with "import" is a program (the module site)
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                folders.append(Path(os.path.normpath(site / line.strip())))
    for finder in sorted(site.glob(_FINDER)):
        for name, folder in _MAPPED.findall(_read_or_empty(finder)):
            if Path(folder).name == name.rpartition(".")[2] and "." not in name:
                folders.append(Path(folder).parent)
    return list(dict.fromkeys(filter(Path.is_dir, folders)))


def _read_or_empty(path: Path) -> str:
    try:
        return read_text(path, errors="replace")
    except OSError:
        return ""
