"""Wheels and index pages for tests."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def make_wheel(
    folder: Path,
    file_name: str,
    files: Mapping[str, bytes],
    *,
    version: str = "",
    requires: Sequence[str] = (),
) -> Path:
    """Write a wheel with metadata and RECORD; ``version`` replaces that of the metadata."""
    name, named_version, tag = file_name.removesuffix(".whl").split("-", 2)
    info = f"{name}-{named_version}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version or named_version}"]
    content = {
        **files,
        f"{info}/METADATA": "\n".join([*head, *(f"Requires-Dist: {one}" for one in requires), ""]).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / file_name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return folder / file_name


def make_page(folder: Path, torch: str, tag: str, links: list[str]) -> Path:
    """Write the index page for a PyTorch: links as they are given."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"torch-{torch}+{tag}.html"
    anchors = "\n".join(f'<a href="{link}">{link.rpartition("/")[2]}</a><br/>' for link in links)
    page.write_text(f"<html><head></head><body>\n{anchors}\n</body></html>\n")
    return page


def simple_index(wheels: Iterable[Path], base: str = "/simple", more: str = "") -> dict[str, bytes]:
    """Return pages and files of an index of the simple API, by path; ``more`` are attributes of every link."""
    pages: dict[str, str] = {}
    answers: dict[str, bytes] = {}
    for wheel in wheels:
        content, project = wheel.read_bytes(), wheel.name.split("-")[0].lower().replace("_", "-")
        link = f"{base}/files/{wheel.name}".replace("+", "%2B")
        answers[link] = content
        digest = hashlib.sha256(content).hexdigest()
        pages.setdefault(f"{base}/{project}/", "")
        pages[f"{base}/{project}/"] += f'<a href="{link}#sha256={digest}" {more}>{wheel.name}</a>\n'
    return answers | {path: f"<html><body>{page}</body></html>".encode() for path, page in pages.items()}


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
