"""Make the build environment a config asks for, or say why it cannot be had here."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from megabuild.configs.config import Config
from megabuild.configs.render import PlannedPackage
from megabuild.errors import ProviderError
from megabuild.providers import alternatives, catalogue, local_channel, reachability, specs
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import enter, libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment
from megabuild.providers.interpreters import Interpreter
from megabuild.providers.interpreters import find as find_interpreters
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.package import Package
from megabuild.providers.toolchain import probe
from megabuild.providers.wheel import nvidia
from megabuild.providers.wheel import torch as torch_wheels
from megabuild.providers.wheels import download, lock

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
    if rehearsal:
        return _local(config, planned, cache, report)
    if config.provider == "conda-forge":
        return _conda_forge(config)
    if config.provider == "debian":
        return _debian(config, planned, cache, report, ask)
    if config.provider == "wheel":
        return _wheel(config, planned, cache, report)
    raise ProviderError(
        f"{config.name}: there is no provider {config.provider!r}", "Known: conda-forge, debian, wheel."
    )


def requirements(planned: Iterable[PlannedPackage]) -> list[str]:
    """Everything that building and testing the packages installs, without the packages themselves."""
    chosen = [package for package in planned if not package.skipped]
    own = {package.name for package in chosen}
    needs: set[str] = set()
    for package in chosen:
        for group in (
            package.staging_build,
            package.staging_host,
            package.build,
            package.host,
            package.run,
            package.test,
        ):
            needs.update(group)
    return sorted(need for need in needs if re.split(r"[\s=<>!~\[]", need.strip(), maxsplit=1)[0] not in own)


def _conda_forge(config: Config) -> Environment:
    entries = config.variant.get("channel_sources", ("conda-forge",))
    names = [name.strip() for entry in entries for name in entry.split(",")]
    channels = {name: reachability.channel_url(name) for name in names}
    for name, url in channels.items():
        reason = reachability.why_unreachable(url)
        if reason:
            works = ", ".join([*alternatives.without_channel(config), f"{config.name} --rehearse"])
            raise ProviderError(
                f"{config.name}: the channel {name} does not answer ({reason})",
                f"Set CONDA_CHANNEL_ALIAS to a mirror, or use what works here: {works}.",
            )
    return Environment(
        channels=tuple(channels.values()),
        pythons=config.pythons,
        virtual_packages=_gpu(config),
    )


def _gpu(config: Config) -> dict[str, str]:
    """CUDA packages ask for a driver; building and testing them does not."""
    return {"__cuda": config.cuda_version} if config.cuda_version else {}


def _local(
    config: Config, planned: Sequence[PlannedPackage], cache: Path, report: Callable[[str], None]
) -> Environment:
    needs = requirements(planned)
    made = local_channel.make(
        needs,
        platform=config.platform,
        pythons=config.pythons,
        cache=cache,
        stand_ins=True,
        report=report,
    )
    return _environment(config, made, specs.parse(needs))


def _debian(
    config: Config,
    planned: Sequence[PlannedPackage],
    cache: Path,
    report: Callable[[str], None],
    ask: Callable[[str], bool],
) -> Environment:
    root = debian_root.make(cache / "debian", report, ask, cuda=config.cuda_version is not None)
    toolchain = probe(root=root.path, enter=enter.words(root.path))
    needs = requirements(planned)
    made = local_channel.make(
        needs,
        platform=config.platform,
        pythons=config.pythons,
        cache=cache,
        stand_ins=False,
        report=report,
        toolchain=toolchain,
        extra=[
            libraries.package(root, toolchain.glibc, config.platform),
            *(_debian_cuda(root, config.cuda_version, config, cache, report) if config.cuda_version else ()),
        ],
    )
    environment = _environment(config, made, specs.parse(needs), root)
    if config.cuda_version is None:
        return environment
    return replace(environment, notes=(*environment.notes, _DEBIAN_CUDA))


def _debian_cuda(
    root: debian_root.DebianRoot, cuda: str, config: Config, cache: Path, report: Callable[[str], None]
) -> list[Package]:
    """Debian's toolkit, and cuDNN from the wheel of any Python that is here: it holds no Python."""
    table = catalogue.load()
    interpreters = find_interpreters(report)
    python = next(iter(interpreters.values()))
    locked = lock.resolve([table.debian_cudnn], python, cache / "wheels" / "locks", dependencies=False)
    files = download.download([locked], interpreters, cache / "wheels", report)
    return [
        *debian_cuda.packages(root, table.debian_cuda, cuda, config.platform),
        *nvidia.packages(locked, files, table.nvidia, cuda, config.platform),
    ]


