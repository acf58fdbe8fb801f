"""A folder of wheels as an index: PEP 503 as HTML, PEP 691 as JSON, metadata beside the wheels (PEP 658, 714).

It is one folder, to which ``simple`` is a link: a reader sees the previous index or the new one.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from email import message_from_bytes
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name

from groundwork import files
from groundwork.network import core_metadata

#: The index of a config, below the folder of its wheels.
SIMPLE = "simple"
_RECORDS = "wheels.json"
_HIDDEN = ".simple-"


@dataclass(frozen=True, kw_only=True)
class IndexedWheel:
    """A wheel of an index, and what it was made from."""

    name: str  #: of the file
    project: str  #: ``torch_scatter``
    version: str  #: ``2.1.2+pt213cpu``
    python: str | None  #: ``3.12``, or None for what serves every Python
    package: str  #: sha256 of the conda package
    inputs: str  #: sha256 over everything it depends on
    size: int  #: of the file, in bytes
    sha256: str
    metadata_sha256: str
    requires_python: str

    @property
    def place(self) -> str:
        """Path below the index."""
        return f"{canonicalize_name(self.project)}/{self.name}"


def index_entry(path: Path, *, project: str, python: str | None, package: str, inputs: str) -> IndexedWheel:
    """Read a wheel's metadata, write them beside it, and return its entry."""
    metadata = core_metadata.of_file(path).content
    path.with_name(f"{path.name}.metadata").write_bytes(metadata)
    head = message_from_bytes(metadata)
    return IndexedWheel(
        name=path.name, project=project, version=head["Version"], python=python, package=package, inputs=inputs,
        size=path.stat().st_size, sha256=files.sha256(path), metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        requires_python=head["Requires-Python"] or "",
    )  # fmt: skip


def read(folder: Path) -> tuple[IndexedWheel, ...]:
    """Return the wheels of the index in a config's folder that are still intact; none if it has no index."""
    try:
        listed = json.loads((folder / SIMPLE / _RECORDS).read_text())
        known = [IndexedWheel(**one) for one in listed]
    except (OSError, ValueError, TypeError):
        return ()
    return tuple(
        one
        for one in known
        if files.intact(folder / SIMPLE / one.place, digest=one.sha256, size=one.size, when=0)
        and _metadata_file(folder / SIMPLE / one.place).is_file()
    )


def publish(folder: Path, wheels: Mapping[IndexedWheel, Path]) -> None:
    """Replace the index in a config's folder.

    ``wheels`` are all wheels with their files, each beside its metadata; they may be files of the previous index. The
    caller holds the folder's lock.
    """
    listed = sorted(wheels, key=lambda one: one.place)
    new = Path(tempfile.mkdtemp(dir=folder, prefix=_HIDDEN))
    new.chmod(0o755)
    for one in listed:
        for source, suffix in ((wheels[one], ""), (_metadata_file(wheels[one]), ".metadata")):
            target = new / f"{one.place}{suffix}"
            files.link(source, target)
            target.chmod(0o644)
    _write_pages(new, listed)
    (new / _RECORDS).write_text(json.dumps([asdict(one) for one in listed], indent=1))
    with files.scratch(folder) as empty:
        (empty / SIMPLE).symlink_to(new.name)
        (empty / SIMPLE).replace(folder / SIMPLE)
    for former in folder.glob(f"{_HIDDEN}*"):  # also those of killed processes
        if former != new:
            shutil.rmtree(former)


def _metadata_file(wheel: Path) -> Path:
    return wheel.with_name(f"{wheel.name}.metadata")


def _write_pages(index: Path, wheels: Sequence[IndexedWheel]) -> None:
    projects: dict[str, list[IndexedWheel]] = {}
    for one in wheels:
        projects.setdefault(canonicalize_name(one.project), []).append(one)
    index.mkdir(exist_ok=True)
    links = (f'<a href="{name}/">{name}</a>' for name in projects)
    _page(index, "Simple index", links, {"projects": [{"name": name} for name in projects]})
    for name, own in projects.items():
        document = {
            "name": name,
            "versions": sorted({one.version for one in own}),
            "files": [_entry(one) for one in own],
        }
        _page(index / name, f"Links for {name}", map(_anchor, own), document)


def _page(folder: Path, title: str, links: Iterable[str], document: Mapping[str, object]) -> None:
    meta = '<meta name="pypi:repository-version" content="1.1">'
    body = "<br>\n".join(links)
    text = f"<!DOCTYPE html>\n<html><head>{meta}<title>{title}</title></head><body>\n{body}\n</body></html>\n"
    (folder / "index.html").write_text(text)
    whole = {"meta": {"api-version": "1.1"}, **document}
    (folder / "index.v1_json").write_text(json.dumps(whole, indent=1) + "\n")


def _anchor(wheel: IndexedWheel) -> str:
    attributes = {
        "href": f"{quote(wheel.name)}#sha256={wheel.sha256}",
        "data-requires-python": wheel.requires_python,
        "data-dist-info-metadata": f"sha256={wheel.metadata_sha256}",
        "data-core-metadata": f"sha256={wheel.metadata_sha256}",
    }
    text = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items() if value)
    return f"<a {text}>{wheel.name}</a>"


def _entry(wheel: IndexedWheel) -> dict[str, object]:
    metadata = {"sha256": wheel.metadata_sha256}
    requires = {"requires-python": wheel.requires_python} if wheel.requires_python else {}
    return {
        "filename": wheel.name,
        "url": quote(wheel.name),
        "hashes": {"sha256": wheel.sha256},
        "size": wheel.size,
        **requires,
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
    }
