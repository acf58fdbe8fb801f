"""Make the build environment a config asks for, or say why it cannot be had here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.network.wheel_contents import noted
from megabuild.providers import catalogue, channel, conda_forge
from megabuild.providers.channel import LocalChannel
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import foreign as debian_foreign
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import Foreign
from megabuild.providers.debian.foreseen import foresee
from megabuild.providers.environment import Download, Environment, virtual_gpu
from megabuild.providers.local.compilers import Toolchain, probe
from megabuild.providers.local.interpreters import Interpreter, some_of
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
    torch_index: str | None = None,
    plan: bool = False,
) -> Environment:
    """Return the environment for a config, making or fetching what is missing.

    Parameters
    ----------
    config:
        The config; its provider decides. Rehearsals take the local channel, unless they are for another machine.
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
    torch_index:
        The index of PyTorch's wheels; None for those that pip is configured with, and then upstream's.
    plan:
        Whether it is for a plan alone: next to nothing is made and fetched, and what can be told without is told.

    Raises
    ------
    ProviderError
        With what to do about it.
    """
    wish = _Wish(
        config=config, planned=planned, cache=cache, report=report, torch_index=torch_index, plan=plan
    )
    foreign = debian_foreign.of(config.platform) if config.provider == "debian" else None
    if rehearsal and foreign is None:
        return _rehearsal(wish)
    if config.provider == "conda-forge":
        return conda_forge.provide(config)
    if config.provider == "debian":
        return _debian(wish, ask, foreign, rehearsal=rehearsal)
    return _wheel(wish)


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
    torch_index: str | None
    plan: bool

    def channel(
        self,
        needs: Sequence[str],
        *,
        pythons: Sequence[str] | None = None,
        stand_ins: bool = False,
        toolchain: Toolchain | None = None,
        given: Mapping[str, Interpreter] | None = None,
        extra: Sequence[Package] = (),
        more: Sequence[str] = (),
    ) -> LocalChannel:
        """Make a local channel, for the config's Pythons where no others are named."""
        return channel.make(
            needs,
            platform=self.config.platform,
            pythons=self.config.pythons if pythons is None else pythons,
            cache=self.cache,
            stand_ins=stand_ins,
            report=self.report,
            toolchain=toolchain,
            given=given,
            extra=extra,
            more=more,
            plan=self.plan,
        )

    def nvidia(
        self,
        needs: Sequence[str],
        python: Interpreter,
        *,
        dependencies: bool = True,
        more: Sequence[str] = (),
    ) -> tuple[lock.Lock, list[Package]]:
        """Resolve, download (for a plan only what nobody has looked into) and describe NVIDIA's wheels."""
        wheels = self.cache / "wheels"
        locks = wheels / "locks"
        found = lock.resolve(needs, python, locks, dependencies=dependencies, more=more)
        files = download.download(
            [found],
            wheels,
            self.report,
            only=lambda wheel: not self.plan or noted(locks, wheel.sha256) is None,
            more=more,
        )
        cuda = self.config.cuda_version or ""
        table = catalogue.load().nvidia
        return found, nvidia.packages(found, files, table, cuda, self.config.platform, locks)

    def downloads(self, made: LocalChannel, *locks: lock.Lock) -> tuple[Download, ...]:
        """Return the wheels that a plan's run would download."""
        left = {**made.pending, **download.pending(locks, self.cache / "wheels")} if self.plan else {}
        return (Download(what="wheels", count=len(left), size=sum(left.values())),) if left else ()

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

    def environment(self, made: LocalChannel, needs: Iterable[str], *locks: lock.Lock) -> Environment:
        """Return what a local channel offers: its Pythons, and what of the config is not as on this machine."""
        wanted = self.config.variant.get("torch_python_base", ("",))[0]
        usable = [python for python in made.interpreters if not python.endswith("t")]
        # libtorch is compiled against the config's Python, or the newest with a GIL that is here
        base = wanted if wanted in usable or not usable else usable[-1]
        overrides = self.overrides(_machine(made, needs, torch_python_base=base))
        return Environment(
            channels=(made.path,),
            pythons=tuple(python for python in self.config.pythons if python in made.interpreters),
            overrides=overrides,
            virtual_packages=virtual_gpu(self.config),
            downloads=self.downloads(made, *locks),
            notes=tuple(self.notes(overrides)),
        )


def _rehearsal(wish: _Wish) -> Environment:
    needs = requirements(wish.planned)
    made = wish.channel(needs, stand_ins=True)
    found = wish.environment(made, needs)
    if not made.stand_ins:
        return found
    return replace(
        found, notes=(*found.notes, f"empty stand-ins for this rehearsal: {', '.join(made.stand_ins)}")
    )


