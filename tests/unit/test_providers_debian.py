"""The Debian root: what it will be made of, asking before installing, and choosing libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from groundwork.errors import ProviderError
from megabuild.configs.config import load
from megabuild.configs.render import PlannedPackage, render
from megabuild.providers.debian import cuda, libraries, root
from megabuild.providers.debian.simulation import simulate_root
from megabuild.providers.environment import machine_platform
from megabuild.providers.provider import ProviderRequest
from megabuild.providers.pypi.lock import Lock
from megabuild.providers.select import provide


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
APT = """\
#!/bin/sh
echo "$*" >> "$(dirname "$0")/asked"
case "$*" in
*" install "*) cat <<'X'
'http://mirror.example/gcc.deb' gcc_4%3a14.2.0-1_amd64.deb 1000 SHA256:00
'http://mirror.example/gcc-14.deb' gcc-14_14.2.0-19_amd64.deb 20000000 SHA256:00
'http://mirror.example/gcc-13.deb' gcc-13_13.3.0-13_amd64.deb 20000000 SHA256:00
'http://mirror.example/libc6.deb' libc6_2.41-12+deb13u4_amd64.deb 3000 SHA256:00
'http://mirror.example/base.deb' base-files_13.8+deb13u7_amd64.deb 4000 SHA256:00
X
;;
*build-dep*) echo "'http://mirror.example/gcc-14.deb' gcc-14_14.2.0-19_amd64.deb 20000000 SHA256:00" ;;
*source*) echo "'http://mirror.example/x.tar.xz' pytorch_2.6.0.orig.tar.xz 50000000 SHA256:00" ;;
esac
"""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An apt that answers, and notes what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "apt-get").write_text(APT)
    (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.example/debian")
    return folder / "asked"


def test_the_mirror_tells_compiler_and_sizes_of_a_root_that_is_not_made_yet(
    mirror: Path, tmp_path: Path
) -> None:
    simulated = simulate_root(tmp_path, lambda _: None)
    toolchain, download = simulated.toolchain, simulated.download
    assert (toolchain.version, toolchain.major, toolchain.glibc) == ("14.2.0", "14", "2.41")
    assert simulated.root.release == "13.7"
    assert (download.count, download.size) == (6, 90_008_000)
    asked = mirror.read_text()
    simulate_root(tmp_path, lambda _: None)  # kept for a day
    assert mirror.read_text() == asked
    assert root.find(tmp_path) is None


@pytest.mark.skipif(machine_platform() != "linux-64" or not shutil.which("g++"), reason="names of linux-64")
@pytest.mark.parametrize("name", ["linux_64_cpu_debian", "linux_64_cuda124_debian"])
def test_a_plan_without_the_root_has_the_compilers_of_debian(
    mirror: Path, tmp_path: Path, repository: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(repository, name)
    planned: list[PlannedPackage] = []  # what Debian alone decides; wheels have tests of their own
    none = Lock(python="3.12", environment={}, wheels=())
    monkeypatch.setattr("megabuild.providers.provider.LocalProvider.nvidia", lambda *_, **__: (none, []))
    found = provide(
        ProviderRequest(
            config=config,
            planned=planned,
            cache=tmp_path,
            report=lambda _: None,
            ask=lambda _: False,
            plan=True,
        )
    )
    assert (
        not {"c_compiler_version", "c_stdlib_version"} & found.overrides.keys()
    )  # the config says 14 and 2.41
    assert ("Debian packages", 6, 90_008_000) in [(one.what, one.count, one.size) for one in found.downloads]
    before = {item.file_name for item in render(config, repository / "recipe" / "recipe.yaml")}
    after = render(config, repository / "recipe" / "recipe.yaml", overrides=found.overrides)
    assert {item.file_name for item in after} == before


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
        root.require({"sh": "dash"}, lambda _: None, lambda _: False)
    assert raised.value.remedy == f"Run: {shown}"
