"""Our packages in one environment, or one list of channels, with conda-forge's own of the same versions.

Ours are made by the engine from the recipes, emptied of everything but names, numbers, build strings and requirements,
so that pins and run_exports are what a real build would write into its packages. Theirs are lines of an index written
by hand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import plain_engine
import pytest
from rattler import Channel, ChannelPriority, VirtualPackage, VirtualPackageOverrides, solve
from rattler.package import IndexJson
from rattler.virtual_package.virtual_package import Override
from ruamel.yaml import YAML
from tiny import make_channel, publish

from conda_wheels import built
from megabuild.configs.config import load
from megabuild.configs.render import render

ROOT = Path(__file__).resolve().parents[2]
SCATTER = "pytorch_scatter"
THEIRS, OURS = "conda-forge", "ours"
PYTHON = "3.12.* *_cpython"
#: What the two families are about; every other requirement is left out of the indexes.
_FAMILY = (
    "libtorch", "libtorch-cuda-linalg", "pytorch", "pytorch-cpu", "pytorch-gpu",
    "pyg-lib", "pytorch_cluster", "pytorch_scatter", "pytorch_sparse", "pytorch_spline_conv",
)  # fmt: skip
_SCRIPT = 'mkdir -p "$PREFIX/share/$PKG_NAME" && touch "$PREFIX/share/$PKG_NAME/$PKG_BUILD_STRING"'


class Line(NamedTuple):
    """A line of an index."""

    name: str
    build: str
    number: int
    depends: Sequence[str] = ()
    constrains: Sequence[str] = ()
    version: str = "2.13.0"


def conda_forge() -> Iterator[Line]:
    """conda-forge's family for Linux, Python 3.12.

    Versions, numbers, build strings and pins are as recipe/meta.yaml of pytorch-cpu-feedstock (74dd3d46, 2026-08-13:
    2.13.0, build 2) and recipe/recipe.yaml of pytorch_scatter-feedstock (077c5ff, 2026-06-11: 2.1.2, build 19) make
    them; the hashes are invented. That of pytorch_scatter is at PyTorch 2.11: a build for 2.13, as its next migration
    would make it, is here as well.
    """
    for kind, blas, number in (("cuda130", "mkl", 302), ("cuda129", "mkl", 302), ("cuda130", "generic", 202),
                               ("cpu", "mkl", 102), ("cpu", "generic", 2)):  # fmt: skip
        meta, other = ("pytorch-gpu", "pytorch-cpu") if kind != "cpu" else ("pytorch-cpu", "pytorch-gpu")
        alone = (f"{meta} 2.13.0", f"{other} <0.0a0")
        flavour, python = f"{kind}_{blas}", ("python 3.12.*", *(["__cuda"] if kind != "cpu" else []))
        libtorch = f"{flavour}_hcf00001_{number}"
        yield Line("libtorch", libtorch, number, (), (*alone, f"pytorch 2.13.0 {flavour}_*_{number}"))
        needs = (f"libtorch 2.13.0 {libtorch}", *python)
        yield Line("pytorch", f"{flavour}_py312_hcf00002_{number}", number, needs, alone)
        of_kind = f"pytorch 2.13.0 {kind.rstrip('0139')}*_{blas}*{number}"
        yield Line(meta, f"{flavour}_hcf00003_{number}", number, (of_kind,))
    for kind, minor in (("cuda130", 13), ("cpu", 13), ("cuda130", 11), ("cpu", 11)):
        exported = [f"{name} >=2.{minor}.0,<2.{minor + 1}.0a0" for name in ("pytorch", "libtorch")]
        needs = ("python 3.12.*", *exported, f"pytorch * {kind.rstrip('0139')}*")
        yield Line("pytorch_scatter", f"{kind}_py312_hcf{minor:05}_19", 19, needs, version="2.1.2")


def channel(folder: Path, lines: Iterable[Line]) -> Path:
    """Make a channel that is an index and nothing else, with a Python."""
    python = Line("python", "0_cpython", 0, version="3.12.1")
    packages = {
        f"{line.name}-{line.version}-{line.build}.conda": {
            "name": line.name, "version": line.version, "build": line.build, "build_number": line.number,
            "depends": list(line.depends), "constrains": list(line.constrains), "subdir": "linux-64",
            "timestamp": 1_780_000_000_000, "size": 1, "md5": "0" * 32, "sha256": "0" * 64,
        }
        for line in (python, *lines)
    }  # fmt: skip
    for subdir, found in (("linux-64", packages), ("noarch", {})):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        document = {
            "info": {"subdir": subdir},
            "packages": {},
            "packages.conda": found,
            "repodata_version": 1,
        }
        (folder / subdir / "repodata.json").write_text(json.dumps(document))
    return folder


class OurPackages:
    """Packages of one config that the engine made from emptied recipes, each kind once."""

    def __init__(self, root: Path, config: str, folder: Path) -> None:
        self._root, self._folder = root, folder
        self._config = root / ".ci_support" / f"{config}.yaml"
        self._given = make_channel(folder / "given", (("python", "3.12.1", "0_cpython"),))
        self._made = folder / "made"
        self.pytorch = self._build(root / "recipe" / "recipe.yaml")

    def extension(self, name: str, pin: str) -> Line:
        """Make an extension with a pin on PyTorch, and return its line."""
        (line,) = self._build(
            self._root / "recipe" / "pyg" / name / "recipe.yaml", pyg_torch_pin=[pin], is_python_min=["true"]
        )
        return line

    def path(self, line: Line) -> Path:
        """The package of a line."""
        return self._made / "linux-64" / f"{line.name}-{line.version}-{line.build}.conda"

    def _build(self, recipe: Path, **overrides: Sequence[str]) -> tuple[Line, ...]:
        work = self._folder / "recipes" / recipe.parent.name
        work.mkdir(parents=True, exist_ok=True)
        emptied = YAML(typ="safe").load(recipe.read_text())
        emptied["outputs"] = [_emptied(one) for one in emptied["outputs"] if "package" in one]
        for key in ("about", "extra"):
            emptied.pop(key)
        with (work / "recipe.yaml").open("w") as stream:
            YAML().dump(emptied, stream)
        before = set(self._made.rglob("*.conda"))
        arguments = {
            "recipes": [str(work / "recipe.yaml")],
            "target_platform": "linux-64",
            "variant_config": [str(self._config)],
            "variant_overrides": {
                "python": [PYTHON],
                "is_python_min": ["true"],
                "further_python": ["false"],  # keys of one zip
                **overrides,
            },
            "output_dir": str(self._made),
            "channel": [self._given.as_uri()],
            "test": "skip",
        }
        plain_engine.build(arguments)
        return tuple(_line(path) for path in sorted(set(self._made.rglob("*.conda")) - before))


def _emptied(output: Mapping[str, Any]) -> dict[str, Any]:
    build, needs = output["build"], output.get("requirements", {})
    kept = {
        **{key: _of_family(needs.get(key, [])) for key in ("host", "run", "run_constraints")},
        **{key: needs[key] for key in ("run_exports", "ignore_run_exports") if key in needs},
    }
    settings = {key: build[key] for key in ("number", "string", "skip", "variant") if key in build}
    return {"package": output["package"], "build": {**settings, "script": _SCRIPT}, "requirements": kept}


def _of_family(items: Any) -> list[Any]:
    """Return the requirements on the family and on Python, conditional ones among them."""
    found: list[Any] = []
    for one in items if isinstance(items, list) else [items]:
        if isinstance(one, dict):
            branches = {key: _of_family(one[key]) for key in ("then", "else") if key in one}
            found.append({"if": one["if"], **branches})
        elif one.split()[0] in (*_FAMILY, "python", "__cuda") or one.startswith("${{ pin_"):
            found.append(one)
    return found


def _line(package: Path) -> Line:
    index = IndexJson.from_package_archive(package)
    name, build, version = index.name.source, str(index.build), str(index.version)
    return Line(name, build, index.build_number, index.depends, index.constrains, version)


def solution(specs: Sequence[str], channels: Sequence[Path], *, strict: bool = True) -> dict[str, str]:
    """Solve an environment on a machine with a GPU driver; returns ``channel/build`` by package.

    Raises Exception: There is no solution.
    """
    driver = VirtualPackageOverrides()
    driver.cuda = Override.string("13.0")
    records = asyncio.run(
        solve(
            [Channel(one.as_uri()) for one in channels],
            [*specs, "python 3.12.*"],
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(driver),
            channel_priority=ChannelPriority.Strict if strict else ChannelPriority.Disabled,
        )
    )
    return {
        record.name.source: f"{str(record.channel).rstrip('/').rpartition('/')[2]}/{record.build}"
        for record in records
        if record.name.source != "python"
    }


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return channel(tmp_path_factory.mktemp("theirs") / THEIRS, conda_forge())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> OurPackages:
    return OurPackages(ROOT, "linux_64_cuda130", tmp_path_factory.mktemp("cuda130"))


@pytest.fixture(scope="module")
def scatter(packages: OurPackages) -> Mapping[str, Line]:
    """pytorch_scatter with each pin."""
    return {pin: packages.extension(SCATTER, pin) for pin in ("minor", "exact", "stable")}


# ---- which PyTorch an extension goes with -------------------------------------------------------------------------
def test_pinned_to_a_minor_version_it_is_installed_with_conda_forge_s_pytorch(
    theirs: Path, scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    minor, exact = (channel(tmp_path / pin / "extensions", [scatter[pin]]) for pin in ("minor", "exact"))
    found = solution(["pytorch-gpu", SCATTER], [minor, theirs])
    assert found["pytorch"].startswith(f"{THEIRS}/cuda130_mkl_py312_")
    assert found[SCATTER] == f"extensions/{scatter['minor'].build}"
    with pytest.raises(Exception, match=r"(?s)pytorch_scatter.*pytorch ==2\.13\.0 cuda130_mkl_py312_"):
        solution([SCATTER], [exact, theirs])
    with pytest.raises(Exception, match=r"pytorch_scatter"):
        solution([SCATTER, "pytorch-cpu"], [minor, theirs])  # it is for CUDA


def test_a_minor_version_later_only_what_keeps_to_the_stable_abi_is_installed(
    scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    later = (
        Line("libtorch", "cuda130_mkl_h1_300", 300, version="2.14.1"),
        Line("pytorch", "cuda130_mkl_py312_h1_300", 300, version="2.14.1"),
    )
    found = solution([SCATTER], [channel(tmp_path / "later", (*later, scatter["stable"]))])
    assert found["pytorch"] == "later/cuda130_mkl_py312_h1_300"
    for pin in ("minor", "exact"):
        with pytest.raises(Exception, match=SCATTER):
            solution([SCATTER], [channel(tmp_path / pin, (*later, scatter[pin]))])


def test_a_wheel_of_it_requires_the_torch_that_the_package_does(
    packages: OurPackages, scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    for pin, required in (("minor", "==2.13.0+cu130"), ("exact", "==2.13.0+cu130"), ("stable", ">=2.13.0")):
        folder = tmp_path / pin / "linux_64_cuda130"
        publish(folder, [packages.path(scatter[pin])])
        (wheel,) = built.find(folder, (), ())
        assert (wheel.requires, wheel.python) == ((f"torch{required}",), "3.12")


# ---- who decides where both channels are given ---------------------------------------------------------------------
def test_build_numbers_are_conda_forge_s_for_the_same_version() -> None:
    numbers = {(line.name, line.build.rpartition("_h")[0]): line.number for line in conda_forge()}
    compared = set()
    for name in ("cpu", "cpu_generic", "cuda129", "cuda130", "cuda130_generic"):
        config = load(ROOT, f"linux_64_{name}")
        for package in render(config, ROOT / "recipe" / "recipe.yaml"):
            key = (package.name, package.build_string.rpartition("_h")[0])
            if package.name in ("libtorch", "pytorch") and key in numbers:
                assert package.build_number == numbers[key], package.file_name
                compared.add(key)
    assert len(compared) == 10  # libtorch, and pytorch for one Python, of five configs


@pytest.mark.parametrize("pin", ["minor", "exact"])
def test_with_strict_priority_the_first_channel_decides(
    pin: str, packages: OurPackages, theirs: Path, scatter: Mapping[str, Line], tmp_path: Path
) -> None:
    ours = channel(tmp_path / OURS, (*packages.pytorch, scatter[pin]))
    first = solution(["pytorch", SCATTER], [ours, theirs])
    assert {place.partition("/")[0] for place in first.values()} == {OURS}
    second = solution(["pytorch", SCATTER], [theirs, ours])
    assert {place.partition("/")[0] for place in second.values()} == {THEIRS}


def test_conda_forge_s_libtorch_does_not_get_a_second_linalg_library(
    packages: OurPackages, theirs: Path, tmp_path: Path
) -> None:
    """It has that file itself; ours may be left from before in an environment that changes to theirs."""
    specs = ["libtorch * *_hcf00001_302", "libtorch-cuda-linalg"]
    with pytest.raises(Exception, match="libtorch-cuda-linalg"):
        solution(specs, [channel(tmp_path / OURS, packages.pytorch), theirs], strict=False)
