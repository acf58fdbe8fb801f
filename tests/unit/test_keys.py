"""Every key of a stored result changes with each of its inputs.

A case makes a key by the product's own code, from inputs as the user changes them. For each field of the key it has a
change of these inputs, and two for an input that is empty at first: one key for all that is not empty is not enough. A
field without these changes, or a key without a case, fails here.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from tiny import ROOT

from cmake_python_swap import frozen_settings, python_headers
from conda_wheels import make_wheels
from conda_wheels.built import BuiltPackage
from groundwork import bootstrap, files, in_use
from groundwork.channel import Channel
from groundwork.job_pool import PoolMember
from groundwork.keys import Key
from groundwork.names import PackageId
from megabuild.configs import render
from megabuild.configs.config import load
from megabuild.configs.platforms import Platforms
from megabuild.configs.render import PlannedPackage
from megabuild.engine.supervisor import Place
from megabuild.isolation.base import Host
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine
from megabuild.plan import extensions, fingerprint, last_run, planning, solving
from megabuild.plan.changes import compare
from megabuild.plan.environment_inputs import EnvironmentInputs, Role
from megabuild.plan.extensions import ExtensionInputs, ExtensionPlanner
from megabuild.plan.fingerprint import Fingerprint, OwnTestsInputs, PackageInputs, StagingInputs
from megabuild.plan.kept_channels import KeptIndex
from megabuild.plan.options import Options
from megabuild.plan.plan import PlanItem, Task
from megabuild.plan.recipe_parts import Part, parts
from megabuild.plan.run_choices import PygMode
from megabuild.providers import catalogue, local_channel
from megabuild.providers.debian import cuda, libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import UNPACKED, Foreign
from megabuild.providers.debian.provider import keys_of_root
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.environment import Environment
from megabuild.providers.local import compilers, package_store, placeholder_packages
from megabuild.providers.local import package as local_package
from megabuild.providers.local import python as local_python
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage, LocalPackageInputs
from megabuild.providers.pypi import lock, nvidia, wheel_to_conda
from megabuild.providers.pypi.lock import Lock, Wheel
from megabuild.providers.wheel import torch_wheels
from megabuild.run import store_lookup
from megabuild.run.attempt import Attempt
from megabuild.run.build_output import Culprit
from pin_audit.repositories import Clone, Repository
from pin_audit.sources import channel as channel_source
from pin_audit.sources import pinning, wheel_metadata
from pin_audit.sources.channel import NewestPackages
from pin_audit.sources.pinning import PinningPackage
from pin_audit.sources.wheel_metadata import IndexPage, WheelMetadata
from pyg_extensions import find_wheel
from pyg_extensions.fetch_sources import source_identity
from pyg_extensions.find_wheel import Download
from pyg_extensions.install import installer
from pyg_extensions.install.installation import Mode
from pyg_extensions.install.kept_wheel import CompiledWheel, compiled_wheel
from pyg_extensions.sources import Sources
from pyg_extensions.table import ExtensionRelease, find
from tree_inputs import generators
from tree_inputs.contents import Contents
from tree_inputs.tree import Tree

SOURCES = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Case:
    make: Callable[..., Key]  #: makes the key; without arguments, from unchanged inputs
    #: by field, with a word for further inputs of it (``jobs: by option``): arguments that change it
    changes: Mapping[str, Mapping[str, Any]]


def of_fields(kind: type[Key], **values: tuple[object, object]) -> Case:
    """A key whose fields are filled with inputs as they are: two values of each."""
    first = {name: several[0] for name, several in values.items()}
    changes = {name: {name: several[1]} for name, several in values.items()}
    return Case(lambda **changed: kind(**{**first, **changed}), changes)


PLANNED = PlannedPackage(
    name="a", version="1", build_string="0", build_number=0, file_name="a-1-0.conda", subdir="linux-64", python=None,
    build=("cmake",), host=("fmt",), run=(), constraints=(), test=(), staging_build=("gcc",), staging_host=("zlib",),
)  # fmt: skip


PATCHES = "    source:\n      - path: .\n        patches: [a.patch]\n"


def staging(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    recipe = tmp_path / "recipe" / "recipe.yaml"
    for path in (ROOT / "recipe").rglob("*"):
        if path.is_file():
            write(tmp_path / "recipe" / path.relative_to(ROOT / "recipe"), path.read_bytes())
    named = "      name: tiny-build\n"
    write(recipe, (ROOT / "recipe" / "recipe.yaml").read_text().replace(named, named + PATCHES))
    patch.setattr(solving, "environment", lambda specs, *_: dict.fromkeys(specs, "1 h0"))

    def make(
        *,
        host: bool = True,
        image: str = "image",
        written: Mapping[str, str] | None = None,
        variant: Mapping[str, tuple[str, ...]] | None = None,
        planned: PlannedPackage = PLANNED,
        libpng: str = "1",
        unpacked: str = "libpython3.13_3.13.5-2_arm64.deb libideep-dev_3.7-1_amd64.deb",
        overrides: Mapping[str, tuple[str, ...]] | None = None,
        machine: str = "linux-64",
    ) -> StagingInputs:
        for name, text in {"recipe/patches/base.patch": "1", **(written or {})}.items():
            write(tmp_path / name, text)
        write(tmp_path / "root/var/lib/dpkg/status", f"Package: libpng\nVersion: {libpng}\n")
        write(tmp_path / "root" / UNPACKED, "".join(f"{name}\n" for name in unpacked.split()))
        values = {"torch_source": ("official",), "c_compiler_version": ("14",), **(variant or {})}
        known = load(ROOT.parents[2], "linux_64_cpu")
        config = replace(known, variant=values, zip_keys=(), platform="linux-64", build_platform=machine)
        options = Options(config=config, root=tmp_path, output=tmp_path / "output", cache=tmp_path / "cache")
        write(tmp_path / "source/a.cpp", "int a;") if "source/a.cpp" not in (written or {}) else None
        environment = Environment(
            channels=(Channel.parse("none"),), pythons=(), root=tmp_path / "root", source=tmp_path / "source",
            overrides=overrides or {},
        )  # fmt: skip
        isolation = Host() if host else Container(engine=Engine.PODMAN, image=image)
        part, _ = parts(recipe)
        assert part is not None
        return fingerprint.staging_inputs(part, options, planned, environment, isolation)

    text = recipe.read_text()
    changed = text.replace("build_staging.sh", "build_staging.sh again", 1)
    release = {"recipe/build_staging.sh": 'echo "$torch_version"'}
    longer = text.replace(PATCHES, PATCHES.replace("[a.patch]", "[a.patch, b.patch]"))
    swapped = text.replace(PATCHES, PATCHES.replace("[a.patch]", "[b.patch, a.patch]"))
    assert text not in (changed, longer, swapped)
    return Case(
        make,
        {
            "place": {"host": False},
            "place: another image": {"host": False, "image": "other"},
            "cross_from": {"machine": "linux-aarch64"},
            "cross_from: another": {"machine": "osx-64"},
            "variant": {"variant": {"c_compiler_version": ("15",)}},
            "variant: of the provider": {"overrides": {"c_compiler_version": ("16",)}},
            "variant: a further value": {"variant": {"c_compiler_version": ("14", "15")}},
            "release": {"variant": {"torch_version": ("2.6.0",)}, "written": release},
            "release: another": {"variant": {"torch_version": ("2.6.1",)}, "written": release},
            "pins": {"variant": {"tool": ("1",)}},
            "pins: another": {"variant": {"tool": ("2",)}},
            "build": {"planned": replace(PLANNED, staging_build=("gcc", "ninja"))},
            "host": {"planned": replace(PLANNED, staging_host=("zlib", "fmt"))},
            "required": {"planned": replace(PLANNED, staging_host=("zlib", "png"))},
            "required: in the build environment": {
                "planned": replace(PLANNED, staging_build=("gcc", "make"))
            },
            "system": {"libpng": "2"},
            "unpacked": {"unpacked": "libideep-dev_3.7-2_amd64.deb"},
            "unpacked: a further one": {"unpacked": "libideep-dev_3.7-1_amd64.deb zlib1g-dev_1_amd64.deb"},
            "unpacked: gone": {"unpacked": ""},
            "recipe": {"written": {"recipe/recipe.yaml": changed}},
            "patch_list": {"written": {"recipe/recipe.yaml": longer}},
            "patch_list: in another order": {"written": {"recipe/recipe.yaml": swapped}},
            "scripts": {"written": {"recipe/build_staging.sh": "true"}},
            "patches": {"written": {"recipe/patches/for-all.patch": "x"}},
            "patches: a changed one": {"written": {"recipe/patches/base.patch": "2"}},
            "patches: of the source": {"written": {"recipe/patches/official/one.patch": "x"}},
            "patches: of the source, with the name of another": {
                "written": {"recipe/patches/official/base.patch": "x"}
            },
            "patches: a changed one for all, with this name": {"written": {"recipe/patches/base.patch": "3"}},
            "source_tree": {"written": {"source/a.cpp": "int b;"}},
        },
    )


def test_a_tree_is_resumed_with_other_headers_that_its_root_has_only_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the tree, not a list of a package's files, says which objects read them."""
    case = staging(tmp_path, monkeypatch)
    first = "libpython3.13_3.13.5-2_arm64.deb libideep-dev_3.7-1_amd64.deb"

    def changes(unpacked: str) -> list[tuple[str, Role]]:
        old, new = (cast(StagingInputs, case.make(unpacked=each)).fingerprint for each in (first, unpacked))
        return [(change.phrase, change.role) for change in compare(old, new, EnvironmentInputs())]

    assert changes(first.replace("3.7-1", "3.7-2")) == [("headers libideep-dev changed", Role.SOURCE)]
    assert changes(first.replace("3.13.5-2", "3.13.5-3")) == []  # a package of the channel is made of it