def _debian(
    wish: _Wish, ask: Callable[[str], bool], foreign: Foreign | None, *, rehearsal: bool
) -> Environment:
    config, cuda = wish.config, wish.config.cuda_version
    place, more = wish.cache / "debian", cuda is not None
    versions: Mapping[str, str] | None = None
    downloads: tuple[Download, ...] = ()
    if wish.plan and debian_root.there(place, cuda=more, foreign=foreign) is None:
        root, toolchain, archive = foresee(place, wish.report, cuda=more, foreign=foreign)
        versions = archive.versions
        downloads = (Download(what="Debian packages", count=archive.files, size=archive.size),)
    else:
        root = debian_root.make(place, wish.report, ask, cuda=more, foreign=foreign)
        triplet = foreign.triplet if foreign else ""
        toolchain = probe(root=root.path, enter=debian_root.enter(root.path), triplet=triplet)
    own = [libraries.package(root, toolchain.glibc, config.platform)]
    locks: list[lock.Lock] = []
    notes = [f"libraries and source of PyTorch: Debian {root.release}"]
    if versions is not None:
        notes.append(
            f"a Debian root of about {'8' if more else '2'} GB is made first; whether what is left of an earlier run "
            "fits is known then"
        )
        notes += [f"needed on this machine: {command}" for command in [debian_root.lacking()] if command]
    if cuda is not None:
        table = catalogue.load()
        # cuDNN comes from a wheel, of any Python that is here: it holds none
        python = next(iter(some_of(config.pythons, wish.report).values()))
        own += (
            debian_cuda.packages(root, table.debian_cuda, cuda, config.platform)
            if versions is None
            else debian_cuda.foreseen(versions, root, table.debian_cuda, cuda, config.platform)
        )
        locked, cudnn = wish.nvidia([table.debian_cudnn], python, dependencies=False)
        own, locks = [*own, *cudnn], [locked]
        notes.append(_DEBIAN_CUDA)
    pythons = foreign.interpreters(root.path / debian_root.SOURCE_FOLDER) if foreign else None
    if foreign is not None:
        notes.append(
            f"compiled on this machine for {foreign.machine}, whose Pythons and tests run under qemu"
        )
    needs = requirements(wish.planned)
    made = wish.channel(needs, toolchain=toolchain, given=pythons, extra=own, stand_ins=rehearsal)
    found = wish.environment(made, needs, *locks)
    return replace(
        found,
        root=root.path,
        left_out={
            python: f"no Debian release that is asked has it for {foreign.machine}"
            for python in config.pythons
            if foreign is not None and python not in found.pythons
        },
        emulator=foreign.emulator(root.path) if foreign else None,
        source=None if rehearsal else root.source,
        overrides={
            **found.overrides,
            **({} if rehearsal else {"torch_source_path": (_SOURCE_INSIDE,)}),
        },
        virtual_packages={**found.virtual_packages, "__glibc": toolchain.glibc},
        downloads=(*found.downloads, *downloads),
        notes=(*found.notes, *notes),
    )


def _wheel(wish: _Wish) -> Environment:
    config, cuda = wish.config, wish.config.cuda_version
    channel.require(config.platform)
    pythons = some_of(config.pythons, wish.report)
    asked_for = {package.python for package in wish.planned if package.python}
    found = torch_wheels.find(config, pythons, wish.cache / "wheels", wish.torch_index, asked_for)
    base = found.base(config.variant.get("torch_python_base", ("",))[0])
    locked = found.locks[base]
    here = [python for python in found.locks if python in asked_for or python == base]
    source = torch_wheels.folder(config, wish.cache)
    if not wish.plan:
        torch_wheels.fetch(config, found, here, cache=wish.cache, report=wish.report)
    own: list[Package] = []
    locks = [found.locks[python] for python in here]
    if cuda is not None:
        toolkit = catalogue.load().nvidia_toolkit
        nvidias, own = wish.nvidia(torch_wheels.requirements(locked, toolkit), pythons[base], more=found.more)
        locks.append(nvidias)
    # what was rendered names the config's Triton; the wheel knows better
    triton = torch_wheels.triton(locked)
    needs = requirements(wish.planned)
    if triton:
        needs = [f"triton =={triton}" if need.startswith("triton ") else need for need in needs]
    made = wish.channel(needs, pythons=here, extra=own, more=found.more)
    overrides = wish.overrides(_machine(made, needs))
    of_wheel = {"torch_python_base": base, **({"triton_version": triton} if triton else {})}
    return Environment(
        channels=(made.path,),
        source=source,
        staging_source=source / base,
        source_files={locked.wheels[0].file_name: locked.wheels[0].sha256} if wish.plan else {},
        pythons=tuple(python for python in config.pythons if python in found.locks),
        left_out=found.left_out,
        overrides={**overrides, **wish.overrides(of_wheel)},
        virtual_packages=virtual_gpu(config),
        downloads=wish.downloads(made, *locks),
        notes=(*wish.notes(overrides), *found.notes, f"libtorch is made from {locked.wheels[0].file_name}"),
    )


def _machine(made: LocalChannel, needs: Iterable[str], **more: str) -> dict[str, str]:
    """Return the variant's values as they are on this machine."""
    values = {
        "c_compiler_version": made.toolchain.major,
        "cxx_compiler_version": made.toolchain.major,
        "c_stdlib_version": made.toolchain.glibc,
        **more,
    }
    if "pybind11-abi" in map(_name, needs):
        values["pybind11_abi"] = next(one.version for one in made.records if one.name == "pybind11-abi")
    return values
