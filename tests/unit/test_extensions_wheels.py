"""Prebuilt or compile: what the plan says, and why."""

from __future__ import annotations

import hashlib
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wheel_files import make_page, make_wheel

from gpu_tools.verify import check
from gpu_tools.verify.check import Verdict
from gpu_tools.verify.expectation import Expectation
from groundwork.errors import IntegrityError, ProviderError, UsageError
from pyg_extensions import find_wheel as find_wheel_module
from pyg_extensions import pyg_index as indexing
from pyg_extensions.find_wheel import Choice, WheelRequirements, check_package, find_wheel
from pyg_extensions.pyg_index import PygIndex, WheelTarget
from pyg_extensions.table import EXTENSIONS, archs_of, find

KERNELS = b"kernels for sm_90"
FIND_FAULT = find_wheel_module.find_fault


def find_fault(wheel: Path, wanted: WheelRequirements) -> str:
    """Takes a wheel for good when its library has what stands for kernels here."""
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.read(f"{wanted.extension.name}/_version_cuda.so")
    return "" if inside == KERNELS else f"claims {wanted.target.tag} but has no kernels"


class Place:
    """An index and a cache."""

    def __init__(self, folder: Path) -> None:
        self.index, self.cache = folder / "index", folder / "cache"
        self.links: list[str] = []
        self.said: list[str] = []

    def offer(
        self, name: str, *, inside: bytes = KERNELS, local: str = "pt213cu130", hashed: bool = False
    ) -> Path:
        file_name = f"{name}+{local}-cp312-cp312-linux_x86_64.whl"
        module = name.partition("-")[0]
        files = {f"{module}/__init__.py": b"", f"{module}/_version_cuda.so": inside}
        wheel = make_wheel(self.index / "torch-2.13.0+cu130", file_name, files)
        digest = f"#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}" if hashed else ""
        self.links.append(f"torch-2.13.0%2Bcu130/{file_name.replace('+', '%2B')}{digest}")
        make_page(self.index, "2.13.0", "cu130", self.links)
        return wheel

    def choose(self, extension: str, **changes: Any) -> Choice:
        index = changes.pop("index", None) or PygIndex(str(self.index))
        values: dict[str, Any] = {"torch_version": "2.13.0", "cuda_version": "13.0", **changes}
        return find_wheel(
            WheelRequirements(
                extension=find(extension),
                target=WheelTarget(python="3.12", platform="linux-64", **values),
                archs=("9.0",),
            ),
            "",
            index=index,
            cache=self.cache,
            report=self.said.append,
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(find_wheel_module, "find_fault", find_fault)
    return Place(tmp_path)


def test_every_wheel_of_a_mixed_index_gets_what_it_deserves(place: Place) -> None:
    half = place.offer("torch_scatter-2.1.4")
    place.offer("torch_scatter-2.1.3", inside=b"a CPU build")
    place.offer("torch_scatter-2.1.2")  # the next best is tried
    place.offer("torch_sparse-0.6.18", local="pt213cu126")
    corrupt = place.offer("torch_cluster-1.6.3")
    for wheel in (half, corrupt):
        wheel.write_bytes(wheel.read_bytes()[:-40])
    place.offer("torch_spline_conv-1.2.2", inside=b"a CPU build")

    found = {extension.conda: place.choose(extension.conda) for extension in EXTENSIONS}
    facts = {
        "pytorch_sparse": "torch 2.13 cu126", "pytorch_cluster": f"{corrupt.name} is damaged",
        "pytorch_spline_conv": "no kernels", "pyg-lib": "no pyg_lib",
    }  # fmt: skip
    assert {name for name, choice in found.items() if choice.wheel is None} == set(facts)
    assert all(fact in found[name].reason for name, fact in facts.items())
    scatter = found["pytorch_scatter"]
    assert scatter.reason == "torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl"
    assert scatter.wheel is not None
    assert place.cache in scatter.wheel.parents  # an index folder may be gone when the build comes to it


def test_a_wheel_with_the_wrong_hash_is_not_believed(place: Place) -> None:
    wheel = place.offer("torch_scatter-2.1.2", hashed=True)
    place.offer("torch_scatter-2.1.2", inside=KERNELS + b"!")  # another file under the same name
    assert place.choose("torch_scatter").reason.startswith(f"{wheel.name}: sha256 is")


def test_a_wheel_that_is_replaced_in_a_folder_is_noticed(place: Place) -> None:
    place.offer("torch_scatter-2.1.2", inside=b"a CPU build")
    assert place.choose("torch_scatter").wheel is None
    place.offer("torch_scatter-2.1.2")
    assert place.choose("torch_scatter").wheel is not None


def test_a_wheel_is_fetched_once_and_again_if_its_copy_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_wheel(tmp_path, "torch_scatter-2-py3-none-any.whl", {"torch_scatter/a.so": b""})
    fetched: list[str] = []

    def fetch(address: str, target: Path, *_: object) -> None:
        fetched.append(address)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(good.read_bytes())

    monkeypatch.setattr(find_wheel_module, "fetch", fetch)
    wheel: Any = SimpleNamespace(name=good.name, url="https://a.example/x.whl", sha256="")
    for damages, times in ((False, 1), (True, 1), (False, 2)):
        copy = find_wheel_module._in_cache(wheel, tmp_path / "cache", lambda _: None)
        assert len(fetched) == times
        assert copy.read_bytes() == good.read_bytes()
        if damages:
            copy.write_bytes(good.read_bytes()[:-40])


def test_an_index_that_does_not_answer_is_a_reason_to_compile_and_asked_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def silent(address: str) -> ProviderError:
        asked.append(address)
        return ProviderError("index.example: no route to host", "check the network")

    monkeypatch.setattr(indexing, "read_page", silent)
    index = PygIndex("https://index.example/whl")
    reasons = {place.choose(extension.conda, index=index).reason for extension in EXTENSIONS}
    assert reasons == {"index.example: no route to host"}
    assert len(asked) == 1


def test_extensions_are_found_under_all_their_names() -> None:
    assert {
        find(name).conda for name in ("scatter", "torch-scatter", "pytorch_scatter", "Torch_Scatter")
    } == {"pytorch_scatter"}
    assert {find(name).conda for name in ("pyg-lib", "pyg_lib", "lib")} == {"pyg-lib"}


def test_archs_come_from_the_list_of_the_configs_cuda() -> None:
    lists = {"torch_cuda_arch_list_cuda130": ("9.0;12.0",), "torch_cuda_arch_list_cpu": ("None",)}
    assert archs_of({**lists, "cuda_compiler_version": ("13.0",)}) == ("9.0", "12.0")
    assert archs_of(lists) == ()
    assert archs_of({**lists, "torch_cuda_arch_list": ("7.5",)}) == ("7.5",)


def test_libraries_are_verified_for_all_that_is_wanted(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a wheel, beside the environment that it is for; those of an environment, and of a package."""
    seen: list[tuple[Path, Path | None, Expectation]] = []

    def verify(path: Path, *, expect: Expectation, beside: Path | None = None) -> Verdict:
        seen.append((path, beside, expect))
        raise UsageError("stop", "here")

    monkeypatch.setattr(check, "verify", verify)
    wheel, prefix = tmp_path / "a.whl", tmp_path / "prefix"
    target = WheelTarget(python="3.12", platform="linux-64", torch_version="2.13.0", cuda_version="13.0")
    wanted = WheelRequirements(
        extension=find("torch_scatter"), target=target, archs=("9.0",), exact_archs=True, beside=prefix
    )
    with pytest.raises(UsageError, match="stop"):
        FIND_FAULT(wheel, wanted)
    with pytest.raises(UsageError, match="stop"):
        FIND_FAULT(prefix, replace(wanted, exact_archs=False))
    archs = ("8.0", "9.0")
    with pytest.raises(UsageError, match="stop"):
        check_package(wheel, accelerator="cuda126", archs=archs, python="3.11", torch_version="2.12.1")
    of_wheel = Expectation(
        accelerator="cuda130", archs=("9.0",), python="3.12", torch_version="2.13.0", exact_archs=True
    )
    of_package = Expectation(accelerator="cuda126", archs=archs, python="3.11", torch_version="2.12.1")
    of_prefix = replace(of_wheel, exact_archs=False)
    assert seen == [(wheel, prefix, of_wheel), (prefix, None, of_prefix), (wheel, None, of_package)]


def test_a_wheel_that_cannot_be_read_has_that_fault(tmp_path: Path) -> None:
    target = WheelTarget(python="3.12", platform="linux-64", torch_version="2.13.0", cuda_version=None)
    wheel = tmp_path / "torch_scatter-2.1.2-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"PK")
    fault = FIND_FAULT(wheel, WheelRequirements(extension=find("torch_scatter"), target=target))
    assert fault.startswith("cannot be read: ")


def judge_as(monkeypatch: pytest.MonkeyPatch, libraries: tuple[tuple[str, bool, bool], ...]) -> None:
    """Let all verdicts be on these libraries: path, whether it has no fault, whether that is unknown."""
    verdicts = [
        SimpleNamespace(
            path=path, ok=ok, unknown=unknown, reason="for another Python", remedy="build it again"
        )
        for path, ok, unknown in libraries
    ]
    verdict = SimpleNamespace(libraries=verdicts, subject="a.conda")
    monkeypatch.setattr(check, "verify", lambda *_, **__: verdict)


@pytest.mark.parametrize(
    ("libraries", "fault"),
    [
        ((("torch_scatter/_a.so", True, False), ("torch_sparse/_b.so", False, False)), ""),
        ((("torch_scatter/_a.so", False, True),), ""),
        ((("torch_scatter/_a.so", True, False), ("torch_scatter/_b.so", False, False)),
         "does not fit (_b.so: for another Python)"),
        ((("torch_sparse/_b.so", True, False),), "has no library in it"),
        ((("torch_scatter/__init__.py", True, False),), "has no library in it"),
    ],
)  # fmt: skip
def test_an_extension_has_the_faults_of_its_own_libraries(
    libraries: tuple[tuple[str, bool, bool], ...], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_as(monkeypatch, libraries)
    target = WheelTarget(python="3.12", platform="linux-64", torch_version="2.13.0", cuda_version=None)
    found = FIND_FAULT(Path("prefix"), WheelRequirements(extension=find("torch_scatter"), target=target))
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


@pytest.mark.parametrize(
    ("libraries", "fault"),
    [
        ((), "a.conda has no fitting library"),
        ((("x/a.so", True, False), ("x/b.so", False, False)), "b.so: for another Python"),
        ((("x/a.so", False, True),), ""),
        ((("x/a.so", True, False),), ""),
    ],
)
def test_a_package_is_published_if_all_its_libraries_fit(
    libraries: tuple[tuple[str, bool, bool], ...], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown verdict is settled later, by an import."""
    judge_as(monkeypatch, libraries)
    with (
        nullcontext()
        if not fault
        else pytest.raises(IntegrityError, match=f"^a.conda is not published: {fault}$")
    ):
        check_package(Path("a.conda"), accelerator="cpu", archs=(), python=None, torch_version="2.13.0")