UNSTAGED = Fingerprint()


def package(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    part = Part(text="a", files={"build.sh": "1"})

    def make(
        *, planned: PlannedPackage = PLANNED, part: Part = part, staged: Fingerprint = UNSTAGED
    ) -> PackageInputs:
        return fingerprint.package(planned, part, staged)

    return Case(
        make,
        {
            "text": {"part": replace(part, text="b")},
            "text: its patches": {"part": replace(part, patches="b")},
            "files": {"part": replace(part, files={"build.sh": "2"})},
            "planned": {"planned": replace(PLANNED, run=("numpy",))},
            "staging": {"staged": Fingerprint(source={"recipe": "x"})},
        },
    )


def extension(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    recipe = tmp_path / "pyg" / "pytorch_scatter" / "recipe.yaml"
    options = Options(
        config=load(ROOT.parents[2], "linux_64_cpu"), root=tmp_path, output=tmp_path, cache=tmp_path
    )
    pytorch = PlanItem(package=replace(PLANNED, name="pytorch", python="3.12"), fingerprint="one")

    def make(
        *,
        written: Mapping[str, str] | None = None,
        planned: PlannedPackage = PLANNED,
        second: PlannedPackage = PLANNED,
        torch: str = "one",
        wheel: str = "",
        needs: str = "fmt 12",
    ) -> ExtensionInputs:
        files = {
            "pyg/pytorch_scatter/recipe.yaml": "1", "pyg/pytorch_scatter/tests/run.py": "1", "pyg/common/build.sh": "1",
            "checkout/a.cpp": "1",
        }  # fmt: skip
        for name, text in {**files, **(written or {})}.items():
            write(tmp_path / name, text)
        write(tmp_path / "a.whl", wheel)
        found = Sources(folders={"pytorch_scatter": tmp_path / "checkout"})
        planner = ExtensionPlanner(options=options, reason="", wanted=(), recipes={}, sources=found)
        task = Task(
            extension="pytorch_scatter",
            python="3.12",
            recipe=recipe,
            items=(PlanItem(package=planned), PlanItem(package=second)),
            overrides={"python": ("3.12.* *_cpython",)},
        )
        path = tmp_path / "a.whl" if wheel else None
        return planner.inputs(task, path, [replace(pytorch, fingerprint=torch)], [[needs]])

    return Case(
        make,
        {
            "recipe": {"written": {"pyg/pytorch_scatter/recipe.yaml": "2"}},
            "recipe: its tests": {"written": {"pyg/pytorch_scatter/tests/run.py": "2"}},
            "common": {"written": {"pyg/common/build.sh": "2"}},
            "planned": {"planned": replace(PLANNED, run=("numpy",))},
            "planned: the second of its packages": {"second": replace(PLANNED, run=("numpy",))},
            "torch": {"torch": "another"},
            "wheel": {"wheel": "one"},
            "wheel: of another content": {"wheel": "two"},
            "sources": {"written": {"checkout/a.cpp": "2"}},
            "environments": {"needs": "fmt 13"},
        },
    )


LOCAL = LocalPackage(
    name="a",
    version="1",
    platform="linux-64",
    depends=("b",),
    run_exports={"strong": ("a >=1",)},
    inputs={"c": "1"},
)


def local(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(*, form: int = 1, **changes: Any) -> LocalPackageInputs:
        patch.setattr(local_package, "_FORMAT", form)
        return replace(LOCAL, **changes).all_inputs

    return Case(
        make,
        {
            "format": {"form": 2},
            "package": {"version": "2"},
            "package: its build number": {"build_number": 1},
            "depends": {"depends": ("c",)},
            "constrains": {"constrains": ("c",)},
            "constrains: another version": {"constrains": ("c >=2",)},
            "run_exports": {"run_exports": {"strong": ("a >=2",)}},
            "inputs": {"inputs": {"c": "2"}},
            "content": {"relocate": "/opt"},
        },
    )


def channel(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(*packages: LocalPackage, more: tuple[LocalPackage, ...] = ()) -> Key:
        return package_store._channel_key(
            [replace(LOCAL, build="0"), *(replace(one, build="0") for one in more)]
        )

    changes = {"packages": {"more": (replace(LOCAL, name="b"),)}}
    return Case(
        make, {**changes, "packages: of another platform": {"more": (replace(LOCAL, platform="noarch"),)}}
    )


ARM = Foreign(arch="arm64", native="amd64", triplet="aarch64-linux-gnu")


def debian(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(
        *,
        cuda: bool = False,
        machine: str = "x86_64",
        mirror: str = "deb a",
        foreign: Foreign | None = None,
        **constants: object,
    ) -> Key:
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(debian_root, "apt", SimpleNamespace(debian_lines=lambda *_: [mirror]))
            changed.setattr(debian_root, "platform", SimpleNamespace(machine=lambda: machine))
            for name, value in constants.items():
                changed.setattr(debian_root, name, value)
            return debian_root.root_inputs(cuda=cuda, foreign=foreign)

    return Case(
        make,
        {
            "format": {"_FORMAT": 9},
            "suite": {"SUITE": "forky"},
            "source": {"SOURCE": "other"},
            "machine": {"machine": "aarch64"},
            "machine: with another one's files": {"foreign": ARM},
            "packages": {"cuda": True},
            "mirrors": {"mirror": "deb b"},
        },
    )


def interpreter(**changes: Any) -> Interpreter:
    here = Path("/nowhere")
    values: dict[str, Any] = {"version": "3.12.1", "soabi": "cpython-312-x86_64-linux-gnu", **changes}
    return Interpreter(
        executable=here, prefix=here, stdlib=here, include=here, library_folder=here, multiarch="", free_threaded=False,
        **values,
    )  # fmt: skip


def question(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(
        *,
        form: int = 1,
        python: Interpreter | None = None,
        here: str = "manylinux_2_41_x86_64",
        **changes: Any,
    ) -> Key:
        patch.setattr(lock, "_FORMAT", form)
        patch.setattr(lock, "platform_tags", lambda: iter((here, "linux_x86_64")))
        asked: dict[str, Any] = {"dependencies": True, "more": (), "index": None, **changes}
        return lock.ask(asked.pop("requirements", ("numpy",)), python or interpreter(), **asked)

    return Case(
        make,
        {
            "format": {"form": 2},
            "requirements": {"requirements": ("numpy==2.*",)},
            "python": {"python": interpreter(soabi="cpython-312-aarch64-linux-gnu")},
            "platform": {"here": "manylinux_2_36_x86_64"},
            "platform: of another machine": {"python": interpreter(machine="aarch64")},
            "dependencies": {"dependencies": False},
            "more": {"more": ("https://index.example",)},
            "more: another": {"more": ("https://other.example",)},
            "index": {"index": "https://index.example"},
            "index: another": {"index": "https://other.example"},
        },
    )


BUILT = BuiltPackage(
    project="torch", version="2.6.0", python="3.12", path=Path("torch.conda"), sha256="1", build_string="b",
    accelerator="cpu", official=False, torch="2.6.0",
)  # fmt: skip


def wheel(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(
        *,
        built: BuiltPackage = BUILT,
        form: str = "1",
        programs: Mapping[str, str] | None = None,
        date: int = 0,
        libtorch: str = "2",
        beside: str = "https://channel.example",
        root: str = "1",
    ) -> Key:
        patch.setattr(make_wheels, "_FORMAT", form)
        records = {
            "libtorch-2.6.0-0.conda": SimpleNamespace(sha256="1"),
            "libtorch-cuda-linalg-2.6.0-0.conda": SimpleNamespace(sha256=libtorch),
        }
        channel = SimpleNamespace(
            records=lambda _: records, channels_beside=lambda _: [(Channel.parse(beside),)]
        )
        patch.setattr(make_wheels, "published", channel)
        debian = DebianRoot(path=tmp_path, fingerprint=root, release="13")
        return make_wheels.wheel_inputs(built, debian, tmp_path, programs or {"patchelf": "1"}, date)

    return Case(
        make,
        {
            "format": {"form": "2"},
            "programs": {"programs": {"patchelf": "2"}},
            "date": {"date": 1},
            "date: another": {"date": 2},
            "package": {"built": replace(BUILT, sha256="2")},
            "version": {"built": replace(BUILT, accelerator="cu124")},
            "requires": {"built": replace(BUILT, more=("triton==3",))},
            "requires: another version": {"built": replace(BUILT, more=("triton==4",))},
            "libtorch": {"libtorch": "3"},
            "channels": {"beside": "https://other.example"},
            "root": {"root": "2"},
        },
    )


def compiled(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    values = {
        "torch_version": "2.13.0",
        "python": "3.12",
        "tag": "cpu",
        "platform": "linux-64",
        "glibc": "2.36",
    }

    def make(
        *, archs: tuple[str, ...] = (), source: str = "1", variable: str = "", **changes: str
    ) -> CompiledWheel:
        target = cast(Any, SimpleNamespace(**{**values, **changes}))
        return compiled_wheel(target, archs, source, {"CXX": variable, "EDITOR": "vi"})

    others = {
        "torch_version": "2.13.1",
        "python": "3.12t",
        "tag": "cu130",
        "platform": "linux-64x",
        "glibc": "2.37",
    }
    changes: dict[str, dict[str, Any]] = {name: {name: value} for name, value in others.items()}
    return Case(
        make,
        {
            **changes,
            "archs": {"archs": ("9.0",)},
            "archs: another": {"archs": ("12.0",)},
            "source": {"source": "2"},
            "variables": {"variable": "clang++"},
            "variables: another value": {"variable": "g++-14"},
        },
    )


POOL = PoolMember(folder=Path("/pool"), name="a", share=2, is_fixed=False, most=5, heavy_jobs=0)


def options(**changes: Any) -> Options:
    config = replace(load(ROOT.parents[2], "linux_64_cpu"), **changes.pop("config", {}))
    here = Path("/nowhere")
    return Options(config=config, root=here, output=here, cache=here, **changes)


def objects(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    return Case(
        lambda **changes: last_run.compiled_objects(options(**changes)),
        {
            "provider": {"config": {"provider": "local"}},
            "cross_from": {"config": {"build_platform": "linux-aarch64"}},
            "cross_from: another": {"config": {"build_platform": "osx-arm64"}},
            "optimization": {"optimization": "0"},
            "optimization: the usual one": {"optimization": "2"},
            "arch_list": {"arch_list": "9.0"},
            "arch_list: another": {"arch_list": "12.0"},
            "torch_source": {"torch_source": Path("/one/pytorch")},
            "torch_source: a folder of the same name": {"torch_source": Path("/other/pytorch")},
        },
    )


def duration(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(*, environ: Mapping[str, str] | None = None, **changes: Any) -> Key:
        return last_run.run_duration(options(**changes), environ or {})

    return Case(
        make,
        {
            "pythons": {"pythons": ("3.12",)},
            "pythons: another": {"pythons": ("3.13",)},
            "engine": {"engine": Engine.HOST},
            "engine: another": {"engine": Engine.PODMAN},
            "pyg": {"pyg": PygMode.SOURCE},
            "pyg_index": {"pyg_index": "https://index.example"},
            "pyg_index: another": {"pyg_index": "https://other.example"},
            "pyg_sources": {"pyg_sources": "/one/sources"},
            "pyg_sources: a folder of the same name": {"pyg_sources": "/other/sources"},
            "extensions": {"extensions": ("scatter",)},
            "extensions: another": {"extensions": ("sparse",)},
            "upstream_tests": {"upstream_tests": False},
            "jobs": {"cpu_count": 1},
            "jobs: by CPU_COUNT": {"environ": {"CPU_COUNT": "2"}},
            "jobs: by MAX_JOBS": {"environ": {"MAX_JOBS": "3"}},
            "jobs: of a pool": {"pool": POOL},
            "jobs: of a larger pool": {"pool": replace(POOL, most=6)},
            "memory": {"memory": 1},
            "memory: another": {"memory": 2},
            "object_cache": {"environ": {"TORCH_CCACHE": "none"}},
            "object_cache: another": {"environ": {"TORCH_CCACHE": "sccache"}},
        },
    )


def virtual_environment(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(
        *,
        use: str = "run",
        text: str = "1",
        version: tuple[int, int] = (3, 12),
        machine: str = "x86_64",
        abiflags: str = "",
    ) -> Key:
        write(tmp_path / "lock", text)
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
            changed.setattr(sys, "version_info", (*version, 1, "final", 0))
            changed.setattr(sys, "abiflags", abiflags)
            return bootstrap.virtual_environment(tmp_path / "lock", use)

    return Case(
        make,
        {
            "use": {"use": "dev"},
            "version": {"version": (3, 13)},
            "abi": {"abiflags": "t"},
            "abi: of another machine": {"machine": "aarch64"},
            "lock": {"text": "2"},
        },
    )


def file(**changes: str) -> Any:
    return SimpleNamespace(**{"url": "https://a.example/x.whl", "sha256": "1", "name": "x.whl", **changes})


def download(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    changes = {name: {name: "another"} for name in ("url", "sha256")}
    return Case(lambda **changed: find_wheel.download_key(file(**changed)), changes)


def metadata(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    return Case(
        lambda **changed: wheel_metadata.metadata_key(file(**changed)),
        {
            "file_name": {"name": "y.whl"},
            "content": {"sha256": "2"},
            "content: address": {"sha256": "", "url": "https://b.example/x.whl"},
            "content: another address": {"sha256": "", "url": "https://c.example/x.whl"},
        },
    )


def clone(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    services = cast(Any, SimpleNamespace(folder=tmp_path, offline=False))

    def make(address: str = "https://a.example/x.git", only: str = "v1") -> Key:
        return Repository(address, services, only).clone

    return Case(make, {"address": {"address": "https://b.example/x.git"}, "only": {"only": "v2"}})


def newest(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(
        alias: str = "https://a.example", platform: str = "linux-64", names: tuple[str, ...] = ("fmt",)
    ) -> Key:
        patch.setenv("CONDA_CHANNEL_ALIAS", alias)
        return channel_source.newest_key(platform, names)

    return Case(
        make,
        {
            "channel": {"alias": "https://b.example"},
            "platform": {"platform": "noarch"},
            "names": {"names": ("fmt", "zlib")},
        },
    )


def pins(tmp_path: Path, patch: pytest.MonkeyPatch) -> Case:
    def make(alias: str = "https://a.example", name: str = "pinning") -> Key:
        patch.setenv("CONDA_CHANNEL_ALIAS", alias)
        patch.setattr(pinning, "_PACKAGE", name)
        return pinning.pinning_key()

    return Case(make, {"channel": {"alias": "https://b.example"}, "name": {"name": "other"}})


CASES: Mapping[type[Key], Callable[[Path, pytest.MonkeyPatch], Case]] = {
    StagingInputs: staging,
    PackageInputs: package,
    OwnTestsInputs: lambda *_: of_fields(
        OwnTestsInputs, own=("a", "b"), tested=({"pytorch-1-0.conda": "a"}, {"pytorch-1-0.conda": "b"})
    ),
    ExtensionInputs: extension,
    LocalPackageInputs: local,
    package_store.ChannelKey: channel,
    debian_root.RootInputs: debian,
    lock.Question: question,
    make_wheels.WheelInputs: wheel,
    CompiledWheel: compiled,
    last_run.CompiledObjects: objects,
    last_run.RunDuration: duration,
    bootstrap.VirtualEnvironment: virtual_environment,
    Fingerprint: lambda *_: of_fields(
        Fingerprint,
        compilers=({"a": "1"}, {"a": "2"}),
        pins=({"a": "1"}, {"a": "2"}),
        packages=({"a": "1"}, {"a": "2"}),
        source=({"a": "1"}, {"a": "2"}),
        required=(("a",), ("b",)),
    ),
    KeptIndex: lambda *_: of_fields(
        KeptIndex,
        address=("https://a.example", "https://b.example"),
        documents=({"noarch": {}}, {"linux-64": {}}),
    ),
    Download: download,
    Clone: clone,
    NewestPackages: newest,
    PinningPackage: pins,
    IndexPage: lambda *_: Case(lambda url="a": wheel_metadata.page_key(url), {"url": {"url": "b"}}),
    WheelMetadata: metadata,
}


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field.name) for kind in CASES for field in fields(kind)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_another_input_is_another_key(
    kind: type[Key], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[kind](tmp_path, monkeypatch)
    assert case.make().digest == case.make().digest
    assert field in case.changes, f"tests/unit/test_keys.py: change the input {field} of {kind.__name__}, too"
    changes = {name: arguments for name, arguments in case.changes.items() if name.partition(":")[0] == field}
    made: list[object] = []
    for name, arguments in changes.items():
        before = case.make()  # files of an earlier change stay
        after = case.make(**arguments)
        value = getattr(after, field)
        assert value not in (getattr(before, field), *made), name
        assert after.digest != before.digest
        made.append(value)
        if isinstance(before, StagingInputs) and isinstance(after, StagingInputs):
            assert after.fingerprint.digest != before.fingerprint.digest
    first = getattr(case.make(), field)
    if not first and first is not False:
        assert len(changes) > 1, f"tests/unit/test_keys.py: change the empty input {field} to two values"


def test_every_key_has_a_case() -> None:
    declared = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Key" for base in node.bases):
                declared.add(node.name)
    assert declared == {kind.__name__ for kind in CASES}


def torch_of_an_extension(
    items: Sequence[PlanItem], tmp_path: Path, python: str | None = "3.12"
) -> Mapping[str, str]:
    write(tmp_path / "pyg/pytorch_scatter/recipe.yaml")
    options = Options(
        config=load(ROOT.parents[2], "linux_64_cpu"), root=tmp_path, output=tmp_path, cache=tmp_path
    )
    planner = ExtensionPlanner(options=options, reason="", wanted=(), recipes={}, sources=Sources())
    task = Task(
        extension="pytorch_scatter",
        python=python,
        recipe=tmp_path / "pyg/pytorch_scatter/recipe.yaml",
        items=(),
        overrides={"python": ("3.12.* *_cpython",)},
    )
    return planner.inputs(task, None, items, []).torch


def torch_of_an_extension_for_all_pythons(items: Sequence[PlanItem], tmp_path: Path) -> Mapping[str, str]:
    """It is built with one of them."""
    return torch_of_an_extension(items, tmp_path, python=None)


def torch_of_own_tests(items: Sequence[PlanItem], _: Path) -> Mapping[str, str]:
    return planning._tested(replace(PLANNED, name="pytorch-tests", python="3.12"), items)


@pytest.mark.parametrize(
    "collect",
    [torch_of_an_extension, torch_of_an_extension_for_all_pythons, torch_of_own_tests],
    ids=lambda one: one.__name__,
)
def test_results_for_one_python_depend_on_packages_for_it_and_for_none(
    collect: Callable[[Sequence[PlanItem], Path], Mapping[str, str]], tmp_path: Path
) -> None:
    items = []
    for file_name, python in (("libtorch.conda", None), ("py312.conda", "3.12"), ("py313.conda", "3.13")):
        package = replace(PLANNED, file_name=file_name, python=python)
        items.append(PlanItem(package=package, fingerprint=f"of {file_name}"))
    own_tests = replace(PLANNED, name="pytorch-tests", file_name="tests312.conda", python="3.12")
    items.append(PlanItem(package=own_tests, fingerprint="of a selection of PyTorch's own tests"))
    expected = {"libtorch.conda": "of libtorch.conda", "py312.conda": "of py312.conda"}
    assert collect(items, tmp_path) == expected


#: Modules that hash contents: of files, folders, programs and parts of archives.
CONTENTS = {
    "groundwork/keys.py", "groundwork/bootstrap.py", "groundwork/files.py", "groundwork/in_use.py",
    "groundwork/network/cache.py", "groundwork/network/wheel_contents.py", "groundwork/wheel_file.py",
    "megabuild/configs/config_file.py", "megabuild/engine/reproducible.py", "megabuild/plan/fingerprint.py",
    "megabuild/plan/options.py", "megabuild/providers/debian/root.py", "megabuild/providers/local/compilers.py",
    "megabuild/providers/local/python.py", "megabuild/store/server.py", "pin_audit/sources/pinning.py",
    "pyg_extensions/fetch_sources.py", "pyg_extensions/install/installer.py",
}  # fmt: skip


def test_other_modules_hash_contents_only() -> None:
    hashing = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*.py")
        if "hashlib" in path.read_text() and path.relative_to(SOURCES).parts[0] != "cuda_code"
    }
    assert hashing == CONTENTS, (
        "declare a Key of groundwork/keys.py, or name the module here if it hashes a content"
    )


def test_a_key_refuses_values_whose_text_may_leave_something_out() -> None:
    with pytest.raises(TypeError):
        _ = Download(url=cast(str, Path("a")), sha256="").digest


@pytest.mark.parametrize("field", [field.name for field in fields(LocalPackage)])
def test_a_local_package_with_another_field_is_another_package(field: str) -> None:
    unchanging = {
        "fill": "its inputs say what it writes",
        "size": "for progress only",
        "python": "in the name, the version or the requirements",
        "interpreter": "its Python is in the version or the requirements, and makes the same byte code anywhere",
    }
    changes: dict[str, Any] = {
        "name": "b", "version": "2", "platform": "linux-aarch64", "build": "x_0", "build_number": 1, "noarch": "python",
        "depends": ("c",), "constrains": ("c",), "run_exports": {"weak": ("a",)}, "inputs": {"c": "2"},
        "relocate": "/opt", "relink": True, "site_packages": "lib", "summary": "x", "fill": print, "size": 1,
        "python": "3.12", "interpreter": Path("/usr/bin/python3"),
    }  # fmt: skip
    changed = replace(LOCAL, **{field: changes[field]})
    assert (changed.key == LOCAL.key) == (field in unchanging)


@pytest.mark.parametrize("field", [field.name for field in fields(Options)])
def test_an_option_is_part_of_the_last_runs_key_or_changes_no_time(field: str) -> None:
    unchanging = {
        "output": "a place", "cache": "a place", "environments": "other packages",
        "keep_going": "only after a failure", "deadline": "a limit",
        "earlier": "other configs", "torch": "part of the run's name", "rehearse": "part of the run's name",
        "own": "part of the cache's name", "root": "part of the cache's name", "config": "part of the run's name",
    }  # fmt: skip
    changes: dict[str, Any] = {
        "engine": Engine.HOST, "pythons": ("3.12",), "optimization": "0", "upstream_tests": False, "cpu_count": 3,
        "pyg": PygMode.NONE, "pyg_index": "x", "pyg_sources": "x", "extensions": ("scatter",), "arch_list": "9.0",
        "memory": 1, "torch_source": Path("/source"),
        "pool": POOL,
    }  # fmt: skip
    if field in unchanging:
        return
    before = options()
    after = options(**{field: changes[field]})
    assert last_run._last_run_file(after) != last_run._last_run_file(before)


@pytest.mark.parametrize("name", ["CPU_COUNT", "MAX_JOBS", "TORCH_CCACHE"])
def test_the_last_run_with_other_variables_is_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("CPU_COUNT", "MAX_JOBS", "TORCH_CCACHE"):
        monkeypatch.delenv(each, raising=False)
    files = {last_run._last_run_file(options())}
    for value in ("1", "2"):
        monkeypatch.setenv(name, value)
        files.add(last_run._last_run_file(options()))
    assert len(files) == 3


def test_names_of_runs_and_caches_tell_builds_apart() -> None:
    before = options()
    for changed in (
        options(rehearse=True),
        options(torch="2.14.0"),
        options(config={"name": "linux_64_cuda130"}),
    ):
        assert changed.run_name != before.run_name
        assert changed.cache_name != before.cache_name
        assert last_run._last_run_file(changed) != last_run._last_run_file(before)
    both = options(rehearse=True, torch="2.14.0")
    assert both.run_name not in (options(rehearse=True).run_name, options(torch="2.14.0").run_name)
    assert options(rehearse=True).objects_name != before.objects_name
    foreign = options(own=False)
    elsewhere = replace(foreign, root=Path("/elsewhere/nowhere"))
    assert len({before.cache_name, foreign.cache_name, elsewhere.cache_name}) == 3
    assert len({before.objects_name, foreign.objects_name, elsewhere.objects_name}) == 3
    feedstocks = (before, foreign, elsewhere)
    for kind in ("objects", "unpacked"):
        assert len({name for each in feedstocks for name in getattr(each, f"{kind}_names")}) == 6
    assert len({last_run._last_run_file(each) for each in feedstocks}) == 3


@pytest.mark.parametrize("kind", ["objects", "unpacked"])
def test_builds_on_the_host_share_no_cache_with_isolated_ones(kind: str) -> None:
    folder_of = getattr(options(), f"{kind}_folder")
    on_host, isolated = folder_of(Host()), folder_of(Container(engine=Engine.PODMAN, image="image"))
    assert on_host != isolated == folder_of(Bubblewrap(root=Path("/")))
    assert {on_host.name, isolated.name} == set(getattr(options(), f"{kind}_names"))


def test_a_lock_is_that_of_a_whole_name(tmp_path: Path) -> None:
    """Of an object cache, and of runs of other feedstocks, whose configs may have the same names."""
    names = ["own", "objects/own", "feedstock-01234567/own", "other-01234567/own"]
    for held in names:
        with in_use.shared_lock(tmp_path, held):
            free = []
            for name in names:
                with in_use.exclusive_lock(tmp_path, name) as is_free:
                    free.extend([name] * is_free)
            assert free == [name for name in names if name != held]


@pytest.mark.parametrize(("use", "lock"), [("run", "requirements.lock"), ("dev", "requirements-dev.lock")])
def test_a_private_environment_is_that_of_its_own_lock(
    use: str, lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Path, Path]] = []
    monkeypatch.setattr(bootstrap, "_make", lambda folder, lock, _: made.append((folder, lock)))
    for name in ("requirements.lock", "requirements-dev.lock"):
        write(tmp_path / name, name)
    for text in ("1", "2"):
        write(tmp_path / lock, text)
        bootstrap.ensure(tmp_path, use)
    assert [path for _, path in made] == [tmp_path / lock] * 2
    assert len({folder for folder, _ in made}) == 2
    assert all(folder.name.startswith(f"{use}-") for folder, _ in made)


def test_a_store_tells_builds_apart() -> None:
    plan = cast(Any, SimpleNamespace(options=options(), staging=Fingerprint()))
    other = cast(Any, SimpleNamespace(options=options(), staging=Fingerprint(source={"recipe": "x"})))
    rehearsal = cast(Any, SimpleNamespace(options=options(rehearse=True), staging=Fingerprint()))
    assert len({store_lookup.staging_key(one) for one in (plan, other, rehearsal)}) == 3
    item = PlanItem(package=PLANNED, fingerprint="1")
    renamed = replace(item, package=replace(PLANNED, file_name="b-1-0.conda"))
    keys = [
        store_lookup.package_key(options(), one) for one in (item, replace(item, fingerprint="2"), renamed)
    ]
    others = [options(rehearse=True)]
    others += [replace(options(), own=False, root=Path(root)) for root in ("/a/feedstock", "/a/other")]
    others += [replace(options(rehearse=True), own=False, root=Path("/a/other"))]
    keys += [store_lookup.package_key(one, item) for one in others]
    assert len({*keys}) == 7


def test_wheels_of_pytorch_have_a_folder_for_each_version_and_accelerator() -> None:
    config = load(ROOT.parents[2], "linux_64_cpu_wheel")
    others = [replace(config, torch_version="2.0.0"), load(ROOT.parents[2], "linux_64_cuda132_wheel")]
    others += [replace(others[1], torch_version="2.0.0")]
    assert len({torch_wheels.folder(one, Path("/cache")) for one in (config, *others)}) == 4


def test_a_wheel_of_pytorch_takes_the_place_of_another_one_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index may have a wheel built again under the same name."""
    monkeypatch.setattr(torch_wheels.download, "download", lambda *_, **__: None)  # type: ignore[attr-defined]
    config = load(ROOT.parents[2], "linux_64_cpu_wheel")
    for digit in ("1", "2"):
        wheel = replace(WHEEL, sha256=digit * 64)
        write(wheel.path(tmp_path / "wheels"), digit)
        wheels = torch_wheels.TorchWheels(locks={"3.12": replace(LOCK, wheels=(wheel,))}, left_out={})
        torch_wheels.fetch(config, wheels, ["3.12"], cache=tmp_path, report=lambda _: None)
        (linked,) = torch_wheels.folder(config, tmp_path).rglob("*.whl")
        assert linked.read_text() == digit


def test_wheels_of_pytorch_are_downloaded_for_each_python_from_where_they_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[str], Sequence[str]]] = []

    def download(wheels: list[Wheel], folder: Path, _: object, *, more: Sequence[str]) -> None:
        asked.append(([wheel.sha256 for wheel in wheels], more))
        for wheel in wheels:
            write(wheel.path(folder), wheel.sha256)

    monkeypatch.setattr(torch_wheels.download, "download", download)  # type: ignore[attr-defined]
    config = load(ROOT.parents[2], "linux_64_cpu_wheel")
    digests = {"3.11": "1" * 64, "3.12": "2" * 64, "3.13": "3" * 64}
    locks = {
        python: replace(LOCK, wheels=(replace(WHEEL, sha256=digest),)) for python, digest in digests.items()
    }
    wheels = torch_wheels.TorchWheels(locks=locks, left_out={}, more=("upstream",))
    torch_wheels.fetch(config, wheels, ["3.11", "3.13"], cache=tmp_path, report=lambda _: None)
    assert asked == [([digests["3.11"], digests["3.13"]], ("upstream",))]
    linked = torch_wheels.folder(config, tmp_path).rglob("*.whl")
    assert {path.parent.name: path.read_text() for path in linked} == {
        python: digests[python] for python in ("3.11", "3.13")
    }


@pytest.mark.parametrize(("local", "is_found"), [("cu130", True), ("cu126", False), ("cpu", False)])
def test_a_wheel_of_pytorch_for_another_cuda_is_not_taken(
    local: str, is_found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(LOCK, wheels=(replace(WHEEL, name="torch", version=f"2.13.0+{local}"),))
    monkeypatch.setattr(torch_wheels.locking, "resolve", lambda *_, **__: found)  # type: ignore[attr-defined]
    config = load(ROOT.parents[2], "linux_64_cuda130_wheel")
    answer = torch_wheels._find_lock(config, interpreter(), tmp_path, None)
    assert (answer is found) == is_found


def test_wheels_of_several_pythons_are_those_of_their_content() -> None:
    rebuilt = replace(WHEEL, sha256="2" * 64)
    locks = [replace(LOCK, wheels=(WHEEL,)), replace(LOCK, wheels=(WHEEL, rebuilt))]
    assert lock.wheels_of(locks) == [WHEEL, rebuilt]


def test_a_channel_of_two_platforms_has_packages_of_one_name_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(_: object, side: local_channel.Side, **__: object) -> Any:
        made = replace(LOCAL, build="0", platform=side.platform)
        return SimpleNamespace(packages=[made], wheels=[], stand_ins=set(), by_name=())

    monkeypatch.setattr(local_channel, "_describe", describe)
    platforms = ("linux-aarch64", "linux-64")
    request = SimpleNamespace(
        cache=tmp_path, config=SimpleNamespace(platforms=SimpleNamespace(subdirs=platforms))
    )
    sides = [SimpleNamespace(platform=platform, toolchain=f"of {platform}") for platform in platforms]
    made = local_channel.make_of_sides(cast(Any, request), cast(Any, sides), survey=True)
    assert cast(Any, made.toolchain) == "of linux-64", "the side that compiles comes last"
    assert [package.platform for package in made.packages] == [*platforms]
    assert [package.platform for package in made.missing] == [*platforms]
    assert not made.ready


def test_trees_in_different_places_are_different() -> None:
    """Objects contain paths; compilers and libraries may be those of the image."""
    places = [
        Host().place("/a"), Host().place("/b"), Bubblewrap(root=Path("/")).place("/a"),
        Container(engine=Engine.PODMAN, image="one").place("/a"),
        Container(engine=Engine.PODMAN, image="two").place("/a"),
    ]  # fmt: skip
    assert len({*places}) == len(places)


LOCK = Lock(python="3.12", environment={}, wheels=())
WHEEL = Wheel(
    name="six", version="1", file_name="six-1-py3-none-any.whl", sha256="1" * 64, requires=(), requires_python=""
)  # fmt: skip


def of_wheel(sha256: str = "1" * 64) -> LocalPackage:
    locks = [replace(LOCK, wheels=(replace(WHEEL, sha256=sha256),))]
    return wheel_to_conda.packages(locks, Path("/nowhere"), catalogue.load(), "linux-64")[0]


def of_nvidia(sha256: str = "1" * 64, members: tuple[str, ...] = ("nvidia/lib/a.so",)) -> LocalPackage:
    entry = catalogue.NvidiaWheel(run="libx", dev="")
    wheel = replace(WHEEL, sha256=sha256)
    made = nvidia.WheelPackages(wheel, Path("/nowhere"), entry, ("cuda-version 13.*",), "linux-64")
    return made.describe(members)[0]


def of_debian(fingerprint: str = "1", glibc: str = "2.41") -> LocalPackage:
    return libraries.package(
        DebianRoot(path=Path("/r"), fingerprint=fingerprint, release="13"), glibc, "linux-64"
    )


def of_nvcc(version: str = "12.4.1", root: str = "1", flags: str = "-a") -> LocalPackage:
    return compilers.nvcc(version, "12.4", "linux-64", {"NVCC_PREPEND_FLAGS": flags}, (), root)


def of_cuda(
    fingerprint: str = "1", sonames: tuple[str, ...] = ("libcublas.so.12",), version: str = "12.4.5"
) -> LocalPackage:
    """A package of some libraries of a root."""
    contents = libraries.Libraries(
        available={name: libraries.LibraryFile(Path("/r", name), "libcublas12") for name in sonames},
        needed={name: set() for name in sonames},
        installed={"libcublas12": libraries.InstalledPackage(version=version, priority="", depends="")},
    )
    describer = cuda._Describer(
        root=DebianRoot(path=Path("/r"), fingerprint=fingerprint, release="13"), contents=contents,
        conda_of=dict.fromkeys(sonames, "libcublas"), common=frozenset(), cuda="12.4", platform="linux-64",
    )  # fmt: skip
    return describer.runtime("libcublas", ["libcublas12"])


def test_a_plan_reads_the_packages_of_a_root_one_by_one_and_not_in_each_package_made_of_it() -> None:
    keys = keys_of_root([of_debian(), of_nvcc(), of_cuda(), of_wheel()])
    assert set(keys) == {libraries.NAME, "cuda-nvcc_linux-64", "libcublas"}
    assert keys_of_root([of_debian("2"), of_nvcc(root="2"), of_cuda("2")]) == keys
    assert keys_of_root([of_debian("2", glibc="2.36"), of_nvcc(root="2"), of_cuda("2")]) != keys
    assert keys_of_root([of_debian(), of_nvcc(flags="-b"), of_cuda()]) != keys
    assert keys_of_root([of_debian(), of_nvcc(), of_cuda(sonames=("libcublas.so.12", "libx.so.1"))]) != keys


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (of_wheel, {"sha256": "2" * 64}),
        (of_nvidia, {"sha256": "2" * 64}),
        (of_nvidia, {"members": ("nvidia/lib/b.so",)}),
        (of_debian, {"fingerprint": "2"}),
        (of_debian, {"glibc": "2.36"}),
        (of_nvcc, {"version": "12.4.2"}),
        (of_nvcc, {"root": "2"}),
        (of_nvcc, {"flags": "-b"}),
        (of_cuda, {"fingerprint": "2"}),
        (of_cuda, {"sonames": ("libcublas.so.12", "libcublasLt.so.12")}),
        (of_cuda, {"version": "12.4.6"}),
    ],
)
def test_a_local_package_of_another_source_is_another(
    make: Callable[..., LocalPackage], changes: Mapping[str, Any]
) -> None:
    assert make().key == make().key != make(**changes).key


@pytest.mark.parametrize(
    "changed", ["cc", "cxx", "cc1", "cc1plus", "as", "ld", "libgcc", "libgomp", "libstdcxx"]
)
def test_compilers_with_another_part_are_others(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ["cc", "cxx", "cc1", "cc1plus", "as", "ld"]
    names = [
        *(f"part:{name}" for name in parts),
        *(f"lib:{name}" for name in ("libgcc", "libgomp", "libstdcxx")),
    ]
    lines = [f"{name}=/{name.replace(':', '-')}" for name in names]
    lines += ["cc=/part-cc", "cxx=/part-cxx", "version=14.2.0", "cxx_version=14.2.0", "glibc=glibc 2.41"]
    lines += [f"program:{name}=" for name in compilers._PROGRAMS.values()]
    monkeypatch.setattr(compilers, "run", lambda *_, **__: "\n".join(lines))
    for name in names:
        write(tmp_path / name.replace(":", "-"), name)
    before = compilers.probe(root=tmp_path).digest
    (path,) = (tmp_path / name.replace(":", "-") for name in names if name.partition(":")[2] == changed)
    path.write_text("changed")
    assert compilers.probe(root=tmp_path).digest != before


@pytest.mark.parametrize("change", ["content", "date", "name", "further file", "folder"])
def test_a_changed_interpreter_is_another_package(change: str, tmp_path: Path) -> None:
    library = tmp_path / "lib" / "python3.12"
    write(library / "os.py", "1")
    os.utime(library / "os.py", (1, 1))
    for name in ("include", "include2"):
        (tmp_path / name).mkdir()
    made = replace(
        interpreter(), prefix=tmp_path, stdlib=library, include=tmp_path / "include", library_folder=tmp_path
    )
    before = local_python._signature(made)
    assert local_python._signature(made) == before
    match change:
        case "content":  # of the same date
            (library / "os.py").write_text("12")
            os.utime(library / "os.py", (1, 1))
        case "date":
            os.utime(library / "os.py", (2, 2))
        case "name":
            (library / "os.py").rename(library / "oz.py")
        case "further file":
            write(library / "json" / "a.py", "1")
        case _:
            made = replace(made, include=tmp_path / "include2")
    assert local_python._signature(made) != before


@pytest.mark.parametrize(
    "inside",
    [
        "stdlib/os.py", "include/Python.h", "multiarch/libpython3.12.so.1.0", "lib/libpython3.12.so",
        "lib/libpython3.so", "lib/pkgconfig/python-3.12.pc", "bin/python3.12", "bin/python3.12-config",
    ],
)  # fmt: skip
def test_each_file_of_a_python_is_an_input_of_its_package(inside: str, tmp_path: Path) -> None:
    """Of the one that is packed, which may be for another machine than the one that runs here."""
    packed, running = (
        replace(
            interpreter(), prefix=folder, stdlib=folder / "stdlib", include=folder / "include",
            library_folder=folder / "multiarch", executable=folder / "bin/python3",
        )
        for folder in (tmp_path / "packed", tmp_path / "running")
    )  # fmt: skip
    for python in (packed, running):
        write(python.stdlib / "site.py", "")
        write(python.include / "pyconfig.h", "")

    def key() -> str:
        return local_python.packages(packed, "linux-64", running)[0].key

    before = key()
    write(running.prefix / inside, "")
    assert key() == before
    write(packed.prefix / inside, "")
    assert key() != before


def test_packages_of_wheels_are_made_for_each_python_that_has_the_wheel() -> None:
    """Pythons may have wheels of several versions of a project; each version has its other names."""
    table = catalogue.load()
    older = replace(WHEEL, name="msgpack", file_name="msgpack-1-py3-none-any.whl")
    newer = replace(older, version="2", file_name="msgpack-2-py3-none-any.whl", sha256="2" * 64)
    locks = [replace(LOCK, python="3.12", wheels=(older,)), replace(LOCK, python="3.13", wheels=(newer,))]
    made = wheel_to_conda.packages(locks, Path("/nowhere"), table, "linux-64")
    assert {(package.python, package.version) for package in made} == {("3.12", "1"), ("3.13", "2")}
    named = SimpleNamespace(pypi_name=lambda _: "msgpack", conda_name=lambda _: made[0].name)
    others = wheel_to_conda.other_names(made, ["other"], cast(Any, named), "linux-64")
    assert {(package.name, package.version) for package in others} == {("other", "1"), ("other", "2")}


#: Of GCC, of nvcc, of PyTorch's and upstream's setup.py, and of CMake.
COMPILERS_VARIABLES = (
    "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS",
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX",
    "NVCC_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDAFLAGS", "CUDAHOSTCXX",
    "PYTORCH_NVCC", "DEBUG", "REL_WITH_DEB_INFO", "USE_MKL_BLAS",
    "EXTERNAL_CUTLASS_INCLUDE_DIR", "EXTERNAL_PHMAP_INCLUDE_DIR", "CMAKE_INCLUDE_PATH", "CMAKE_LIBRARY_PATH",
    "FORCE_CUDA", "FORCE_ONLY_CPU", "FORCE_ONLY_CUDA", "WITH_METIS", "WITH_MTMETIS", "WITH_SYMBOLS", "SUFFIX",
    "CMAKE_ARGS", "CMAKE_PREFIX_PATH", "CMAKE_TOOLCHAIN_FILE",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPILERS_VARIABLES)
def test_a_wheel_compiled_with_another_variable_is_another(name: str) -> None:
    values = ("torch_version", "python", "tag", "platform", "glibc")
    target = cast(Any, SimpleNamespace(**dict.fromkeys(values, "1")))
    keys = {
        compiled_wheel(target, (), "1", {name: value} if value else {}).digest for value in ("", "a", "b")
    }
    assert len(keys) == 3


@pytest.mark.parametrize("change", ["content", "name", "folder", "further file", "archive"])
def test_other_sources_of_an_extension_are_others(change: str, tmp_path: Path) -> None:
    scatter = find("scatter")
    release = ExtensionRelease(name="torch_scatter", version="2.1.2", sha256="1")
    checkout = tmp_path / "pytorch_scatter"
    for name in ("setup.py", "csrc/a.cpp", "csrc/b.cpp"):
        write(checkout / name, name)
    before = source_identity(scatter, release, tmp_path)
    for name in (".git/index", "build/a.o", "dist/a.whl"):  # not compiled, or not copied
        write(checkout / name, change)
    assert source_identity(scatter, release, tmp_path) == before
    match change:
        case "content":
            dated = (checkout / "csrc/a.cpp").stat().st_mtime_ns
            write(checkout / "csrc/a.cpp", "csrc/z.cpp")  # the size stays
            os.utime(checkout / "csrc/a.cpp", ns=(dated, dated))
        case "name":
            (checkout / "csrc/b.cpp").rename(checkout / "csrc/c.cpp")
        case "folder":
            (checkout / "csrc/cpu").mkdir()
            (checkout / "csrc/b.cpp").rename(checkout / "csrc/cpu/b.cpp")  # the order of the files stays
        case "further file":
            write(checkout / "csrc/c.cpp", "")
        case _:
            write(tmp_path / release.archive, "archive")
            without = before
            before = source_identity(scatter, release, tmp_path)
            write(tmp_path / release.archive, "another")
            assert without not in (before, source_identity(scatter, release, tmp_path))
    assert source_identity(scatter, release, tmp_path) != before
    assert source_identity(scatter, release, None) != source_identity(
        scatter, replace(release, sha256="2"), None
    )


def test_sources_without_an_archive_are_those_of_the_repository_and_version() -> None:
    names = ("torch_scatter", "torch_sparse")
    extensions = [find(name) for name in names]
    releases = [ExtensionRelease(name="torch_scatter", version=version) for version in ("1", "2")]
    found = {source_identity(extension, release, None) for extension in extensions for release in releases}
    assert len(found) == len(extensions) * len(releases)


@pytest.mark.parametrize("field", [field.name for field in fields(PlannedPackage)])
def test_a_planned_package_with_another_field_has_other_facts(field: str) -> None:
    unchanging = {
        "staging": "the name of the output; its digest is an input of its own",
        "names_channels": "whether the build string has a hash over the channels",
    }
    value = getattr(PLANNED, field)
    other: Any = "x"
    if isinstance(value, tuple):
        other = ("x",)
    elif isinstance(value, (bool, int)):
        other = value + 1
    changed = replace(PLANNED, **{field: other})
    assert (changed.facts == PLANNED.facts) == (field in unchanging)


@pytest.mark.parametrize("kind", ["build", "host", "run", "test"])
def test_what_a_package_is_compiled_with_is_an_input(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which it is only run or tested must be solvable, but changes nothing in it."""

    def inputs(version: str) -> list[str]:
        solved = {spec: version if spec == f"{kind}-tool" else "1" for spec in specs}
        monkeypatch.setattr(
            solving, "environment", lambda wanted, *_: {spec: solved[spec] for spec in wanted}
        )
        given = Environment(channels=(Channel.parse("none"),), pythons=())
        return solving.Solver(given, Platforms.native("linux-64"), own=()).built_with(made)

    specs = ["build-tool", "host-tool", "run-tool", "test-tool"]
    made = replace(
        PLANNED, build=("build-tool",), host=("host-tool",), run=("run-tool",), test=("test-tool",)
    )
    assert (inputs("1") != inputs("2")) == (kind in ("build", "host"))


@pytest.mark.parametrize("changed", ["version", "build", "sha256", "inputs"])
def test_another_build_of_a_needed_package_is_another_input(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"version": "1", "build": "h1_0", "sha256": b"1" * 32, "inputs": ""}

    def solved() -> dict[str, str]:
        channel = Channel.of_folder(tmp_path)
        place = {"channel": f"{channel.url}/", "subdir": "linux-64", "file_name": "fmt.conda"}
        record = SimpleNamespace(name=SimpleNamespace(source="fmt"), **place, **values)
        monkeypatch.setattr(solving, "solved", lambda *_, **__: [record])
        made = {"linux-64/fmt.conda": values["inputs"]} if values["inputs"] else {}
        monkeypatch.setattr(solving, "package_keys", lambda _: made)
        return solving.environment(("fmt",), Environment(channels=(channel,), pythons=()), "linux-64", "x")

    before = solved()
    values[changed] = b"2" * 32 if changed == "sha256" else "2"
    assert solved() != before


@pytest.mark.parametrize("number", range(3))
def test_a_package_of_any_channel_in_a_folder_is_known_by_its_inputs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may be packed again; channels may have packages of one name."""
    channels = [Channel.of_folder(tmp_path / str(place)) for place in range(3)]
    place = {"channel": f"{channels[number].url}/", "subdir": "noarch", "file_name": "fmt.conda"}
    record = SimpleNamespace(
        name=SimpleNamespace(source="fmt"), version="1", build="h1", sha256=b"1" * 32, **place
    )
    monkeypatch.setattr(solving, "solved", lambda *_, **__: [record])
    monkeypatch.setattr(solving, "package_keys", lambda folder: {"noarch/fmt.conda": f"key{folder.name}"})
    given = Environment(channels=tuple(channels), pythons=())
    assert solving.environment(("fmt",), given, "linux-64", "x") == {"fmt": f"1 h1 key{number}"}


def test_wheels_of_one_name_have_a_place_each() -> None:
    assert WHEEL.path(Path("/w")) != replace(WHEEL, sha256="2" * 64).path(Path("/w"))


def test_a_stand_in_that_is_compiled_follows_the_compiler() -> None:
    def key(digest: str) -> str:
        made = compilers.Toolchain(
            cc="", cxx="", version="14", glibc="2.41", programs={}, libraries={}, digest=digest
        )
        return placeholder_packages._stand_in(PackageId("libmagma", "2.9", "x"), made, "linux-64").key

    assert key("1") != key("2")


@pytest.mark.parametrize(
    ("old", "new"),
    [("14", "15"), ("-DX", "-DY"), ("fmt", "zlib"), ("echo", "true"), ("a1", "a2")],
    ids=["a value of the context", "a value in a value", "a requirement", "a script", "a common source"],
)
def test_a_changed_recipe_changes_its_staging(old: str, new: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    text = """
        context: {number: 14, unused: 1, flags: -DX, words: "${{ flags }} -O2"}
        source: {url: "https://site.invalid/b.tar.gz", sha256: a1}
        outputs:
          - staging: {name: torch-staging}
            build: {number: "${{ number }}", script: 'echo "${{ words }}"'}
            requirements: {host: [fmt]}
    """
    write(recipe, text)
    before = parts(recipe)[0]
    write(recipe, text.replace("unused: 1", "unused: 2"))
    assert parts(recipe)[0] == before
    assert old in text
    write(recipe, text.replace(old, new))
    assert parts(recipe)[0] != before


def test_a_value_counts_where_an_expression_uses_it_and_not_where_a_word_equals_its_name(
    tmp_path: Path,
) -> None:
    recipe = tmp_path / "recipe.yaml"
    text = """
        context: {build: 1, script: 2, host: 3, kind: 4, os: 5, joined: 6}
        build: {number: "${{ build }}"}
        outputs:
          - staging: {name: torch-staging}
            build: {script: "echo build host ${{ kind }}", skip: [os == 1]}
            requirements: {host: [{if: joined == 1 and kind == "script", then: "script"}]}
          - package: {name: torch}
            inherit: torch-staging
    """
    write(recipe, text)
    staging, packages = parts(recipe)
    used = {
        "build": False, "script": False, "host": False, "kind": True, "os": True, "joined": True,
    }  # fmt: skip
    for number, (name, is_used) in enumerate(used.items(), start=1):
        write(recipe, text.replace(f"{name}: {number}", f"{name}: 9"))
        changed, others = parts(recipe)
        assert (changed != staging) == is_used, name
        assert (others != packages) == (name == "build"), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("number: 1", "number: 2"),
        ("sha256: a1", "sha256: a2"),
        ("patches: [p]", "patches: [q]"),
        ("license: MIT", "license: BSD"),
    ],
)
def test_a_section_of_the_top_level_counts_for_each_package(old: str, new: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    text = """
        build: {number: 1}
        source: {url: "https://site.invalid/a.tar.gz", sha256: a1, patches: [p]}
        about: {license: MIT}
        outputs:
          - package: {name: one}
          - package: {name: two}
    """
    write(recipe, text)
    _, before = parts(recipe)
    assert old in text
    write(recipe, text.replace(old, new))
    _, after = parts(recipe)
    assert [name for name in before if after[name] == before[name]] == []


def test_a_value_that_only_chooses_packages_is_a_pin() -> None:
    top = ROOT.parents[2] / "recipe"
    staging, _ = parts(top / "recipe.yaml")
    assert staging is not None
    config = load(ROOT.parents[2], "linux_64_cuda130")
    keys = staging.variant_keys(config.variant, top)
    pins = staging.pins(keys, top)
    assert {"libprotobuf", "libabseil", "zlib", "nccl", "fmt", "mkl"} <= pins, "not a word of an expression"
    assert {"blas_impl", "provider", "torch_version", "torch_source", "torch_optimization", "c_compiler",
            "cxx_compiler_version", "c_stdlib_version", "cuda_compiler_version", "target_platform",
            "torch_cuda_arch_list_cuda130", "torch_python_base"} & {*keys} & pins == set()  # fmt: skip


def test_a_value_that_only_a_script_names_is_an_input_of_its_part(tmp_path: Path) -> None:
    write(tmp_path / "build.sh", 'echo "$named_in_the_script"')
    part = Part(text="$named_in_the_text", files={"build.sh": "1"})
    keys = dict.fromkeys(("named_in_the_script", "named_in_the_text", "named_nowhere", "c_compiler"), "1")
    assert part.variant_keys(keys, tmp_path) == ["c_compiler", "named_in_the_script", "named_in_the_text"]


@pytest.mark.parametrize("changed", ["installed", "sources", "unpacked", "only unpacked now"])
def test_a_debian_root_with_other_packages_is_another(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another processor, packages are also unpacked without being installed."""
    version = "1"

    def query(words: list[str], **_: object) -> str:
        """Answers as dpkg-query does."""
        shown = words[-1].partition("=")[2]
        return shown.replace("${binary:Package}", "gcc").replace("${Version}", version)

    monkeypatch.setattr(debian_root, "run", query)
    write(tmp_path / "etc/debian_version", "13.1\n")
    sums = write(tmp_path / debian_root.SOURCE_FOLDER / "SHA256SUMS", "a  torch.tar\n")
    if changed != "only unpacked now":
        write(tmp_path / UNPACKED, "python3.13_3.13.5-2_arm64.deb\n")
    record = debian_root._describe(tmp_path)
    assert record == debian_root._describe(tmp_path)
    former = record["fingerprint"]
    assert record == {"fingerprint": former, "release": "13.1"}
    match changed:
        case "installed":
            version = "2"
        case "sources":
            sums.write_text("b  torch.tar\n")
        case _:
            write(tmp_path / UNPACKED, "python3.13_3.13.5-3_arm64.deb\n")
    assert debian_root._describe(tmp_path)["fingerprint"] != former


@pytest.mark.parametrize("changed", ["content", "place", "version"])
def test_another_program_of_this_machine_is_another_package(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launcher(place: str, content: str, version: str) -> str:
        path = write(tmp_path / place / "ninja", content)
        answer = SimpleNamespace(stdout=f"ninja {version}", stderr="")
        monkeypatch.setattr(local_channel, "run", lambda *_, **__: answer)
        return local_channel._launcher_package("ninja", str(path), "linux-64").key

    former = launcher("bin", "1", "1.12")
    assert former == launcher("bin", "1", "1.12")
    others = {
        "content": launcher("bin", "2", "1.12"),
        "place": launcher("local/bin", "1", "1.12"),
        "version": launcher("bin", "1", "1.13"),
    }
    assert others[changed] != former


@pytest.mark.parametrize("kind", ["include", "numpy_include", "pybind11_include"])
@pytest.mark.parametrize("change", ["content", "name", "further file", "gone"])
def test_changed_headers_of_a_python_are_noticed(change: str, kind: str, tmp_path: Path) -> None:
    """The Python side is compiled again then."""
    for name in ("include", "numpy_include", "pybind11_include"):
        write(tmp_path / name / "a.h", "0")
        write(tmp_path / name / "below/a.h", "1")
    folders = {name: str(tmp_path / name) for name in ("include", "numpy_include", "pybind11_include")}
    facts = cast(Any, SimpleNamespace(**folders))
    python_headers.record(tmp_path, facts)
    assert not python_headers.changed(tmp_path, facts)
    header = tmp_path / kind / "below/a.h"
    if change == "content":
        header.write_text("2")
    elif change == "name":
        header.rename(header.with_name("b.h"))
    elif change == "further file":
        write(tmp_path / kind / "b.h")
    else:
        header.unlink()
    assert python_headers.changed(tmp_path, facts)


def test_headers_in_other_folders_change_command_lines_instead(tmp_path: Path) -> None:
    """ninja then compiles the objects again itself."""

    def facts(python: str) -> Any:
        write(tmp_path / python / "a.h", python)
        return SimpleNamespace(include=str(tmp_path / python), numpy_include="", pybind11_include="")

    python_headers.record(tmp_path, facts("python3.12"))
    assert not python_headers.changed(tmp_path, facts("python3.13"))


@pytest.mark.parametrize(
    ("changed", "is_part"),
    [
        ("bin/python3", True),
        ("lib/libpython3.so", True),
        ("lib/python3/os.py", True),
        ("site/yaml/__init__.py", True),
        ("site/yaml/reader.py", True),
        ("site/torchgen.py", True),
        ("site/idna.py", False),
        ("tree/generate.py", False),  # ninja notices it
    ],
)
def test_a_generator_with_another_part_is_another(
    changed: str, is_part: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {
        "tree/generate.py": "import yaml", "site/yaml/__init__.py": "from . import reader", "site/yaml/reader.py": "",
        "site/torchgen.py": "", "site/idna.py": "", "lib/python3/os.py": "", "lib/libpython3.so": "",
        "bin/python3": "",
    }  # fmt: skip
    for name, text in contents.items():
        write(tmp_path / name, text)
    library = str(tmp_path / "lib/python3")
    monkeypatch.setattr(generators, "_ask", lambda _: [library, library, str(tmp_path / "site")])
    monkeypatch.setattr(generators, "libraries_of", lambda _: [str(tmp_path / "lib/libpython3.so")])
    tree = Tree(
        build=str(tmp_path / "tree/build"), root=str(tmp_path / "tree"), cache={}, graph=cast(Any, None)
    )
    python = str(tmp_path / "bin/python3")
    scripts = [[python, "../generate.py", "-o", "made.h"], [python, "-m", "torchgen"]]
    before = generators.digest(tree, python, scripts, Contents())
    assert generators.digest(tree, python, scripts, Contents()) == before
    write(tmp_path / changed, f"{contents[changed]}\n# changed")
    assert (generators.digest(tree, python, scripts, Contents()) != before) == is_part


@pytest.mark.parametrize("change", ["hash", "size", "date"])
def test_a_note_of_a_checked_file_is_of_its_hash_size_and_date(change: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.whl", "1")
    digest = files.sha256(path)
    assert files.verified(path, digest)
    status = path.stat()
    if change == "hash":
        assert not files.verified(path, "0" * 64)
        return
    path.write_text("2" if change == "date" else "22")
    if change == "size":
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert not files.verified(path, digest)


def test_each_output_folder_has_a_note_of_its_own(tmp_path: Path) -> None:
    """Else clean would remove the channels that packages of the other one need."""
    folders = {tmp_path / "a/output", tmp_path / "b/output"}
    for folder in folders:
        in_use.note_output(tmp_path / "cache", folder)
    assert set(in_use.outputs(tmp_path / "cache")) == folders


def test_a_root_with_another_version_for_either_processor_is_another(tmp_path: Path) -> None:
    """A root for cross builds has both; a package that was removed keeps its entry."""

    def versions(*listed: tuple[str, str], status: str = "install ok installed") -> Mapping[str, str]:
        paragraphs = []
        for version, arch in listed:
            lines = ("Package: libpng", f"Status: {status}", f"Version: {version}", f"Architecture: {arch}")
            paragraphs.append("\n".join(lines))
        write(tmp_path / "var/lib/dpkg/status", "\n\n".join(paragraphs) + "\n")
        return fingerprint._system_packages(tmp_path)

    found = [
        versions(("1", "amd64"), ("1", "arm64")), versions(("2", "amd64"), ("1", "arm64")),
        versions(("1", "amd64"), ("2", "arm64")), versions(("1", "amd64")), versions(("1", "arm64")),
        versions(("1", "amd64"), status="deinstall ok config-files"),
    ]  # fmt: skip
    assert len({*map(repr, found)}) == len(found)
    assert found[-1] == {}


def test_an_extension_waits_for_those_of_its_python_and_of_all() -> None:
    tasks = []
    for name, python, needs in (
        ("scatter", "3.12", ()), ("scatter", "3.13", ()), ("lib", None, ()), ("sparse", "3.12", ("scatter", "lib >=1")),
        ("sparse", "3.13", ("scatter", "lib >=1")), ("scatter", "3.13t", ()),
    ):  # fmt: skip
        item = PlanItem(package=replace(PLANNED, name=name, host=(), run=needs))
        tasks.append(Task(extension=name, python=python, recipe=Path("x"), items=(item,), overrides={}))
    names = [task.name for task in tasks]
    assert len({*names}) == len(names), "free-threaded Pythons have tasks of their own"
    needed = extensions._needs(tasks)
    assert needed[names[3]] == (names[0], names[2])
    assert needed[names[4]] == (names[1], names[2])
    assert not any(needed[name] for name in names[:3])


def test_each_state_folder_has_a_container_of_its_own(tmp_path: Path) -> None:
    """A run ends the container that a killed one has left, and no other run's."""

    def name_of(state: Path) -> str:
        return Place(
            isolation=Host(),
            state=state,
            state_inside="",
            packages_inside="",
            python="",
            site_inside="",
            mounts=(),
        ).name

    states = [tmp_path / name for name in ("a/linux_64_cpu", "b/linux_64_cpu", "a/linux_64_cuda130")]
    assert len({*map(name_of, states)}) == 3
    assert name_of(states[0]) == name_of(states[0])


def test_a_script_that_fails_is_that_of_one_pythons_package() -> None:
    packages = [
        replace(PLANNED, build_string=build, file_name=f"{build}.conda") for build in ("py312_0", "py313_0")
    ]
    plan = SimpleNamespace(all_items=[SimpleNamespace(package=package) for package in packages])
    attempt = cast(Any, SimpleNamespace(run=SimpleNamespace(plan=plan)))
    for package in packages:
        culprit = Culprit(package=package.name, build_string=package.build_string, what="", lines=[])
        assert Attempt._packages_of(attempt, culprit) == {package.file_name}


def test_compilers_are_tested_once_for_each_set_of_architectures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[tuple[str, ...]] = []
    monkeypatch.setattr(installer, "unpack_sources", lambda *_, **__: tmp_path)
    builder = SimpleNamespace(
        environ=lambda *_: {}, check=lambda _, archs: tested.append(archs), prepare=lambda *_, **__: None
    )
    steps = SimpleNamespace(
        _options=SimpleNamespace(mode=Mode.SOURCE, sources=None, cache=tmp_path),
        _environment=SimpleNamespace(cuda_version="13.0", pip=()), _folder=tmp_path, _builder=builder, _tested=set(),
        _report=lambda _: None, _pip=None, _only_plan=True, _kept_folder=lambda _: tmp_path,
    )  # fmt: skip
    for name, arch in (("scatter", "9.0"), ("sparse", "12.0"), ("cluster", "9.0")):
        request = SimpleNamespace(name=name, archs=(arch,), extension=None, release=None)
        installer._Installer._get_ready(cast(Any, steps), cast(Any, request))
    assert tested == [("9.0",), ("12.0",)]


def test_wheels_of_two_indexes_with_one_name_have_a_place_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built for another CUDA, for example; without a hash, the address tells them apart."""
    monkeypatch.setattr(find_wheel, "fetch", lambda address, path, _: write(path, address))
    monkeypatch.setattr(find_wheel, "why_broken", lambda _: "")
    for _ in range(2):
        for address in ("https://a.example/x.whl", "https://b.example/x.whl"):
            path = find_wheel._in_cache(file(url=address, sha256=""), tmp_path, lambda _: None)
            assert path.read_text() == address


def test_two_environments_are_installed_into_at_once_and_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks: list[Path] = []

    def held(lock: Path, _: str) -> Any:
        locks.append(lock)
        return nullcontext()

    monkeypatch.setattr(files, "sole_user", held)
    monkeypatch.setattr(installer, "_check_space", lambda _: None)
    monkeypatch.setattr(installer, "_Installer", lambda *_, **__: SimpleNamespace(choose_all=lambda _: None))
    (tmp_path / "link").symlink_to(tmp_path / "a/env")
    for name in ("a/env", "b/env", "link"):
        environment = SimpleNamespace(prefix=tmp_path / name, check_writable=lambda: None)
        options = SimpleNamespace(environment=environment, cache=tmp_path / "cache")
        installer.install([], cast(Any, options))
    assert locks[0] == locks[2]
    assert locks[0] != locks[1]


FLAGS = ("FLAGS", "FLAGS_RELEASE", "COMPILER", "COMPILER_LAUNCHER", "COMPILER_ARG1")
LINKED = ("SHARED", "MODULE", "EXE", "STATIC")


@pytest.mark.parametrize(
    "name",
    [
        *(f"CMAKE_{language}_{what}" for language in ("C", "CXX", "CUDA", "ASM") for what in FLAGS),
        *(f"CMAKE_{kind}_LINKER_FLAGS{of}" for kind in LINKED for of in ("", "_RELEASE")),
        "CMAKE_BUILD_TYPE", "CMAKE_INSTALL_PREFIX", "CMAKE_SYSROOT", "CMAKE_OSX_DEPLOYMENT_TARGET",
    ],
)  # fmt: skip
def test_a_setting_with_which_libtorch_was_compiled_is_frozen(name: str) -> None:
    assert frozen_settings.FROZEN.match(name)
    assert not frozen_settings.FROZEN.match(f"MY_{name}")


RECIPE = """
context: {number: 1}
package: {name: a, version: "1"}
build: {number: "${{ number }}"}
requirements: {host: [one, two]}
"""


@pytest.mark.parametrize(
    "change", ["text", "a value", "zip_keys", "platform", "build platform", "an override", "recipe"]
)
def test_a_rendered_recipe_is_kept_for_the_same_inputs_alone(change: str, tmp_path: Path) -> None:
    recipe = write(tmp_path / "recipe.yaml", RECIPE)
    config = replace(
        load(ROOT.parents[2], "linux_64_cpu"),
        variant={"one": ("1", "2"), "two": ("1", "2")}, zip_keys=(), platform="linux-64",
    )  # fmt: skip
    overrides: dict[str, tuple[str, ...]] = {}
    machine = "linux-64"
    render.render(config, recipe, overrides=overrides, build_platform=machine)
    known = render._render.cache_info()
    match change:
        case "text":
            write(recipe, RECIPE.replace("number: 1", "number: 2"))
        case "a value":
            config = replace(config, variant={**config.variant, "one": ("1", "3")})
        case "zip_keys":
            config = replace(config, zip_keys=(("one", "two"),))
        case "platform":
            config = replace(config, platform="linux-aarch64")
        case "build platform":
            machine = "linux-aarch64"
        case "an override":
            overrides = {"one": ("4",)}
        case _:
            recipe = write(tmp_path / "other/recipe.yaml", RECIPE)
    for misses in (1, 1):
        render.render(config, recipe, overrides=overrides, build_platform=machine)
        assert render._render.cache_info().misses == known.misses + misses
