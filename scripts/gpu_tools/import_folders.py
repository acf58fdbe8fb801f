"""Finds folders outside site-packages from which Python imports packages: editable installations, eggs, .pth files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from groundwork.files import read_text

#: setuptools' module for an editable installation maps names to folders.
_FINDER, _MAPPED = "__editable__*_finder.py", re.compile(r"""['"]([\w.]+)['"]: *['"]([^'"\n]+)['"]""")


def find_import_folders(site: Path) -> list[Path]:
    """Return the folders that files in ``site`` add to Python's path, each once; nothing is run."""
    return list(dict.fromkeys(folder for folder in _named(site) if folder.is_dir()))


def _named(site: Path) -> Iterator[Path]:
    for pth in sorted(site.glob("*.pth")):
        for line in _text(pth).splitlines():
            # a line that begins with "import" is a program (the module site)
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield Path(os.path.normpath(site / line.strip()))
    for finder in sorted(site.glob(_FINDER)):
        for name, folder in _MAPPED.findall(_text(finder)):
            if Path(folder).name == name.rpartition(".")[2] and "." not in name:
                yield Path(folder).parent
    yield from sorted(site.glob("*.egg"))


def editable_address(metadata: Path) -> str:
    """Return the address of the sources of an editable installation (PEP 610), or an empty string.

    `metadata`: the package's ``.dist-info`` folder.
    """
    try:
        document = json.loads(_text(metadata / "direct_url.json") or "{}")
        return str(document["url"]) if document["dir_info"]["editable"] else ""
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""


def _text(path: Path) -> str:
    try:
        return read_text(path, errors="replace")
    except OSError:
        return ""
