"""Make the build environment a config asks for, or say why it cannot be had here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.providers import catalogue, conda_forge
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.local import channel
from megabuild.providers.local.channel import LocalChannel
from megabuild.providers.local.compilers import probe
from megabuild.providers.local.interpreters import Interpreter, find
from megabuild.providers.local.package import Package
from megabuild.providers.pypi import download, lock, nvidia
from megabuild.providers.pypi import torch as torch_wheels

#: Where a build inside a root folder finds the source.
_SOURCE_INSIDE = "/opt/megabuild/source"
#: What recipe/build_env.sh switches off there.
_DEBIAN_CUDA = (
    "without NCCL, cuFile, cuSPARSELt and cuDSS, which Debian does not have, and without the kernels of flash and"
    " memory-efficient attention, which would more than double the compile"
)


def provide(
    config: Config,
    planned: Sequence[PlannedPackage],
    *,
    rehearsal: bool,
    cache: Path,
    report: Callable[[str], None],
    ask: Callable[[str], bool],
) -> Environment:
    """Return the environment for a config, making or fetching what is missing.

    Parameters
    ----------
    config:
        The config; its provider decides. Rehearsals always take the local channel.
    planned:
        The rendered packages: what they require is what the channel must have.
    rehearsal:
        Whether empty packages may stand in for what this machine does not have.
    cache:
        Folder for everything that is kept, shared by all configs.
    report:
        Told what is being done, a line at a time.
    ask:
        Asked before something is installed on this machine; False is a refusal.

    Raises
    ------
    ProviderError
        With what to do about it.
    """
    wish = _Wish(config=config, planned=planned, cache=cache, report=report)
    if rehearsal:
        return _rehearsal(wish)
    if config.provider == "conda-forge":
        return conda_forge.provide(config)
    return _debian(wish, ask) if config.provider == "debian" else _wheel(wish)


def requirements(planned: Iterable[PlannedPackage]) -> list[str]:
    """Return everything that building and testing the packages installs, without the packages themselves."""
    chosen = [package for package in planned if not package.skipped]
    own = {package.name for package in chosen}
    needs: set[str] = set()
    for one in chosen:
        needs.update(one.staging_build, one.staging_host, one.build, one.host, one.run, one.test)
    return sorted(need for need in needs if _name(need) not in own)


def _name(need: str) -> str:
    return re.split(r"[\s=<>!~\[]", need.strip(), maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class _Wish:
    """What every provider is told."""

    config: Config
    planned: Sequence[PlannedPackage]
    cache: Path
    report: Callable[[str], None]

    def wheels(self, locked: lock.Lock, pythons: Mapping[str, Interpreter]) -> dict[str, Path]:
        """Download what a lock names, by sha256."""
        return download.download([locked], pythons, self.cache / "wheels", self.report)

    def overrides(self, values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return those variant keys whose values in the config are others."""
        variant = self.config.variant
        return {
            key: (value,) for key, value in values.items() if key in variant and set(variant[key]) != {value}
        }

    def notes(self, overrides: Mapping[str, Sequence[str]]) -> list[str]:
        """Say what differs from the config."""
        return [
            f"{key} is {', '.join(values)} here, not {', '.join(self.config.variant[key])}"
            for key, values in overrides.items()
        ]


def _rehearsal(wish: _Wish) -> Environment:
    config, needs = wish.config, requirements(wish.planned)
    made = channel.make(
        needs,
        platform=config.platform,
        pythons=config.pythons,
        cache=wish.cache,
        stand_ins=True,
        report=wish.report,
    )
    overrides = wish.overrides(_machine(made, needs, _base(config, made)))
    stand_ins = [f"empty stand-ins for this rehearsal: {', '.join(made.stand_ins)}"] if made.stand_ins else []
    return Environment(
        channels=(made.path,),
        pythons=_present(config, made),
        overrides=overrides,
        virtual_packages=virtual_gpu(config),
        notes=(*wish.notes(overrides), *_absent(config, made), *stand_ins),
    )


