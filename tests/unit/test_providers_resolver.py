"""Which wheels fit, asked of an index on this machine: small fakes, named like the real ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from audit_site import Site, serving
from audit_wheels import configured_by_the_test
from wheel_files import make_wheel, simple_index

from megabuild.configs.config import load
from megabuild.errors import ProviderError
from megabuild.providers.catalogue import NvidiaWheel
from megabuild.providers.command import each
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.provider import base_python
from megabuild.providers.pypi import download, lock, nvidia, offers, torch
from megabuild.providers.pypi.lock import Lock

PURE = "py3-none-any"
CUDA = ('cuda-toolkit[cudart]==13.0.3; platform_system == "Linux"', "filelock")


def _interpreter(python: str = "3.12") -> Interpreter:
    here = Path("/nowhere")
    return Interpreter(
        executable=here, version=f"{python}.1", soabi="", prefix=here, stdlib=here, include=here,
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
    seen = offers.noted(tmp_path / "locks", found.wheels[0].sha256)
    assert seen is not None
    assert "large.bin" in seen.members


def test_several_pythons_at_the_same_time_look_at_a_wheel_once(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path / "index", WORLD)
    pythons = ["3.10", "3.11", "3.12", "3.13"]

    def find(python: str) -> list[str]:
        return _names(lock.resolve(["app"], _interpreter(python), tmp_path / "locks"))

    assert list(each(find, pythons, 4)) == [["app-2.0", "lib-2.0", "quick-7", "tool-1.5"]] * 4
    asked = [path for path, part in site.asked if part == "bytes=0-0"]
    assert len(asked) == len(set(asked))


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
        (["lib>=9"], "no index that was asked has a wheel of lib>=9 for Python 3.12"),
        (["app", "lib==3.0"], "do not fit together: lib<3 (of app 2.0), lib==3.0"),
        (["nothing"], "no index that pip is configured to use has nothing"),
    ],
)
def test_what_does_not_fit_is_named(site: Site, tmp_path: Path, needs: list[str], said: str) -> None:
    _offer(site, tmp_path / "index", WORLD)
    with pytest.raises(ProviderError) as raised:
        lock.resolve(needs, _interpreter(), tmp_path / "locks")
    assert said in raised.value.message


def test_wheels_for_other_pythons_and_withdrawn_ones_are_passed_over(site: Site, tmp_path: Path) -> None:
    _offer(site, tmp_path, {"lib-1.0-cp312-none-any.whl": (), "lib-2.0-cp313-none-any.whl": ()})
    newer = make_wheel(tmp_path, f"lib-4.0-{PURE}.whl", {})
    for more in ('data-requires-python="&gt;=3.14"', "data-yanked"):
        answers = simple_index([newer], more=more)
        site.answers |= answers | {"/simple/lib/": site.answers["/simple/lib/"] + answers["/simple/lib/"]}  # type: ignore[operator]
    (wheel,) = lock.resolve(["lib"], _interpreter(), tmp_path / "locks").wheels
    assert wheel.version == "1.0"


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


def _found(
    repository: Path, folder: Path, name: str, index: str | None = None, **more: str
) -> torch.TorchWheels:
    config = replace(load(repository, name), **more)  # type: ignore[arg-type]
    pythons = {python: _interpreter(python) for python in ("3.11", "3.12")}
    return torch.find(config, pythons, folder / "wheels", index)


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
    assert f"{site.url}/whl/cpu was asked" in found.notes[0]


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
    said = r"Python 3\.12: the wheel of torch 2\.13\.0 is for CUDA 13\.0.*/whl/cpu was asked"
    with pytest.raises(ProviderError, match=said) as raised:
        _found(repository, tmp_path, "linux_64_cpu_wheel")
    assert "--torch-index" in raised.value.remedy


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


def test_an_index_that_is_named_is_the_only_one(site: Site, tmp_path: Path, repository: Path) -> None:
    _as_on_pypi(site, tmp_path)
    _offer(site, tmp_path / "own", {_torch("2.13.0+cu130"): CUDA}, "/own")
    found = _found(repository, tmp_path, "linux_64_cuda130_wheel", f"{site.url}/own")
    assert found.locks["3.12"].wheels[0].version == "2.13.0+cu130"
    folder = str(tmp_path / "own")
    assert _found(repository, tmp_path, "linux_64_cuda130_wheel", folder).more == (folder,)


def test_a_cpu_package_is_never_made_from_a_cuda_wheel_of_a_named_index(
    site: Site, tmp_path: Path, repository: Path
) -> None:
    _offer(site, tmp_path / "own", {_torch("2.13.0"): CUDA}, "/own")
    with pytest.raises(ProviderError, match=r"is for CUDA 13\.0"):
        _found(repository, tmp_path, "linux_64_cpu_wheel", f"{site.url}/own")
