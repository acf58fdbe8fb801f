"""Which wheels fit, asked of an index on this machine: small fakes, named like the real ones."""

from __future__ import annotations

import platform
import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_site import Site, serving
from audit_wheels import configured_by_the_test
from wheel_files import make_wheel, simple_index

from groundwork.errors import ProviderError
from groundwork.network import resolver
from groundwork.network.wheel_contents import noted
from megabuild.configs.config import load
from megabuild.providers import catalogue
from megabuild.providers.catalogue import NvidiaWheel
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.provider import base_python
from megabuild.providers.pypi import download, lock, nvidia, projects, torch, wheel_to_conda
from megabuild.providers.pypi.lock import Lock

PURE = "py3-none-any"
CUDA = ('cuda-toolkit[cudart]==13.0.3; platform_system == "Linux"', "filelock")


def _interpreter(python: str = "3.12") -> Interpreter:
    here = Path("/nowhere")
    return Interpreter(
        executable=Path(sys.executable), version=f"{python}.1", soabi="", prefix=here, stdlib=here, include=here,
        library_folder=here, multiarch="", free_threaded=False,
    )  # fmt: skip


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """An index that pip is configured with, empty as yet."""
    configured_by_the_test(monkeypatch)
    with serving({}) as running:
        monkeypatch.setenv("PIP_INDEX_URL", f"{running.url}/simple")
        monkeypatch.setattr(torch, "UPSTREAM", f"{running.url}/whl")
        yield running


def _offer(site: Site, folder: Path, wheels: dict[str, tuple[str, ...]], base: str = "/simple") -> None:
    """Put wheels with requirements on the index, each with 300 kB that nobody needs to see."""
    made = [
        make_wheel(folder, name, {"large.bin": random.Random(0).randbytes(300_000)}, requires=requires)
        for name, requires in wheels.items()
    ]
    site.answers |= simple_index(made, base)


def _names(found: Lock) -> list[str]:
    return [wheel.file_name.rpartition("-py3")[0] for wheel in found.wheels]


WORLD: dict[str, tuple[str, ...]] = {
    f"app-2.0-{PURE}.whl": ("tool[fast]>=1", "old; python_version < '3.0'", "lib<3"),
    f"tool-1.5-{PURE}.whl": ("quick==7; extra == 'fast'", "slow; extra == 'slow'"),
    f"tool-2.0rc1-{PURE}.whl": (),
    f"quick-7-{PURE}.whl": ("lib>=1",),
    f"lib-1.0-{PURE}.whl": (),
    f"lib-2.0-{PURE}.whl": (),
    f"lib-3.0-{PURE}.whl": (),
}


def test_wheels_are_chosen_by_metadata_alone(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path / "index", WORLD)
    found = lock.resolve(["app"], _interpreter(), tmp_path / "locks")
    assert _names(found) == ["app-2.0", "lib-2.0", "quick-7", "tool-1.5"]
    assert all(wheel.size > 300_000 for wheel in found.wheels)
    parts = [part for path, part in site.asked if path.endswith(".whl")]
    assert parts
    assert all(parts)  # nobody asked for a whole one
    seen = noted(tmp_path / "locks", found.wheels[0].sha256)
    assert seen is not None
    assert "large.bin" in seen.members


def test_several_pythons_are_resolved_at_the_same_time(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path / "index", WORLD)
    pythons = ["3.10", "3.11", "3.12", "3.13"]

    def find(python: str) -> list[str]:
        return _names(lock.resolve(["app"], _interpreter(python), tmp_path / "locks"))

    assert list(each(find, pythons, 4)) == [["app-2.0", "lib-2.0", "quick-7", "tool-1.5"]] * 4


def test_a_lock_is_asked_for_once_and_holds_no_addresses(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path / "index", WORLD)
    first = lock.resolve(["quick"], _interpreter(), tmp_path / "locks")
    asked = len(site.asked)
    assert lock.resolve(["quick"], _interpreter(), tmp_path / "locks") == first
    assert len(site.asked) == asked
    assert "://" not in "".join(path.read_text() for path in tmp_path.glob("locks/*.json"))


