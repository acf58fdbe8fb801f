"""The providers. A config names its own; a rehearsal uses the local one, with empty stand-in packages."""

from __future__ import annotations

import os

from groundwork.errors import ProviderError
from groundwork.host_compiler import find_gcc_suffix
from groundwork.network.client import channel_url, why_channel_unreachable
from megabuild.configs.overrides import CHANNELS
from megabuild.providers import catalogue
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.local.compilers import probe
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.provider import (
    LocalProvider,
    Provider,
    ProviderRequest,
    base_python,
    machine_values,
    requirements,
)
from megabuild.providers.pypi import torch

_GB = 1_000_000_000
#: The newest GCC that nvcc accepts, by the major version of CUDA: crt/host_config.h of 12.9 and of 13.0 to 13.2.
_NEWEST_GCC = {"12": 14, "13": 15}
#: Folder of the source for a build inside a root.
_SOURCE_INSIDE = "/opt/megabuild/source"
#: Features that recipe/build_env.sh disables with Debian's CUDA.
_CUDA_NOTE = (
    "disabled: NCCL, cuFile, cuSPARSELt and cuDSS (not in Debian), and flash and memory-efficient attention"
    " (would more than double the compile time)"
)


class ChannelError(ProviderError):
    """A conda channel does not answer."""


def provide(request: ProviderRequest) -> Environment:
    """Return the environment for a run, after making or downloading its missing parts.

    Raises ProviderError: The environment cannot be made.
    """
    providers: dict[str, type[Provider]] = {
        "conda-forge": CondaForgeProvider,
        "debian": DebianProvider,
        "local": MachineProvider,
        "wheel": WheelProvider,
    }
    return providers["local" if request.rehearsal else request.config.provider](request).provide()


class CondaForgeProvider(Provider):
    """Uses the channels that the config names."""

    def provide(self) -> Environment:
        """Return the config's channels.

        Raises ChannelError: A channel does not answer.
        """
        config = self.request.config
        entries = config.variant.get(CHANNELS, ("conda-forge",))
        names = [name.strip() for entry in entries for name in entry.split(",")]
        channels = {name: channel_url(name) for name in names}
        for name, url in channels.items():
            if reason := why_channel_unreachable(url):
                raise ChannelError(
                    f"{config.name}: channel {name} is unreachable: {reason}",
                    "set CONDA_CHANNEL_ALIAS to a mirror",
                )
        return Environment(
            channels=tuple(channels.values()), pythons=config.pythons, virtual_packages=virtual_gpu(config)
        )


class MachineProvider(LocalProvider):
    """Uses this machine's programs and pip's indexes, and in a rehearsal empty packages for all others."""

    def provide(self) -> Environment:
        """Return the local channel."""
        request, config = self.request, self.request.config
        needs = requirements(request.planned)
        pythons = self.interpreters()
        base = base_python(config, pythons)
        needed = self.needed_pythons(pythons, base)
        channel = self.make_channel(needs, pythons, only=needed, any_wheel=not request.rehearsal)
        overrides = self.overrides({**machine_values(channel, needs), "torch_python_base": base})
        notes = self.notes(overrides)
        if channel.by_name:
            notes.append(
                f"not in the catalogue, taken from pip's indexes by name: {', '.join(channel.by_name)}"
            )
        environment = Environment(
            channels=(channel.path,),
            pythons=tuple(pythons),
            overrides=overrides,
            virtual_packages=virtual_gpu(config),
            notes=tuple(notes),
            stand_ins=channel.stand_ins,
        )
        return self.with_pending(environment, channel)


