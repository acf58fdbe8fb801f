"""The Debian root: asking before installing, and choosing libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from megabuild.errors import ProviderError
from megabuild.providers.debian import libraries, root


def test_nothing_is_installed_without_consent_and_the_command_is_shown() -> None:
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(ProviderError) as raised:
        root.require({"no-such-program": "no-such-package"}, lambda _: None, refuse)
    assert "apt-get install --no-install-recommends no-such-package" in raised.value.remedy
    assert len(asked) == 1


def test_nothing_is_asked_when_everything_is_there() -> None:
    def fail(_: str) -> bool:
        raise AssertionError

    root.require({"sh": "dash"}, lambda _: None, fail)


def _installed(**depends: str) -> dict[str, libraries.Installed]:
    return {
        name.replace("_", "-"): libraries.Installed(name=name, version="1", priority="optional", depends=text)
        for name, text in depends.items()
    }


def test_a_development_package_stands_for_the_library_of_its_own_version() -> None:
    installed = _installed(
        libonnx_dev="libonnx1t64 (= 1.17), libprotobuf-dev, python3",
        libprotobuf_dev="libprotobuf32t64 (= 3.21)",
        libopenblas_dev="libopenblas-pthread-dev (= 1) | libopenblas-serial-dev",
        libopenblas_pthread_dev="libopenblas0-pthread (= 1), libc6-dev",
    )
    found = libraries._runtime_packages(["libonnx-dev", "libopenblas-dev", "libabsent-dev"], installed)
    assert found == {"libonnx1t64", "libopenblas0-pthread"}


def test_the_build_dependencies_come_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "control").write_text(
        "Source: x\nBuild-Depends: cmake,\n  libonnx-dev (>= 1),\n  libnuma-dev,\n\nPackage: y\n"
    )
    assert libraries._build_dependencies(tmp_path) == ["libonnx-dev", "libnuma-dev", "libopenblas-dev"]


def test_an_unfinished_root_is_not_taken_for_a_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert root._read(tmp_path) is None