def test_a_server_that_gives_whole_files_only_will_do(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    _offer(site, tmp_path / "index", WORLD)
    found = lock.resolve(["app"], _interpreter(), tmp_path / "locks")
    assert _names(found) == ["app-2.0", "lib-2.0", "quick-7", "tool-1.5"]


def test_a_folder_with_wheels_will_do(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(make_wheel(tmp_path / "w", f"six-1.0-{PURE}.whl", {}).parent))
    assert _names(lock.resolve(["six"], _interpreter(), tmp_path / "locks")) == ["six-1.0"]


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (["lib>=9"], "no wheels fit Python 3.12: only lib<=3.0 is available and you require lib>=9"),
        (["app", "lib==3.0"], "all versions of app depend on lib<3 and you require app, we can conclude"),
        (["nothing"], "no wheels fit Python 3.12: nothing was not found in the package registry"),
    ],
)
def test_what_does_not_fit_is_named(site: Site, tmp_path: Path, needs: list[str], said: str) -> None:
    _offer(site, tmp_path / "index", WORLD)
    with pytest.raises(ProviderError) as raised:
        lock.resolve(needs, _interpreter(), tmp_path / "locks")
    assert said in raised.value.message
    assert "error:" not in raised.value.message
    assert raised.value.exit_code == 5


def test_wheels_for_other_pythons_and_withdrawn_ones_are_passed_over(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path, {"lib-1.0-cp312-none-any.whl": (), "lib-2.0-cp313-none-any.whl": ()})
    newer = make_wheel(tmp_path, f"lib-4.0-{PURE}.whl", {})
    for more in ('data-requires-python="&gt;=3.14"', "data-yanked"):
        answers = simple_index([newer], more=more)
        site.answers |= answers | {"/simple/lib/": site.answers["/simple/lib/"] + answers["/simple/lib/"]}  # type: ignore[operator]
    (wheel,) = lock.resolve(["lib"], _interpreter(), tmp_path / "locks").wheels
    assert wheel.version == "1.0"


MANY = (
    "cp312-cp312-manylinux_2_17_x86_64.manylinux_2_17_aarch64",
    "cp312-abi3-manylinux_2_17_x86_64.manylinux_2_17_aarch64",
    "cp311-cp311t-manylinux_2_17_x86_64.manylinux_2_17_aarch64",
    "cp312-cp312-manylinux_2_17_riscv64",
    "py3-none-any",
)


def test_of_several_wheels_of_a_version_the_most_specific_is_taken(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path / "index", {f"many-1.0-{tag}.whl": () for tag in MANY})

    def tag(interpreter: Interpreter) -> str:
        (wheel,) = lock.resolve(["many"], interpreter, tmp_path / "locks").wheels
        return wheel.file_name.removeprefix("many-1.0-").removesuffix(".whl")

    assert tag(_interpreter()) == MANY[0]
    assert tag(_interpreter("3.13")) == MANY[1]
    assert tag(_interpreter("3.11")) == MANY[4]
    platforms = tuple(f"manylinux_2_{minor}_aarch64" for minor in range(41, 16, -1))
    assert tag(replace(_interpreter(), executable=Path("/nowhere"), platforms=platforms)) == MANY[0]


def test_a_python_without_the_interpreter_lock_is_asked_for_its_own_wheels(
    site: Site, tmp_path: Path
) -> None:
    _offer(site, tmp_path / "index", {f"many-1.0-{tag}.whl": () for tag in MANY})
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    own = f"own-1.0-cp{version.replace('.', '')}-cp{version.replace('.', '')}t-{sysconfig.get_platform()}.whl"
    _offer(site, tmp_path / "own", {own.replace("-x86", "_x86").replace("linux-", "linux_"): ()})
    said = f"#!{sys.executable}\nimport sys, sysconfig\nsysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1\n"
    program = tmp_path / "python"
    program.write_text(f"{said}exec(sys.argv[sys.argv.index('-c') + 1])\n")
    program.chmod(0o755)
    free = replace(
        _interpreter(version), executable=program, version=platform.python_version(), free_threaded=True
    )
    (wheel,) = lock.resolve(["own"], free, tmp_path / "locks").wheels
    assert f"cp{version.replace('.', '')}t" in wheel.file_name
    with pytest.raises(ProviderError, match="no wheels fit"):
        lock.resolve(["own"], _interpreter(version), tmp_path / "locks")


