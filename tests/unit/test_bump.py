"""``audit --bump`` on this repository and on others: what must change, writing it, giving it back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bump_world import checkout, contents, index

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from groundwork.errors import IntegrityError, UsageError
from megabuild.configs.config import load
from megabuild.configs.matrix import outdated, write
from megabuild.configs.tarballs import TARBALLS
from megabuild.plan.other_torch import with_torch

Call = Callable[..., int]


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index(tmp_path / "wheels")))


@pytest.fixture
def root(repository: Path, tmp_path: Path) -> Path:
    return checkout(repository, tmp_path / "checkout")


@pytest.fixture
def call(invocation: Invocation, root: Path) -> Call:
    def run(*arguments: str, at: Path = root) -> int:
        words = ["audit", "--root", str(at), "--offline", *arguments]
        return outcome(lambda: megabuild.main(words, standalone_mode=False, obj=invocation), invocation)

    return run


@pytest.fixture
def changes(call: Call, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[tuple[str, str], Any]]:
    """Return the changes of a bump by topic and place."""

    def run(*arguments: str, **options: Path) -> dict[tuple[str, str], Any]:
        capsys.readouterr()
        assert call(*arguments, "--json", **options) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["format"] == "megabuild/audit-bump"
        return {(one["topic"], f"{one['file']}:{one['line']}"): one for one in document["changes"]}

    return run


def line_of(root: Path, name: str, text: str, number: int = 0) -> str:
    """Return the place of a line that begins with a text."""
    lines = (root / name).read_text(encoding="utf-8").splitlines()
    return f"{name}:{[n for n, line in enumerate(lines, 1) if line.strip().startswith(text)][number]}"


def brief(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["old"], one["new"], one["kind"]


MATRIX = "conda_build_config.yaml"


def test_a_release_with_the_same_cuda(changes: Callable[..., Any], root: Path) -> None:
    found = changes("--bump", "2.14.1")
    own, cpu, cuda = (line_of(root, MATRIX, "- 2.13.0", number) for number in range(3))
    assert brief(found["version", own]) == ("2.13.0", "2.14.1", "certain")
    assert brief(found["version", cuda]) == ("2.13.0", "2.14.1", "certain")
    assert brief(found["version", cpu]) == ("2.13.0", "2.14.1", "for a person")
    assert "no 2.14.1+cpu" in found["version", cpu]["note"]
    pinned = line_of(root, MATRIX, TARBALLS["2.13.0"].sha256.join(["- ", ""]))
    assert brief(found["sha256", pinned]) == (TARBALLS["2.13.0"].sha256, TARBALLS["2.14.1"].sha256, "certain")
    assert "Homebrew" in found["sha256", pinned]["source"]
    assert brief(found["triton", line_of(root, MATRIX, "- 3.7.1")]) == ("3.7.1", "3.8.0", "certain")
    operator = line_of(root, "recipe/recipe.yaml", "else: triton ~=")
    assert brief(found["triton", operator]) == ("==3.7.1", "~=3.8.0", "follows")
    back_end = line_of(root, "recipe/recipe.yaml", "then: scikit-build-core")
    assert brief(found["back end", back_end]) == ("setuptools", "scikit-build-core", "follows")
    assert not any(topic == "python" for topic, _ in found)
    assert (
        "by version",
        line_of(root, "recipe/recipe.yaml", '- if: match(torch_version, ">=2.14")'),
    ) in found
    assert found["text", "README.md:1"]["note"] == "in line 1"
    assert any(topic == "patches" for topic, _ in found)


def test_a_release_for_other_pythons_and_another_cuda(changes: Callable[..., Any], root: Path) -> None:
    found = changes("--bump", "2.15.0")
    cuda = line_of(root, MATRIX, "- 2.13.0", 2)
    assert brief(found["version", cuda]) == ("2.13.0", "2.13.0", "follows")
    assert "for CUDA 13.2" in found["version", cuda]["note"]
    pinned = line_of(root, MATRIX, f"- {TARBALLS['2.13.0'].sha256}")
    assert brief(found["sha256", pinned]) == (TARBALLS["2.13.0"].sha256, "", "for a person")
    assert found["sha256", pinned]["note"].startswith("not known: ")
    assert brief(found["python", line_of(root, MATRIX, "- 3.10.*")])[2] == "certain"
    assert found["python", line_of(root, MATRIX, "- 3.14.* *_cp314t")]["new"] == "3.15"
    asked = line_of(root, "recipe/recipe.yaml", "else: typing_extensions")
    assert brief(found["typing_extensions", asked]) == (">=4.10.0", ">=4.13.0", "follows")
    wheels, gone = (one for (topic, _), one in found.items() if topic == "CUDA")
    assert brief(wheels) == ("13.4", "", "for a person")
    assert brief(gone) == ("12.9", "", "for a person")  # by the facts that are committed
    assert "which has 13.0, 13.2;" in gone["note"]
    assert line_of(root, "recipe/recipe.yaml", '- if: cuda_compiler_version == "12.9"') in gone["note"]


def test_what_is_certain_is_written_and_given_back(
    call: Call, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(root)
    assert call("--bump", "2.15.0", "--fix") == 0
    assert "as it was" in capsys.readouterr().err
    assert outdated(root) == {}
    after = contents(root)
    old, new = (one[MATRIX].decode().splitlines() for one in (before, after))
    lines = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    assert [b.split("#")[0].strip() for _, b in lines] == [
        "- 2.15.0",
        "- 3.9.0",
        "- 3.10.* *_cpython",
        "- false",
    ]
    assert all(a.find("#") in (-1, b.find("#")) for a, b in lines)
    assert {name for name in before if before[name] != after[name]} - {MATRIX} == {
        name
        for name in before
        if name.startswith(".ci_support/") and "wheel" not in name and "debian" not in name
    }
    assert b"3.10" not in after[".ci_support/linux_64_cuda130.yaml"]
    assert call("--back") == 0
    assert contents(root) == before
    assert call("--back") == UsageError.exit_code


def test_a_bump_and_the_way_back_are_the_same_lines(call: Call, root: Path) -> None:
    before = contents(root)
    assert call("--bump", "2.14.1", "--fix") == 0
    assert call("--bump", "2.13.0", "--fix") == 0
    after = contents(root)
    assert {name: after[name] for name in before} == before
    assert call("--back") == 0
    assert b"- 3.8.0 " in (root / MATRIX).read_bytes()
    assert call("--back") == 0
    assert contents(root) == before


def test_a_file_that_was_changed_since_is_left_alone(
    call: Call, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--bump", "2.14.1", "--fix") == 0
    config = root / ".ci_support" / "linux_64_cpu.yaml"
    written = config.read_bytes()
    config.write_bytes(written + b"# mine\n")
    now = contents(root)
    assert call("--back") == IntegrityError.exit_code
    assert ".ci_support/linux_64_cpu.yaml" in capsys.readouterr().err
    assert contents(root) == now
    config.write_bytes(written)
    assert call("--back") == 0


def test_what_was_half_written_is_given_back(call: Call, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, replace = contents(root), os.replace

    def full(source: Any, target: Any) -> None:
        if str(target).endswith("linux_64_cuda129.yaml"):
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert call("--bump", "2.14.1", "--fix") == 12
    monkeypatch.undo()
    assert contents(root) != before
    monkeypatch.setenv("MEGABUILD_CACHE", str(root.parent / "cache"))
    assert call("--back") == 0
    assert contents(root) == before


def test_a_link_is_not_written_through(call: Call, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_bytes((root / MATRIX).read_bytes())
    (root / MATRIX).unlink()
    (root / MATRIX).symlink_to(outside)
    before = outside.read_bytes()
    assert call("--bump", "2.14.1", "--fix") == IntegrityError.exit_code
    assert outside.read_bytes() == before


def test_an_extension_has_its_own_version_hash_and_commit(changes: Callable[..., Any], root: Path) -> None:
    found = changes("--package", "scatter", "--bump", "2.1.3")
    kinds = {topic: one["kind"] for (topic, _), one in found.items() if one["file"] == MATRIX}
    assert kinds == {"version": "certain", "sha256": "for a person", "commit": "for a person"}
    assert all(one["new"] in ("", "2.1.3") for one in found.values() if one["file"] == MATRIX)


FEEDSTOCK = """\
{% set version = "2.13.0" %}
{% set build = 2 %}
{% set triton = "3.7.1" %}
package:
  name: libtorch
