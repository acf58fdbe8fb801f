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

#: A foreign recipe in both formats.
META = """\
{% set version = "2.13.0" %}
{% set build = 2 %}
package:
  name: libtorch
source:
  url: https://github.com/pytorch/pytorch/releases/download/v{{ version }}/pytorch-v{{ version }}.tar.gz
  sha256: 66614a19060f69cfd63cd0295f65a1241bd15df2fa65c60ae51066c11c2ce812
  patches:
    - patches/0001-fix.patch
requirements:
  run:
    - typing_extensions >=4.10.0
    - triton ==3.7.1
outputs:
  - name: pytorch
"""
V1 = """\
context:
  version: "2.13.0"
  build: 3
  triton: 3.7.1
recipe:
  name: pytorch
outputs:
  - source:
      url: https://github.com/pytorch/pytorch/releases/download/v${{ version }}/pytorch-v${{ version }}.tar.gz
      sha256: 66614a19060f69cfd63cd0295f65a1241bd15df2fa65c60ae51066c11c2ce812  # published
    requirements:
      run:
        - typing_extensions >=4.10.0
        - if: linux
          then: triton ==${{ triton }}
"""


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
    assert [one["old"] for one in found["python"] if one["old"]] == ["3.10.* *_cpython"]
    assert "python scripts/megabuild configs --write" in {one["note"] for one in found["generated"]}
    assert any(
        "protobuf v3.13.0.1 -> v21.12" in one["note"] for one in found["submodules"]
    )  # as in the table


@pytest.mark.parametrize(("name", "text"), [("meta.yaml", META), ("recipe.yaml", V1)])
def test_a_foreign_recipe(name: str, text: str, changes: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "feedstock"
    (root / "recipe").mkdir(parents=True)
    (root / "recipe" / name).write_text(text, encoding="utf-8")
    found = changes("--root", str(root), "--bump", "2.14.1")
    expected = {"version": "2.14.1", "build number": "0", "triton": "3.8.0" if name == "recipe.yaml" else "~=3.8.0",
                "sha256": "d0ebad9ca4219959b29b7ad9ab6469fe49a3d668f8b5a62dd115f02f3a914447"}  # fmt: skip
    for topic, new in expected.items():
        one = found[topic][0]
        assert (one["kind"], one["new"]) == ("certain", new), topic
        assert one["old"] in text.splitlines()[one["line"] - 1], topic
    assert "typing_extensions" not in found


@pytest.mark.parametrize(
    "words", [["2.13.0"], ["2.14.1", "--release", "2.14.1"], ["2.14.1", "--fail-on", "conflict"]]
)
def test_what_does_not_fit_is_refused(words: list[str], call: Callable[..., int]) -> None:
    assert call("--bump", *words) == 2