def test_an_index_that_does_not_answer_is_left_out(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _offer(site, tmp_path / "index", WORLD)
    site.answers |= {
        f"/{place}/{name}/": lambda handler: handler.reply(500, b"")
        for place in ("broken", "simple2")
        for name in ("lib", "app", "tool", "quick")
    }
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{site.url}/broken http://127.0.0.1:9/closed")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{site.url}/links {tmp_path}/nowhere")
    assert _names(lock.resolve(["app"], _interpreter(), tmp_path / "locks"))[0] == "app-2.0"
    with pytest.raises(ProviderError) as raised:
        lock.resolve(["lib>=9"], _interpreter(), tmp_path / "locks")
    first, *others = raised.value.message.splitlines()
    assert first == "no wheels fit Python 3.12: only lib<=3.0 is available and you require lib>=9"
    assert [said.partition(" ")[0].partition("/lib")[0] for said in others] == [
        f"{site.url}/broken", "127.0.0.1:9", f"{site.url}/links:"
    ]  # fmt: skip
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:s3cret-word@127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))  # a folder that has nothing of it
    with pytest.raises(
        ProviderError, match=r"resolving wheels for Python 3\.12: 127\.0\.0\.1:9 cannot be used"
    ) as raised:
        lock.resolve(["lib"], _interpreter(), tmp_path / "locks")
    assert "s3cret" not in str(raised.value)


def test_credentials_are_used_and_nobody_sees_them(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _offer(site, tmp_path / "index", WORLD)
    started: list[str] = []
    run = subprocess.run

    def noticed(words: Sequence[str], **more: Any) -> object:
        started.extend(map(str, words))
        return run(words, **more)

    monkeypatch.setattr(subprocess, "run", noticed)
    monkeypatch.setenv("PIP_INDEX_URL", site.url.replace("://", "://user:s3cret-word@") + "/simple")
    _names(lock.resolve(["app"], _interpreter(), tmp_path / "locks"))
    assert {headers.get("authorization", "")[:5] for headers in site.headers} == {"Basic"}
    with pytest.raises(ProviderError) as raised:
        lock.resolve(["lib>=9"], _interpreter(), tmp_path / "locks")
    kept = "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("locks/**/*") if path.is_file()
    )
    assert "compile" in started
    assert "s3cret" not in f"{started} {raised.value.message} {kept}"


