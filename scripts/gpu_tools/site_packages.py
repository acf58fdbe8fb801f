"""An environment's folders of Python packages, each under one name, and the metadata of the packages in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_PYTHON = re.compile(r"python(3\.\d+t?)")


@dataclass(frozen=True, kw_only=True)
class SitePackages:
    """A folder that a Python imports packages from."""

    folder: Path
    python: str  #: ``3.12``; ``3.13t`` without the global lock.


def find_site_packages(prefix: Path) -> list[SitePackages]:
    """Return an environment's folders of packages, those of a Python that is in it first.

    Links are second names of a folder, or lead into another environment: conda-forge's Pythons 3.10 to 3.12 have
    ``lib/python3.1 -> python3.12``, Fedora has ``lib64 -> lib``. They count only where there is nothing else.
    """
    folders = [
        SitePackages(folder=folder, python=version[1])
        for name in ("site-packages", "dist-packages")
        for folder in prefix.glob(f"lib*/python3*/{name}")
        if (version := _PYTHON.fullmatch(folder.parent.name)) and folder.is_dir()
    ]
    by_place: dict[str, SitePackages] = {}
    for site in sorted(folders, key=lambda site: (_count_links(site), str(site.folder))):
        by_place.setdefault(os.path.realpath(site.folder), site)
    least = min(map(_count_links, by_place.values()), default=0)
    # old conda put packages for every Python into python3.13 where the Python is 3.13t
    return sorted(
        (site for site in by_place.values() if _count_links(site) == least),
        key=lambda site: (not (prefix / "bin" / f"python{site.python}").exists(), str(site.folder)),
    )


def find_metadata(site: Path) -> list[Path]:
    """Return the ``.dist-info`` and ``.egg-info`` of the packages in a folder.

    Names that begin with ``~`` are of what pip could not delete, and no packages.
    """
    return sorted(
        path
        for path in site.glob("*.*-info")
        if path.suffix in (".dist-info", ".egg-info") and not path.name.startswith("~")
    )


def _count_links(site: SitePackages) -> int:
    """Return how many of the two folders above are links: ``lib64`` and ``python3.1``."""
    return sum(path.is_symlink() for path in site.folder.parents[:2])