def _wheel(
    config: Config, planned: Sequence[PlannedPackage], cache: Path, report: Callable[[str], None]
) -> Environment:
    local_channel.require(config.platform)
    interpreters = find_interpreters(report)
    found = torch_wheels.find(config, interpreters, cache / "wheels")
    base = found.base(config.variant.get("torch_python_base", ("",))[0])
    asked_for = {package.python for package in planned if package.python}
    wheels = torch_wheels.fetch(config, found, asked_for, interpreters, base=base, cache=cache, report=report)
    # what was rendered names the config's Triton; the wheel knows better
    triton = torch_wheels.triton(found.wheel(base), found.locks[base].environment)
    needs = [f"triton =={triton}" if need.startswith("triton ") and triton else need for need in requirements(planned)]
    made = local_channel.make(
        needs,
        platform=config.platform,
        pythons=[python for python in found.locks if python in asked_for or python == base],
        cache=cache,
        stand_ins=False,
        report=report,
        extra=_nvidia(config, found, base, interpreters, cache, report) if config.cuda_version else (),
    )
    environment = _environment(config, made, specs.parse(needs))
    overrides = {**environment.overrides, "torch_python_base": (base,)}
    if (base,) == config.variant.get("torch_python_base"):
        del overrides["torch_python_base"]
    if triton and (triton,) != config.variant.get("triton_version"):
        overrides["triton_version"] = (triton,)
    return replace(
        environment,
        source=wheels.path,
        staging_source=wheels.base,
        pythons=tuple(python for python in config.pythons if python in found.locks),
        left_out=found.left_out,
        overrides=overrides,
        notes=(
            *(
                note
                for note in environment.notes
                if not note.startswith(("torch_python_base ", "not on this"))
            ),
            f"libtorch is made from {found.wheel(base).file_name}",
        ),
    )


def _nvidia(
    config: Config,
    found: torch_wheels.Found,
    base: str,
    interpreters: Mapping[str, Interpreter],
    cache: Path,
    report: Callable[[str], None],
) -> list[Package]:
    """NVIDIA's packages that the base Python's wheel goes with, and what else building needs of that toolkit."""
    table = catalogue.load()
    needed = torch_wheels.requirements(found.wheel(base), found.locks[base].environment, table.nvidia_toolkit)
    locked = lock.resolve(needed, interpreters[base], cache / "wheels" / "locks")
    files = download.download([locked], interpreters, cache / "wheels", report)
    return nvidia.packages(locked, files, table.nvidia, config.cuda_version or "", config.platform)


def _environment(
    config: Config, made: LocalChannel, asked: Container[str], root: debian_root.DebianRoot | None = None
) -> Environment:
    overrides = _overrides(config, made, asked)
    notes = [
        f"{key} is {', '.join(values)} here, not {_shown(config, key)}" for key, values in overrides.items()
    ]
    absent = [python for python in config.pythons if python not in made.interpreters]
    if absent:
        notes.append(f"not on this machine: Python {', '.join(absent)}")
    if made.stand_ins:
        notes.append(f"empty stand-ins for this rehearsal: {', '.join(made.stand_ins)}")
    if root is not None:
        overrides["torch_source_path"] = (_SOURCE_INSIDE,)
        notes.append(f"libraries and source of PyTorch: Debian {root.release}")
    return Environment(
        channels=(made.path,),
        root=root.path if root else None,
        source=root.source if root else None,
        pythons=tuple(python for python in config.pythons if python in made.interpreters),
        overrides=overrides,
        virtual_packages={**_gpu(config), **({"__glibc": made.toolchain.glibc} if root else {})},
        notes=tuple(notes),
    )


def _shown(config: Config, key: str) -> str:
    return ", ".join(config.variant.get(key, ("unset",)))


def _overrides(config: Config, made: LocalChannel, asked: Container[str]) -> dict[str, tuple[str, ...]]:
    """Variant keys whose values in the config are not what the machine has."""
    present = {
        "c_compiler_version": made.toolchain.major,
        "cxx_compiler_version": made.toolchain.major,
        "c_stdlib_version": made.toolchain.glibc,
        "torch_python_base": _base(config, made),
    }
    if "pybind11-abi" in asked:
        present["pybind11_abi"] = next(one.version for one in made.records if one.name == "pybind11-abi")
    return {
        key: (value,)
        for key, value in present.items()
        if key in config.variant and set(config.variant[key]) != {value}
    }


def _base(config: Config, made: LocalChannel) -> str:
    """The Python libtorch is compiled against: the config's, or the newest with a GIL that is here."""
    (wanted,) = config.variant.get("torch_python_base", ("",))[:1]
    usable: Mapping[str, object] = {
        python: one for python, one in made.interpreters.items() if not python.endswith("t")
    }
    return wanted if wanted in usable or not usable else list(usable)[-1]