def test_uvs_own_settings_do_not_change_what_is_chosen(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _offer(site, tmp_path / "index", WORLD)
    (tmp_path / "uv.toml").write_text('resolution = "lowest"\nno-index = true\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("UV_RESOLUTION", "lowest")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert _names(lock.resolve(["lib<3"], _interpreter(), tmp_path / "locks")) == ["lib-2.0"]


def test_without_uv_it_is_said_what_to_install(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match="uv, which resolves wheels") as raised:
        lock.resolve(["lib"], _interpreter(), tmp_path / "locks")
    assert "pip install uv" in raised.value.remedy


def test_a_plan_of_nvidias_packages_needs_no_wheel(site: Site, tmp_path: Path) -> None:
    name = f"nvidia_cuda_runtime-13.0.96-{PURE}.whl"
    members = {"nvidia/cu13/lib/libcudart.so.13": b"1", "nvidia/cu13/include/cuda.h": b"2"}
    site.answers |= simple_index([make_wheel(tmp_path / "index", name, members)])
    found = lock.resolve(["nvidia-cuda-runtime"], _interpreter(), tmp_path / "locks")
    (wheel,) = found.wheels
    table = {"nvidia-cuda-runtime": NvidiaWheel(run="cuda-cudart", dev="cuda-cudart-dev")}

    def keys(path: Path) -> list[str]:
        made = nvidia.packages(found, {wheel.sha256: path}, table, "13.0", "linux-64", tmp_path / "locks")
        return [package.key for package in made]

    assert keys(tmp_path / "nowhere.whl") == keys(tmp_path / "index" / name)
    assert download.pending([found], tmp_path) == {wheel.sha256: wheel.size}


# ------------------------------------------------------------------------------------------- PyTorch's own index


def _torch(version: str, python: str = "cp312") -> str:
    return f"torch-{version}-{python}-{python}-linux_x86_64.whl"


def _found(repository: Path, folder: Path, name: str, **more: str) -> torch.TorchWheels:
    config = replace(load(repository, name), **more)  # type: ignore[arg-type]
    pythons = {python: _interpreter(python) for python in ("3.11", "3.12")}
    return torch.find(config, pythons, folder / "wheels")


def _as_on_pypi(site: Site, folder: Path) -> None:
    """CUDA wheels for two Pythons, and a CPU wheel for one of them."""
    cuda = {_torch("2.13.0", python): CUDA for python in ("cp311", "cp312")}
    _offer(site, folder / "pip", {**cuda, _torch("2.13.0+cpu", "cp311"): ("filelock",)})


def test_pythons_without_a_fitting_wheel_are_left_out_with_the_reason(
    site: Site, tmp_path: Path, repository: Path
) -> None:
    _as_on_pypi(site, tmp_path)
    found = _found(repository, tmp_path, "linux_64_cpu_wheel")
    assert list(found.locks) == ["3.11"]
    assert (
        "the wheel of torch 2.13.0 is for CUDA 13.0, as in linux_64_cuda130_wheel" in found.left_out["3.12"]
    )
    assert base_python(load(repository, "linux_64_cpu_wheel"), found.locks) == "3.11"
    assert f"{site.url}/whl/cpu was queried" in found.notes[0]


def test_a_cpu_wheel_beside_it_does_not_stand_for_the_cuda_wheel(
    site: Site, tmp_path: Path, repository: Path
) -> None:
    _as_on_pypi(site, tmp_path)
    found = _found(repository, tmp_path, "linux_64_cuda130_wheel")
    assert list(found.locks) == ["3.11", "3.12"]
    assert found.locks["3.11"].wheels[0].version == "2.13.0"
    assert base_python(load(repository, "linux_64_cuda130_wheel"), found.locks) == "3.12"
    assert not any("/whl/" in path for path, _ in site.asked)  # pip's indexes had all


def test_no_fitting_wheel_at_all_is_an_error(site: Site, tmp_path: Path, repository: Path) -> None:
    _offer(site, tmp_path / "pip", {_torch("2.13.0"): CUDA})
    said = r"Python 3\.12: the wheel of torch 2\.13\.0 is for CUDA 13\.0.*/whl/cpu was queried"
    with pytest.raises(ProviderError, match=said) as raised:
        _found(repository, tmp_path, "linux_64_cpu_wheel")
    assert "PIP_FIND_LINKS" in raised.value.remedy
    assert "linux_64_cuda130_wheel" in raised.value.remedy  # what the wheel fits that there is


@pytest.mark.parametrize(
    ("wanted", "offered", "advised"),
    [
        (
            "linux_64_cuda130_wheel",
            {_torch("2.13.0+cpu"): ("filelock",)},
            "",
        ),  # the one asked for needs another local version
        ("linux_64_cuda132_wheel", {_torch("2.15.0"): CUDA}, "linux_64_cuda130_wheel"),
        (
            "linux_64_cpu_wheel",
            {_torch("2.13.0"): ("cuda-toolkit[cudart]==11.1.*",)},
            "",
        ),  # no config is for that
    ],
)
def test_only_a_config_that_exists_is_advised_in_place_of_another(
    site: Site,
    tmp_path: Path,
    repository: Path,
    wanted: str,
    offered: dict[str, tuple[str, ...]],
    advised: str,
) -> None:
    _offer(site, tmp_path / "pip", offered)
    with pytest.raises(ProviderError) as raised:
        _found(repository, tmp_path, wanted)
    assert [word for word in raised.value.remedy.split() if "_wheel" in word] == (
        [f"{advised},"] if advised else []
    )


def test_upstreams_index_has_what_pips_lack(site: Site, tmp_path: Path, repository: Path) -> None:
    _as_on_pypi(site, tmp_path)
    _offer(site, tmp_path / "upstream", {_torch("2.13.0+cpu"): ("filelock",)}, "/whl/cpu")
    found = _found(repository, tmp_path, "linux_64_cpu_wheel")
    assert {python: one.wheels[0].version for python, one in found.locks.items()} == {
        "3.11": "2.13.0+cpu", "3.12": "2.13.0+cpu"
    }  # fmt: skip
    assert found.more == (f"{site.url}/whl/cpu",)
    assert not found.left_out


def test_a_nightly_build_comes_from_upstreams_nightly_index(
    site: Site, tmp_path: Path, repository: Path
) -> None:
    _as_on_pypi(site, tmp_path)
    version = "2.16.0.dev20261120"
    _offer(site, tmp_path / "upstream", {_torch(f"{version}+cu130"): CUDA}, "/whl/nightly/cu130")
    found = _found(repository, tmp_path, "linux_64_cuda130_wheel", torch_version=version)
    assert found.locks["3.12"].wheels[0].version == f"{version}+cu130"


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        ("error: failed to lock `/cache/uv/.lock`: No locks available (os error 37)", 4),
        ('error: Permission denied (os error 13) at path "/cache/uv/.tmp1"', 4),
        ("error: failed to create file: No space left on device (os error 28)", 12),
        (
            "error: Failed to fetch: `https://index/simple/lib/`\n  cause: Connection refused (os error 111)",
            5,
        ),
        ("error: Failed to fetch: `https://index/simple/lib/`\n  cause: Permission denied (os error 13)", 5),
    ],
)
def test_a_cache_that_cannot_be_used_is_no_fault_of_the_network(said: str, exit_code: int) -> None:
    error = resolver._error(said, "3.12", Path("/cache/uv"))
    assert error.exit_code == exit_code
    assert ("MEGABUILD_CACHE" in error.remedy and "network" not in error.remedy) == (exit_code != 5)


