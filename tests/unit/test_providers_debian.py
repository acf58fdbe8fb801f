"""The Debian root: what it will be made of, asking before installing, and choosing libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import ProviderError
from megabuild.configs.config import load
from megabuild.providers.debian import cuda, libraries, root
from megabuild.providers.environment import Environment, machine_platform
from megabuild.providers.provider import ProviderRequest
from megabuild.providers.select import provide


def _installed(**depends: str) -> dict[str, libraries.Installed]:
    return {
        name.replace("_", "-"): libraries.Installed(name, "1", "optional", text)
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


@pytest.mark.parametrize(
    ("debian", "upstream"),
    [
        ("12.4.5.8~12.4.1-2", "12.4.5.8"),
        ("11.1.1+~10.3.5.147~12.4.1-2", "10.3.5.147"),
        ("2.9.0+ds-2", "2.9.0"),
    ],
)
def test_a_library_of_cuda_has_nvidias_version(debian: str, upstream: str) -> None:
    assert cuda._version(debian) == upstream


def test_the_build_dependencies_come_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "control").write_text(
        "Source: x\nBuild-Depends: cmake,\n  libonnx-dev (>= 1),\n  libnuma-dev,\n\nPackage: y\n"
    )
    assert libraries._build_dependencies(tmp_path) == ["libonnx-dev", "libnuma-dev", "libopenblas-dev"]


def test_an_unfinished_root_is_not_taken_for_a_root(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert root._read(tmp_path) is None
    for text in ("{}", "[]", '{"fingerprint": 1, "release": "13"}', '{"release": "13"}', "{"):
        (tmp_path / "record.json").write_text(text)
        assert root._read(tmp_path) is None
    (tmp_path / "record.json").write_text('{"fingerprint": "f", "release": "13", "packages": ""}')
    assert root._read(tmp_path) == root.DebianRoot(
        path=tmp_path / "root",
        source=tmp_path / "root" / root.SOURCE_FOLDER / "tree",
        fingerprint="f",
        release="13",
    )


#: A fake apt-get for a mirror with few packages.


def ask_for_plan(repository: Path, cache: Path, name: str) -> Environment:
    request = ProviderRequest(
        config=load(repository, name),
        planned=[],
        cache=cache,
        report=lambda _: None,
        plan=True,
    )
    return provide(request)


@pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64")
@pytest.mark.parametrize(
    ("name", "size"),
    [("linux_64_cpu_debian", 2), ("linux_64_cuda124_debian", 8), ("linux_aarch64_cpu_debian", 2)],
)
def test_a_plan_says_that_a_root_is_made_first_and_asks_nobody_what_is_in_it(
    tmp_path: Path, repository: Path, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setattr("shutil.which", lambda _: None)
    planned = ask_for_plan(repository, tmp_path, name)
    assert (planned.channels, planned.ready, planned.to_make) == ((), False, size * 10**9)
    assert any(f"Debian root first ({size} GB)" in note for note in planned.notes)
    assert planned.pythons
    assert "mmdebstrap" in planned.install_command
    # the config names Debian's own: nothing is known to differ
    assert not {"c_compiler_version", "c_stdlib_version"} & planned.overrides.keys()


@pytest.mark.parametrize(
    ("user", "programs", "shown"),
    [
        (0, (), "apt-get install --no-install-recommends dash"),
        (1000, ("sudo",), "sudo apt-get install --no-install-recommends dash"),
        (1000, (), "su -c 'apt-get install --no-install-recommends dash'"),
    ],
)
def test_the_command_is_one_that_this_user_can_run(
    monkeypatch: pytest.MonkeyPatch, user: int, programs: tuple[str, ...], shown: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    monkeypatch.setattr("shutil.which", lambda name: name if name in programs else None)
    with pytest.raises(ProviderError) as raised:
        root.require({"sh": "dash"})
    assert raised.value.remedy == f"Run: {shown}"
