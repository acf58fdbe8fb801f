"""Wheels and index pages for tests."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(
    folder: Path, file_name: str, files: Mapping[str, bytes], *, version: str = "", metadata: bytes = b""
) -> Path:
    """Write a wheel with metadata and RECORD; ``version`` replaces that of the metadata, ``metadata`` all of it."""
    name, named_version, tag = file_name.removesuffix(".whl").split("-", 2)
    info = f"{name}-{named_version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": metadata
        or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version or named_version}\n".encode(),
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


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