CYTHON = "cython-3.1.0-cp312-cp312-manylinux_2_17_x86_64.whl"


def test_what_the_catalogue_does_not_list_is_a_wheel_where_an_index_has_one(
    site: Site, tmp_path: Path
) -> None:
    wheels = (CYTHON, f"setuptools_scm-9.0-{PURE}.whl", f"msgpack-1.1-{PURE}.whl", f"libfoo-1-{PURE}.whl")
    _offer(site, tmp_path / "index", dict.fromkeys(wheels, ()))
    site.answers["/simple/nccl/"] = b'<a href="/simple/files/nccl-1.tar.gz">nccl-1.tar.gz</a>'
    asked = ["cython", "setuptools_scm", "msgpack-python", "libfoo", "nccl", "cuda-nvcc_linux-64", "absent"]
    table = catalogue.load()
    pythons = [replace(_interpreter(), platforms=("manylinux_2_17_x86_64",))]
    found = projects.with_wheels(asked, table, pythons)
    assert found == ("cython", "msgpack-python", "setuptools_scm")
    both = [*pythons, replace(_interpreter("3.13"), platforms=("manylinux_2_17_x86_64",))]
    assert projects.with_wheels(["cython"], table, both) == (), "a Python without a wheel"


def test_an_index_that_does_not_answer_is_no_index_without_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    configured_by_the_test(monkeypatch)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ProviderError, match="looking for wheels of cython"):
        projects.with_wheels(["cython"], catalogue.load(), [_interpreter()])


def test_a_project_asked_for_by_two_names_is_one_package_and_another_that_needs_it() -> None:
    table = catalogue.load().with_wheels(["setuptools_scm"])
    assert table.conda_name("setuptools-scm") == "setuptools_scm"
    made = LocalPackage(name="setuptools_scm", version="9.0", platform="linux-64")
    (other,) = wheel_to_conda.other_names(
        [made], ["setuptools_scm", "setuptools-scm", "numpy"], table, "linux-64"
    )
    assert (other.name, other.version, other.depends) == ("setuptools-scm", "9.0", ("setuptools_scm ==9.0",))