class WheelProvider(LocalProvider):
    """Finds PyTorch's official wheels that fit, and downloads them unless it only plans."""

    def provide(self) -> Environment:
        """Return the wheels as PyTorch's source, with the local channel."""
        request, config = self.request, self.request.config
        pythons = self.interpreters()
        requested = {package.python for package in request.planned if package.python}
        wheels = torch.find(config, pythons, request.cache / "wheels", requested)
        base = base_python(config, wheels.locks)
        locked = wheels.locks[base]
        (wheel,) = locked.wheels
        here = {python: pythons[python] for python in wheels.locks if python in requested or python == base}
        source = torch.folder(config, request.cache)
        if not request.plan:
            torch.fetch(config, wheels, list(here), cache=request.cache, report=request.report)
        own: list[LocalPackage] = []
        toolchain = None
        if config.cuda_version is not None:
            newest = _NEWEST_GCC.get(config.cuda_version.partition(".")[0])
            compiles = any(need.startswith("cuda-nvcc") for need in requirements(request.planned))
            if newest and compiles:  # before gigabytes are downloaded
                toolchain = probe(suffix=find_gcc_suffix(newest, os.environ.get("PATH", os.defpath)))
            toolkit = torch.requirements(locked, catalogue.load().nvidia_toolkit)
            own = self.nvidia(toolkit, pythons[base], more=wheels.more)
        # the rendered packages require the config's Triton; the wheel's own requirement replaces it
        triton = torch.named_triton(wheel.needs(locked.environment))
        needs = requirements(request.planned)
        if triton:
            needs = [f"triton =={triton}" if need.startswith("triton ") else need for need in needs]
        channel = self.make_channel(needs, here, extra=own, more=wheels.more, toolchain=toolchain)
        overrides = self.overrides(machine_values(channel, needs))
        of_wheel = {"torch_python_base": base, **({"triton_version": triton} if triton else {})}
        linked = [source / python / file.file_name for python in here for file in wheels.locks[python].wheels]
        environment = Environment(
            channels=(channel.path,),
            source=source,
            staging_source={wheel.file_name: wheel.sha256} if request.plan else source / base,
            pythons=tuple(wheels.locks),
            left_out=wheels.left_out,
            overrides={**overrides, **self.overrides(of_wheel)},
            virtual_packages=virtual_gpu(config),
            ready=all(path.is_file() for path in linked),
            notes=(*self.notes(overrides), *wheels.notes, f"libtorch is made from {wheel.file_name}"),
        )
        return self.with_pending(environment, channel, *(wheels.locks[python] for python in here))


class DebianProvider(LocalProvider):
    """Makes a root folder of Debian's packages. Until it exists, a plan does not know its content."""

    def provide(self) -> Environment:
        """Return the root and the local channel."""
        request, config = self.request, self.request.config
        cache, cuda = request.cache / "debian", config.cuda_version is not None
        pythons = self.interpreters()
        base = base_python(config, pythons)
        if request.plan and debian_root.find(cache, cuda=cuda) is None:
            return self._plan_root(pythons, base)
        root = debian_root.make(cache, request.report, cuda=cuda)
        toolchain = probe(root=root.path, enter=debian_root.enter(root.path))
        notes = [f"libraries and source of PyTorch: Debian {root.release}"]
        own = [libraries.package(root, toolchain.glibc, config.platform)]
        if config.cuda_version is not None:
            table = catalogue.load()
            own += debian_cuda.packages(root, table.debian_cuda, config.cuda_version, config.platform)
            # cuDNN's wheel is the same for every Python, so any of them can resolve it
            own += self.nvidia([table.debian_cudnn], next(iter(pythons.values())), dependencies=False)
            notes.append(_CUDA_NOTE)
        needs = requirements(request.planned)
        needed = self.needed_pythons(pythons, base)
        channel = self.make_channel(needs, pythons, toolchain=toolchain, extra=own, only=needed)
        overrides = self.overrides({**machine_values(channel, needs), "torch_python_base": base})
        environment = Environment(
            channels=(channel.path,),
            pythons=tuple(pythons),
            root=root.path,
            source=root.source,
            overrides={**overrides, "torch_source_path": (_SOURCE_INSIDE,)},
            virtual_packages={**virtual_gpu(config), "__glibc": toolchain.glibc},
            notes=(*self.notes(overrides), *notes),
        )
        return self.with_pending(environment, channel)

    def _plan_root(self, pythons: dict[str, Interpreter], base: str) -> Environment:
        """Return the environment known before the root is made: the Pythons, and the root's size."""
        config = self.request.config
        overrides = self.overrides({"torch_python_base": base})
        size = 8 if config.cuda_version else 2
        command = debian_root.install_command()
        return Environment(
            channels=(),
            pythons=tuple(pythons),
            overrides=overrides,
            virtual_packages=virtual_gpu(config),
            ready=False,
            to_make=size * _GB,
            notes=(
                *self.notes(overrides),
                f"the run makes a Debian root first ({size} GB), then decides whether to reuse an earlier build tree",
                *([f"programs are missing; run: {command}"] if command else []),
            ),
        )
