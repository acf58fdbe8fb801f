"""Publish wheels as an index of plain pages (PEP 503), which any web server can serve.

``simple`` is a link to the index's folder: a reader sees the previous index or the new one, never a mixture.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from email import message_from_string
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name

from groundwork import files
from groundwork.network.wheel_contents import read_local

#: The index of a config, below the folder of its wheels.
SIMPLE = "simple"
_RECORDS = "wheels.json"
_HIDDEN = ".simple-"


@dataclass(frozen=True, kw_only=True)
class IndexedWheel:
    """A wheel of an index, and hashes of its inputs."""

    name: str  #: of the file
    project: str  #: ``torch_scatter``
    version: str  #: ``2.1.2+pt213cpu``
    python: str | None  #: ``3.12``, or None for a wheel that works with every Python
    package: str  #: sha256 of the conda package
    inputs: str  #: sha256 over all inputs of the wheel
    size: int  #: of the file, in bytes
    sha256: str
    requires_python: str

    @property
    def place(self) -> str:
        """The file's path below the index."""
        return f"{canonicalize_name(self.project)}/{self.name}"


def index_entry(path: Path, *, project: str, python: str | None, package: str, inputs: str) -> IndexedWheel:
    head = message_from_string(read_local(path).metadata)
    return IndexedWheel(
        name=path.name, project=project, version=head["Version"], python=python, package=package, inputs=inputs,
        size=path.stat().st_size, sha256=files.sha256(path), requires_python=head["Requires-Python"] or "",
    )  # fmt: skip


def read(folder: Path) -> tuple[IndexedWheel, ...]:
    """Return the intact wheels of the index in a config's folder; none if it has no index."""
    try:
        listed = json.loads((folder / SIMPLE / _RECORDS).read_text())
        wheels = [IndexedWheel(**wheel) for wheel in listed]
    except (OSError, ValueError, TypeError):
        return ()
    return tuple(
        wheel
        for wheel in wheels
        if files.intact(folder / SIMPLE / wheel.place, digest=wheel.sha256, size=wheel.size, when=0)
    )


def publish(folder: Path, wheels: Mapping[IndexedWheel, Path]) -> None:
    """Replace the index in a config's folder.

    ``wheels`` maps all wheels to their files, which may be in the previous index. The caller holds the folder's lock.
    """
    listed = sorted(wheels, key=lambda wheel: wheel.place)
    new = Path(tempfile.mkdtemp(dir=folder, prefix=_HIDDEN))
    new.chmod(0o755)
    for wheel in listed:
        files.link(wheels[wheel], new / wheel.place)
        (new / wheel.place).chmod(0o644)
    _write_pages(new, listed)
    (new / _RECORDS).write_text(json.dumps([asdict(wheel) for wheel in listed], indent=1))
    files.replace_link(folder / SIMPLE, new.name)
    remove_former(folder)


def remove_former(folder: Path) -> None:
    """Remove former indexes, and unfinished ones of killed processes. The caller holds the folder's lock."""
    link = folder / SIMPLE
    current = os.readlink(link) if link.is_symlink() else ""
    for former in folder.glob(f"{_HIDDEN}*"):
        if former.name != current:
            shutil.rmtree(former)


def _write_pages(index: Path, wheels: Sequence[IndexedWheel]) -> None:
    links: dict[str, list[str]] = {}
    for wheel in wheels:
        python = html.escape(wheel.requires_python)
        requires = f' data-requires-python="{python}"' if python else ""
        link = f'<a href="{quote(wheel.name)}#sha256={wheel.sha256}"{requires}>{wheel.name}</a>'
        links.setdefault(canonicalize_name(wheel.project), []).append(link)
    _write_page(index, "Simple index", [f'<a href="{name}/">{name}</a>' for name in links])
    for name, own in links.items():
        _write_page(index / name, f"Links for {name}", own)


def _write_page(folder: Path, title: str, links: Sequence[str]) -> None:
    meta = '<meta name="pypi:repository-version" content="1.1">'
    body = "<br>\n".join(links)
    text = f"<!DOCTYPE html>\n<html><head>{meta}<title>{title}</title></head><body>\n{body}\n</body></html>\n"
    (folder / "index.html").write_text(text)
