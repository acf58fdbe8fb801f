"""How an installed program says where a checkout is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import root
from groundwork.errors import PreflightError


@pytest.mark.parametrize(
    ("noted", "way"),
    [
        ({"url": "file:///home/me/a%20clone", "dir_info": {}}, "it was installed from /home/me/a clone"),
        ({"url": "https://host/m.git", "vcs_info": {"vcs": "git"}}, "git clone https://host/m.git"),
        ({"url": "file:///tmp/megabuild-0.1.0.whl", "archive_info": {}}, "clone the repository"),
        (None, "clone the repository"),
    ],
)
def test_the_way_to_a_checkout_goes_by_what_was_installed(
    noted: object, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(noted) if noted else None

    monkeypatch.setattr(root, "distribution", lambda name: Distribution())
    monkeypatch.setattr(root, "_ROOT", tmp_path)
    with pytest.raises(PreflightError) as refused:
        root.repository()
    assert refused.value.remedy == f"{way}; there: python3 build-locally.py"