source:
  - url: https://github.com/pytorch/pytorch/releases/download/v{{ version }}/pytorch-v{{ version }}.tar.gz
    sha256: SHA256
    patches:
      - patches/one.patch
requirements:
  host:
    - setuptools <82
  run:
    - triton =={{ triton }}             # [cuda_compiler_version != "None"]
    - typing_extensions >=4.10.0
outputs:
  - name: pytorch
"""


def test_a_foreign_meta_yaml(
    changes: Callable[..., Any], call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "feedstock"
    (root / "recipe" / "patches").mkdir(parents=True)
    meta = root / "recipe" / "meta.yaml"
    meta.write_text(FEEDSTOCK.replace("SHA256", TARBALLS["2.13.0"].sha256), encoding="utf-8")
    (root / "recipe" / "build.sh").write_text("# setup.py\npython setup.py build\n", encoding="utf-8")
    found = changes("--bump", "2.14.1", at=root)
    back_end = found["back end", "recipe/meta.yaml:13"]
    assert back_end["kind"] == "for a person"
    assert "recipe/build.sh:2" in back_end["note"]
    assert "build.sh:1" not in back_end["note"]
    before = meta.read_bytes()
    assert call("--bump", "2.14.1", "--fix", at=root) == 0
    lines = meta.read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ['{% set version = "2.14.1" %}', "{% set build = 0 %}", '{% set triton = "3.8.0" %}']
    assert TARBALLS["2.14.1"].sha256 in lines[7]
    assert lines[14] == '    - triton ~={{ triton }}             # [cuda_compiler_version != "None"]'
    assert call("--back", at=root) == 0
    assert meta.read_bytes() == before


def test_a_foreign_recipe_of_the_first_version(
    changes: Callable[..., Any], call: Call, tmp_path: Path
) -> None:
    root = tmp_path / "feedstock"
    (root / "recipe").mkdir(parents=True)
    path = root / "recipe" / "recipe.yaml"
    path.write_text(
        "context:\n  version: 2.14.1  # of upstream\npackage:\n  name: pytorch\nbuild:\n  number: 4\n"
        "requirements:\n  run:\n    - python >=3.10\n    - typing_extensions >=4.10.0\n    - sympy\n",
        encoding="utf-8",
    )
    assert call("--bump", "2.15.0", "--fix", at=root) == 0
    assert path.read_text(encoding="utf-8") == (
        "context:\n  version: 2.15.0  # of upstream\npackage:\n  name: pytorch\nbuild:\n  number: 0\n"
        "requirements:\n  run:\n    - python >=3.11\n    - typing_extensions >=4.13.0\n    - sympy\n"
    )


def test_patches_are_tried_on_a_tree(changes: Callable[..., Any], tmp_path: Path) -> None:
    root, tree = tmp_path / "feedstock", tmp_path / "tree"
    (root / "recipe").mkdir(parents=True)
    tree.mkdir()
    (tree / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tree / "b.txt").write_text("moved\none\ntwo\nthree\nfour\n", encoding="utf-8")
    head = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n"
    for name, body in (
        ("fits", "-one\n+1\n two\n"),
        ("there", "-zero\n+one\n two\n"),
        ("fails", "-x\n+y\n z\n"),
    ):
        (root / "recipe" / f"{name}.patch").write_text(head + body, encoding="utf-8")
    (root / "recipe" / "fuzzy.patch").write_text(
        "--- a/b.txt\n+++ b/b.txt\n@@ -1,5 +1,5 @@\n zero\n one\n-two\n+2\n three\n four\n", encoding="utf-8"
    )
    (root / "recipe" / "recipe.yaml").write_text(
        "context:\n  version: 2.13.0\npackage:\n  name: pytorch\nsource:\n  url: x\n  patches:\n"
        "    - fits.patch\n    - there.patch\n    - fails.patch\n    - fuzzy.patch\n",
        encoding="utf-8",
    )
    found = changes("--bump", "2.14.1", "--tree", str(tree), at=root)
    assert [(one["old"], one["note"]) for (topic, _), one in found.items() if topic == "patch"] == [
        ("fits.patch", "applies"),
        ("there.patch", "is in the new tree: leave it out"),
        ("fails.patch", "does not apply"),
        ("fuzzy.patch", "applies where lines around it have changed"),
    ]


def test_the_newest_release_is_found(
    changes: Callable[..., Any], call: Call, root: Path, capsys: Any
) -> None:
    found = changes("--bump", "newest")
    assert brief(found["version", line_of(root, MATRIX, "- 2.13.0")]) == ("2.13.0", "2.15.0", "certain")
    matrix = root / MATRIX
    matrix.write_text(matrix.read_text(encoding="utf-8").replace("- 2.13.0", "- 2.15.0"), encoding="utf-8")
    write(root)
    assert changes("--bump", "newest") == {}
    assert call("--bump", "newest") == 0
    assert "pytorch 2.15.0  is the newest that an index has" in capsys.readouterr().out


def test_a_config_with_the_sha256_of_another_release_is_refused_at_once(repository: Path) -> None:
    config = load(repository, "linux_64_cuda130")
    assert with_torch(config, None, None, None, rehearse=False) == config
    wrong = replace(config, torch_version="2.15.0")
    assert with_torch(wrong, None, None, None, rehearse=True) == wrong
    with pytest.raises(UsageError, match=r"has the sha256 of PyTorch 2\.13\.0's tarball, not of 2\.15\.0's"):
        with_torch(wrong, None, None, None, rehearse=False)


def test_every_form(call: Call, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--bump", "2.14.1") == 0
    text = capsys.readouterr().out
    assert "pytorch 2.13.0 to 2.14.1 (5c48869000)" in text
    assert max(map(len, text.splitlines())) <= 140
    assert f"{TARBALLS['2.14.1'].sha256[:16]}…" in text
    assert call("--bump", "2.14.1", "--markdown") == 0
    text = capsys.readouterr().out
    assert f"| `{line_of(root, MATRIX, '- 2.13.0')}` | version |" in text
    assert TARBALLS["2.14.1"].sha256 in text
    assert call("--bump", "2.14.1", "--sarif", "--output", str(tmp_path / "x.sarif")) == 0
    (run,) = json.loads((tmp_path / "x.sarif").read_text(encoding="utf-8"))["runs"]
    assert {one["ruleId"] for one in run["results"]} == {"bump-certain", "bump-for-a-person"}
    for one in run["results"]:
        assert run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"]
        place = one["locations"][0]["physicalLocation"]
        assert (root / place["artifactLocation"]["uri"]).is_file()
        assert place["region"]["startLine"] >= 1
    capsys.readouterr()
    assert call("--bump", "2.14.1", "--github") == 0
    lines = capsys.readouterr().out.splitlines()
    line = line_of(root, MATRIX, "- 2.13.0").rpartition(":")[2]
    assert lines[0].startswith(
        f"::warning file={MATRIX},line={line},title=audit%3A bump-certain::version: 2.13.0 -> 2.14.1"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--bump", "2.13.0"], "has 2.13.0 already"),
        (["--bump", "v2"], "is not a version"),
        (["--bump", "2.14.1", "--all"], "--all has no effect with --bump"),
        (["--bump", "2.14.1", "--compare", MATRIX], "--compare has no effect with --bump"),
        (["--fix"], "--fix has no effect here"),
        (["--back", "--bump", "2.14.1"], "--back goes without"),
    ],
)
def test_what_does_not_fit_is_refused(
    call: Call,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(root)
    before = contents(root)
    assert call(*arguments) == UsageError.exit_code
    assert says in capsys.readouterr().err
    assert contents(root) == before