def _debian(wish: _Wish, ask: Callable[[str], bool]) -> Environment:
    config, needs, cuda = wish.config, requirements(wish.planned), wish.config.cuda_version
    root = debian_root.make(wish.cache / "debian", wish.report, ask, cuda=cuda is not None)
    toolchain = probe(root=root.path, enter=debian_root.enter(root.path))
    own = [libraries.package(root, toolchain.glibc, config.platform)]
    if cuda is not None:
        own += _debian_cuda(wish, root, cuda)
    made = channel.make(
        needs,
        platform=config.platform,
        pythons=config.pythons,
        cache=wish.cache,
        stand_ins=False,
        report=wish.report,
        toolchain=toolchain,
        extra=own,
    )
    overrides = wish.overrides(_machine(made, needs, _base(config, made)))
    return Environment(
        channels=(made.path,),
        root=root.path,
        source=root.source,
        pythons=_present(config, made),
        overrides={**overrides, "torch_source_path": (_SOURCE_INSIDE,)},
        virtual_packages={**virtual_gpu(config), "__glibc": toolchain.glibc},
        notes=(
            *wish.notes(overrides),
            *_absent(config, made),
            f"libraries and source of PyTorch: Debian {root.release}",
            *([_DEBIAN_CUDA] if cuda else ()),
        ),
    )


def _debian_cuda(wish: _Wish, root: debian_root.DebianRoot, cuda: str) -> list[Package]:
    """Debian's toolkit, and cuDNN from the wheel of any Python that is here: it holds no Python."""
    table, platform = catalogue.load(), wish.config.platform
    pythons, locks = find(wish.report), wish.cache / "wheels" / "locks"
    locked = lock.resolve([table.debian_cudnn], next(iter(pythons.values())), locks, dependencies=False)
    return [
        *debian_cuda.packages(root, table.debian_cuda, cuda, platform),
        *nvidia.packages(locked, wish.wheels(locked, pythons), table.nvidia, cuda, platform),
    ]


def _wheel(wish: _Wish) -> Environment:
    config, cuda = wish.config, wish.config.cuda_version
    channel.require(config.platform)
    pythons = find(wish.report)
    found = torch_wheels.find(config, pythons, wish.cache / "wheels")
    base = found.base(config.variant.get("torch_python_base", ("",))[0])
    wheel, environment = found.wheel(base), found.locks[base].environment
    asked_for = {package.python for package in wish.planned if package.python}
    source = torch_wheels.fetch(
        config, found, asked_for, pythons, base=base, cache=wish.cache, report=wish.report
    )
    own: list[Package] = []
    if cuda is not None:
        table = catalogue.load()
        needed = torch_wheels.requirements(wheel, environment, table.nvidia_toolkit)
        locked = lock.resolve(needed, pythons[base], wish.cache / "wheels" / "locks")
        own = nvidia.packages(locked, wish.wheels(locked, pythons), table.nvidia, cuda, config.platform)
    # what was rendered names the config's Triton; the wheel knows better
    triton = torch_wheels.triton(wheel, environment)
    needs = requirements(wish.planned)
    if triton:
        needs = [f"triton =={triton}" if need.startswith("triton ") else need for need in needs]
    made = channel.make(
        needs,
        platform=config.platform,
        pythons=[python for python in found.locks if python in asked_for or python == base],
        cache=wish.cache,
        stand_ins=False,
        report=wish.report,
        extra=own,
    )
    overrides = wish.overrides(_machine(made, needs))
    from_wheel = {"torch_python_base": base, **({"triton_version": triton} if triton else {})}
    return Environment(
        channels=(made.path,),
        source=source,
        staging_source=source / base,
        pythons=tuple(python for python in config.pythons if python in found.locks),
        left_out=found.left_out,
        overrides={**overrides, **wish.overrides(from_wheel)},
        virtual_packages=virtual_gpu(config),
        notes=(*wish.notes(overrides), f"libtorch is made from {wheel.file_name}"),
    )


def _machine(made: LocalChannel, needs: Iterable[str], base: str | None = None) -> dict[str, str]:
    """Return the variant's values as they are on this machine."""
    compiler = made.toolchain
    values = {
        "c_compiler_version": compiler.major,
        "cxx_compiler_version": compiler.major,
        "c_stdlib_version": compiler.glibc,
    }
    if base is not None:
        values["torch_python_base"] = base
    if "pybind11-abi" in map(_name, needs):
        values["pybind11_abi"] = next(one.version for one in made.records if one.name == "pybind11-abi")
    return values


def _base(config: Config, made: LocalChannel) -> str:
    """Return the Python libtorch is compiled against: the config's, or the newest with a GIL that is here."""
    wanted = config.variant.get("torch_python_base", ("",))[0]
    usable = [python for python in made.interpreters if not python.endswith("t")]
    return wanted if wanted in usable or not usable else usable[-1]


def _present(config: Config, made: LocalChannel) -> tuple[str, ...]:
    return tuple(python for python in config.pythons if python in made.interpreters)


def _absent(config: Config, made: LocalChannel) -> list[str]:
    absent = [python for python in config.pythons if python not in made.interpreters]
    return [f"not on this machine: Python {', '.join(absent)}"] if absent else []
