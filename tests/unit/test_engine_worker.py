"""What the worker does around the engine's calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from megabuild.engine import worker


@pytest.mark.parametrize("variable", ["RATTLER_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_former_build_of_the_same_name_is_forgotten_before_a_test(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RATTLER_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    packages = (tmp_path if variable == "RATTLER_CACHE_DIR" else tmp_path / "rattler" / "cache") / "pkgs"
    former, other = packages / "a-1-h0_0" / "info", packages / "a-1-h0_1" / "info"
    for folder in (former, other):
        folder.mkdir(parents=True)
    worker.forget("a-1-h0_0.conda")
    worker.forget("a-1-h0_0.conda")
    assert [path.name for path in packages.iterdir()] == ["a-1-h0_1"]
