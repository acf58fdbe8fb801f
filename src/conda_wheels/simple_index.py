"""Publish wheels as an index of plain pages (PEP 503), which any web server can serve.

``simple`` is a link to the index's folder: a reader sees the previous index or the new one, never a mixture.
"""

from __future__ import annotations

import html
import json
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from email import message_from_string
from pathlib import Path
from urllib.parse import quote

import msgspec
from packaging.utils import canonicalize_name

from groundwork import files
from groundwork.errors import IntegrityError
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


_INDEXED = msgspec.json.Decoder(tuple[IndexedWheel, ...])


def index_entry(path: Path, *, project: str, python: str | None, package: str, inputs: str) -> IndexedWheel:
    head = message_from_string(read_local(path).metadata)
    return IndexedWheel(
        name=path.name,
        project=project,
        version=head["Version"],
        python=python,
        package=package,
        inputs=inputs,
        size=path.stat().st_size,
        sha256=files.sha256(path),
        requires_python=head["Requires-Python"] or "",
    )


def read(folder: Path) -> tuple[IndexedWheel, ...]:
    """Return the wheels of the index in a config's folder; none if it has no index.

    Raises IntegrityError: The index's record is damaged, so that it is unknown what the wheels were made from.
    """
    record = folder / SIMPLE / _RECORDS
    try:
        content = record.read_bytes()
    except FileNotFoundError:
        return ()
    try:
        return _INDEXED.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(
            f"{record}: damaged",
            f"run: rm {shlex.quote(str(folder / SIMPLE))}\nThen make the wheels of all Pythons again.",
        ) from error


def is_intact(folder: Path, wheel: IndexedWheel) -> bool:
    """Return whether the index in a config's folder has a wheel as it was published."""
    path = folder / SIMPLE / wheel.place
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    return size == wheel.size and files.sha256(path) == wheel.sha256


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
    files.sync(new / _RECORDS)  # after a power cut, an empty record would be a damaged one
    files.replace_link(folder / SIMPLE, new.name)
    remove_former(folder)


def remove_former(folder: Path) -> None:
    """Remove former indexes, and unfinished ones of killed processes. The caller holds the folder's lock."""
    current = (folder / SIMPLE).resolve()
    for former in folder.glob(f"{_HIDDEN}*"):
        if former.resolve() != current:
            shutil.rmtree(former)


def _write_pages(index: Path, wheels: Sequence[IndexedWheel]) -> None:
    by_project: dict[str, list[str]] = {}
    for wheel in wheels:
        by_project.setdefault(canonicalize_name(wheel.project), []).append(_link(wheel))
    _write_page(index, "Simple index", [f'<a href="{name}/">{name}</a>' for name in by_project])
    for name, links in by_project.items():
        _write_page(index / name, f"Links for {name}", links)


def _link(wheel: IndexedWheel) -> str:
    requires = ""
    if wheel.requires_python:
        requires = f' data-requires-python="{html.escape(wheel.requires_python)}"'
    return f'<a href="{quote(wheel.name)}#sha256={wheel.sha256}"{requires}>{wheel.name}</a>'


def _write_page(folder: Path, title: str, links: Sequence[str]) -> None:
    meta = '<meta name="pypi:repository-version" content="1.1">'
    body = "<br>\n".join(links)
    text = f"<!DOCTYPE html>\n<html><head>{meta}<title>{title}</title></head><body>\n{body}\n</body></html>\n"
    (folder / "index.html").write_text(text)
