"""What threads decode was looked at by msgspec before, at import: its first look at a class is not safe in several."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_DECODED = re.compile(r"msgspec\.\w+\.decode\([^=\n]*type=(_?[A-Z]\w+)|msgspec\.convert\(.*?, ([A-Z_]\w+)\)")


@pytest.mark.parametrize("package", ["groundwork", "megabuild", "conda_wheels", "pyg_extensions"])
def test_every_class_has_its_decoder_at_import(package: str, repository: Path) -> None:
    texts = {path: path.read_text() for path in (repository / "src" / package).rglob("*.py")}
    late = [
        f"{path.name}: {found[0]}"
        for path, text in texts.items()
        for found in _DECODED.finditer(text)
        if f"msgspec.json.Decoder({found[1] or found[2]})" not in text
    ]
    assert late == []
