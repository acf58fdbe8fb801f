"""Requirements: translating them for pip, and finding what satisfies them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from rattler import MatchSpec

from groundwork.errors import ProviderError
from groundwork.names import PackageId
from megabuild.providers import specs
from megabuild.providers.local import placeholder_packages
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.placeholder_packages import examples


def _specs(*texts: str) -> list[MatchSpec]:
    return [MatchSpec(text) for text in texts]


def test_requirements_are_grouped_by_name_without_virtual_packages() -> None:
    grouped = specs.parse(["numpy 2.*", "numpy", "__glibc >=2.17", "numpy 2.*", "Ninja"])
    assert {name: len(found) for name, found in grouped.items()} == {"numpy": 2, "ninja": 1}


@pytest.mark.parametrize(
    "others",
    [
        ["x 2.*", "x 3.*", "x"],
        ["x 2.* *_cuda", "x 2.* *_h0", "x 2.*"],  # of one version
        ["x * *_cuda", "x * *_h0"],
        ["x[build_number=1]", "x[build_number=2]"],
    ],
    ids=" ".join,
)
def test_each_different_requirement_on_a_package_counts(others: list[str]) -> None:
    (found,) = specs.parse(others).values()
    assert {str(spec) for spec in found} == {str(MatchSpec(other)) for other in others}


def test_an_unreadable_requirement_is_named() -> None:
    with pytest.raises(ProviderError, match="numpy >>"):
        specs.parse(["numpy >>3"])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["numpy 2.*"], "==2.*"),
        (["cmake >=3.18,<4"], ">=3.18,<4"),
        (["setuptools <75", "setuptools"], "<75"),
        (["x =1.2"], "==1.2.*"),
        (["x >=1.2.*"], ">=1.2"),
        (["x 1.*|2.*"], "==2.*"),
        (["x !=1.2.*,>=1"], "!=1.2.*,>=1"),
        (["x >=2", "x <3.0a0"], ">=2,<3.0a0"),
    ],
)
def test_versions_are_translated_for_pip(asked: list[str], expected: str) -> None:
    assert specs.pip_specifier(_specs(*asked)) == expected
    SpecifierSet(expected)  # pip would understand it


@pytest.mark.parametrize(
    ("given", "expected"), [("==1.*", "1.*"), (">=1.1,<1.4", "<1.4,>=1.1"), ("~=2.1", "~=2.1")]
)
def test_versions_are_translated_for_conda(given: str, expected: str) -> None:
    assert specs.conda_version(SpecifierSet(given)) == expected
    MatchSpec(f"x {expected}")


@pytest.mark.parametrize(
    "asked",
    [
        ["mkl-devel 2025.*"],
        ["libcblas * *_mkl"],
        ["libblas 3.9.* 31_*_mkl"],
        ["x <2"],
        ["x >=2.9.0,<2.9.1.0a0"],
        ["x 1.*|2.*"],
        ["x 2.*", "x >=2.5", "x * *_cuda"],
    ],
)
def test_an_example_satisfies_everything_asked(asked: list[str]) -> None:
    name = asked[0].split()[0]
    (found,) = examples(_specs(*asked), name, "rehearsal")
    assert specs.satisfied(_specs(*asked), found)


@pytest.mark.parametrize(
    ("asked", "is_satisfied"),
    [("x 1.* *_cuda", True), ("x 1.* *_cpu", False), ("x 2.* *_cuda", False), ("x", True)],
)
def test_a_package_satisfies_version_and_build_string(asked: str, is_satisfied: bool) -> None:
    package = PackageId("x", "1.2", "h0_0_cuda")
    assert specs.satisfied(_specs(asked), package) == is_satisfied


def test_contradictory_requirements_get_a_package_each() -> None:
    found = examples(_specs("x 1.*", "x 2.*", "x >=1"), "x", "t")
    assert [one.version.split(".")[0] for one in found] == ["1", "2"]


@pytest.mark.parametrize("clause", [">>1", "", "1=2"])
def test_a_clause_that_pip_does_not_know_is_refused(clause: str) -> None:
    with pytest.raises(ProviderError, match="no equivalent for pip"):
        specs._pip_clause(clause)


@pytest.mark.parametrize("texts", [("x >2,<1",), ("x", "x >2,<1"), ("x >2,<1", "x")])
def test_a_requirement_that_no_version_satisfies_is_refused(texts: Sequence[str]) -> None:
    with pytest.raises(ProviderError, match="no version satisfies"):
        placeholder_packages.examples([MatchSpec(text) for text in texts], "x", "0")


def test_a_stand_in_brings_what_the_package_brings_to_its_users() -> None:
    toolchain = Toolchain(cc="cc", cxx="", version="14", glibc="2.41", programs={}, libraries={}, digest="d")
    asked = {"blas-devel": _specs("blas-devel 3.9"), "libcblas": _specs("libcblas 4")}
    companions = {"blas-devel": ("libblas", "libcblas")}
    made = placeholder_packages.packages(asked, companions, toolchain, "linux-64")
    versions = [("blas-devel", "3.9"), ("libblas", "3.9"), ("libcblas", "4")]
    assert [(package.name, package.version) for package in made] == versions
    assert made[0].run_exports == {"weak": companions["blas-devel"]}
    assert made[0].depends == companions["blas-devel"]


def test_a_stand_in_for_magma_has_its_version_and_a_library_to_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(placeholder_packages, "run", lambda argv, what: commands.append(argv))
    toolchain = Toolchain(cc="cc", cxx="", version="14", glibc="2.41", programs={}, libraries={}, digest="d")
    asked = {name: _specs(f"{name} 2.9.0") for name in ("libmagma", "libmagma-devel")}
    for package in placeholder_packages.packages(asked, {}, toolchain, "linux-64"):
        (tmp_path / package.name).mkdir()
        package.fill(tmp_path / package.name)
    header = (tmp_path / "libmagma-devel/include/magma.h").read_text()
    assert re.findall(r"#define MAGMA_VERSION_(\w+) (\d+)", header) == [
        ("MAJOR", "2"), ("MINOR", "9"), ("MICRO", "0"),
    ]  # fmt: skip
    assert [(argv[0], argv[-4]) for argv in commands] == [("cc", str(tmp_path / "libmagma/lib/libmagma.so"))]
