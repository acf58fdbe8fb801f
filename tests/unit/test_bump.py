"""What another version changes: lines of recipes and of the matrix, with old and new value, source and who decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit_wheels import configured_by_the_test

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome


@pytest.fixture
def call(invocation: Invocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    configured_by_the_test(monkeypatch).text = "global.no-index='1'\n"
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))

    def run(*words: str) -> int:
        argv = ["audit", "--offline", *words]
        return outcome(lambda: megabuild.main(argv, standalone_mode=False, obj=invocation), invocation)

    return run


@pytest.fixture
def changes(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Return a bump's changes by topic."""

    def run(*words: str) -> dict[str, list[dict[str, Any]]]:
        assert call(*words, "--json") == 0
        found: dict[str, list[dict[str, Any]]] = {}
        for one in json.loads(capsys.readouterr().out)["bump"]["changes"]:
            found.setdefault(one["topic"], []).append(one)
        return found

    return run


def test_this_repository_by_its_snapshots(changes: Callable[..., Any], repository: Path) -> None:
    found = changes("--root", str(repository), "--bump", "2.15.0")
    lines = (repository / "conda_build_config.yaml").read_text(encoding="utf-8").splitlines()
    certain = [one for one in found["version"] if one["kind"] == "certain"]
    assert certain
    for one in found["version"]:
        assert "2.13.0" in lines[one["line"] - 1]
        assert ("wheel" in lines[one["line"] - 1]) == (one["kind"] == "for a person")
        assert "debian" not in lines[one["line"] - 1]
    assert ("3.7.1", "3.9.0") in {(one["old"], one["new"]) for one in found["triton"]}
    assert {one["file"] for one in found["typing_extensions"]} == {
        "recipe/recipe.yaml",
        "recipe/wheel/recipe.yaml",
    }
    assert found["sha256"][0]["new"] == ""  # nobody published one: not guessed
    (sha256, *_) = changes("--root", str(repository), "--bump", "2.14.1")["sha256"]
    assert sha256["new"] == "d0ebad9ca4219959b29b7ad9ab6469fe49a3d668f8b5a62dd115f02f3a914447"


@pytest.mark.parametrize(
    "words", [["2.13.0"], ["2.14.1", "--release", "2.14.1"], ["2.14.1", "--fail-on", "conflict"]]
)
def test_what_does_not_fit_is_refused(words: list[str], call: Callable[..., int], tmp_path: Path) -> None:
    assert call("--bump", *words) == 2
    assert call("--bump", "2.14.1", "--root", str(tmp_path)) == 2
