"""Values of YAML files by line, and what is written in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import AuditError, IntegrityError
from pin_audit.bump import recipe
from pin_audit.bump.changes import Edit, applied
from pin_audit.bump.places import Scalar, VariantFile, YamlFile

MATRIX = """\
# kept
version:
  - 1.0                         # [provider == "conda-forge"]
  - "1.0"                       # [linux and provider == "wheel"]
  - 3
python:
  - 3.10.* *_cpython
  - 3.11.* *_cpython            # [not (osx or provider == "debian")]
flag:
  - true
  - false                       # [provider != "debian"]
zip_keys:
  -
    - python
    - flag                      # [linux]
"""
RECIPE = """\
context:
  version: "2.1.2"
  name: thing
  build: 3
recipe:
  name: ${{ name }}
source:
  - url: https://example.org/${{ name }}-${{ version }}.tar.gz
    sha256: abc   # of the archive
outputs:
  - package: {name: x}
    requirements:
      host: [setuptools <82, pip]
      run:
        - if: match(torch_version, "<2.14")
          then: triton ==${{ triton_version }}
          else:
            - triton ~=${{ triton_version }}
"""


def variants(tmp_path: Path, text: str = MATRIX) -> VariantFile:
    (tmp_path / "m.yaml").write_bytes(text.encode())
    return VariantFile(tmp_path, "m.yaml")


def test_only_the_scalar_is_replaced_and_its_comment_keeps_the_column(tmp_path: Path) -> None:
    found = variants(tmp_path)
    plain, quoted, last = found.values("version")
    edits = [found.replaced(plain, "1.10.1"), found.replaced(quoted, "2"), found.replaced(last, "44")]
    assert [edit.after for edit in edits] == [
        ('  - 1.10.1                      # [provider == "conda-forge"]',),
        ('  - "2"                         # [linux and provider == "wheel"]',),
        ("  - 44",),
    ]
    new = applied(found.text, edits)
    assert [a == b for a, b in zip(found.text.splitlines(), new.splitlines(), strict=True)].count(False) == 3


def test_the_ends_of_lines_stay(tmp_path: Path) -> None:
    found = variants(tmp_path, MATRIX.replace("\n", "\r\n"))
    new = applied(found.text, [found.replaced(found.values("version")[0], "2.0")])
    assert new.count("\r\n") == new.count("\n") == MATRIX.count("\n")


def test_a_line_counts_where_its_selector_holds(tmp_path: Path) -> None:
    found = variants(tmp_path)
    assert [one.value for one in found.values("version", ("linux-64", "conda-forge"))] == ["1.0", "3"]
    assert [one.value for one in found.values("version", ("linux-aarch64", "wheel"))] == ["1.0", "3"]
    assert [one.value for one in found.values("version", ("osx-64", "wheel"))] == ["3"]
    assert len(found.values("python", ("linux-64", "debian"))) == 1
    assert len(found.values("python", ("linux-64", "wheel"))) == 2
    assert found.zipped("python", ("linux-64", "wheel")) == ["python", "flag"]
    assert found.zipped("python", ("osx-64", "wheel")) == ["python"]


@pytest.mark.parametrize("selector", ["win64 and unknown", "__import__('os')", "(", "1 < 2 < 3", "linux.x"])
def test_a_selector_that_cannot_be_read_counts(tmp_path: Path, selector: str) -> None:
    found = variants(tmp_path, f"a:\n  - 1  # [{selector}]\n")
    assert len(found.values("a", ("linux-64", "wheel"))) == 1


def test_a_line_is_left_to_the_other_providers(tmp_path: Path) -> None:
    found = variants(tmp_path)
    edit = found.without(found.values("python")[0], "conda-forge")
    assert edit.after == ('  - 3.10.* *_cpython            # [provider != "conda-forge"]',)
    edit = found.without(found.values("flag")[1], "conda-forge")
    assert edit.after == ('  - false                       # [provider == "wheel"]',)
    assert found.without(found.values("version")[0], "conda-forge").after == ()


def test_an_edit_of_another_line_is_refused() -> None:
    edit = Edit("a", 1, "old", ("new",))
    assert applied("old\nx", [edit]) == "new\nx"
    for text, edits in (("else\n", [edit]), ("", [edit]), ("old\n", [edit, Edit("a", 1, "old", ())])):
        with pytest.raises(ValueError, match="line 1"):
            applied(text, edits)


def test_a_recipe_tells_its_lines(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    found = recipe.read(tmp_path, "recipe.yaml")
    assert (found.name, found.version, found.build) == ("thing", Scalar("2.1.2", 2, 11), Scalar("3", 4, 9))
    (source,) = found.sources
    assert source.sha256 is not None
    assert found.file.replaced(source.sha256, "def01").after == ("    sha256: def01  # of the archive",)
    assert found.version is not None
    assert found.file.replaced(found.version, "2.2").after == ('  version: "2.2"',)
    triton = [one for one in found.asked if one.name == "triton"]
    assert [(one.place.line, one.spec) for one in triton] == [
        (16, "=={{triton_version}}"),
        (18, "~={{triton_version}}"),
    ]
    assert [one.holds("torch_version", "2.13.0") for one in triton] == [True, False]
    assert [one.holds("torch_version", "2.14.1") for one in triton] == [False, True]
    assert all(one.holds("another_key", "2.14.1") for one in triton)
    (tools,) = (one for one in found.asked if one.name == "setuptools")
    assert found.file.replaced(tools.place, "setuptools <83").after == ("      host: [setuptools <83, pip]",)


def test_a_meta_yaml_tells_its_lines(tmp_path: Path) -> None:
    text = (
        '{% set version = "1.2" %}\n{% set build = 2 %}\n{% set build = build + 200 %}\n'
        "package:\n  name: thing\nsource:\n  - url: https://example.org/thing-{{ version }}.tar.gz\n"
        "    sha256: 0abc  # [not rc]\nrequirements:\n  run:\n    - triton =={{ triton }}  # [linux]\n    - python\n"
    )
    (tmp_path / "meta.yaml").write_text(text, encoding="utf-8")
    found = recipe.read(tmp_path, "meta.yaml")
    assert found.name == "thing"
    assert found.version is not None
    assert found.file.replaced(found.version, "1.10").after == ('{% set version = "1.10" %}',)
    assert found.build == Scalar("2", 2, 15)
    (source,) = found.sources
    assert source.sha256 == Scalar("0abc", 8, 12)
    assert [one.spec for one in found.asked] == ["=={{triton}}", ""]


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- 1\n", encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("a: [\n", encoding="utf-8")
    for name in ("list.yaml", "broken.yaml", "none.yaml"):
        with pytest.raises(AuditError, match=name):
            _ = YamlFile(tmp_path, name).document
    secret = tmp_path / "secret"
    secret.write_text("key: value\n", encoding="utf-8")
    (tmp_path / "link.yaml").symlink_to(secret)
    with pytest.raises(IntegrityError, match="symbolic link"):
        YamlFile(tmp_path, "link.yaml")
