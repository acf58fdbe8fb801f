"""The debian provider: PyTorch's source, compilers and libraries of Debian's archive, Pythons of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from megabuild.providers import catalogue, local_channel
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.local.compilers import probe
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.provider import LocalProvider, base_python, machine_values, requirements

_GB = 1_000_000_000
#: Where a build inside a root folder finds the source.
_SOURCE_INSIDE = "/opt/megabuild/source"
#: What recipe/build_env.sh switches off for these builds.
_CUDA_NOTE = (
    "without NCCL, cuFile, cuSPARSELt and cuDSS, which Debian does not have, and without the kernels of flash and"
    " memory-efficient attention, which would more than double the compile"
)


@dataclass(frozen=True)
class DebianProvider(LocalProvider):
    """Makes a root folder of Debian's packages; before it is made, a plan cannot know what is in it."""

    def provide(self) -> Environment:
        """Return root and local channel."""
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
            # cuDNN comes from a wheel, of any Python that is here: it holds none
            own += self.nvidia([table.debian_cudnn], next(iter(pythons.values())), dependencies=False)
            notes.append(_CUDA_NOTE)
        needs = requirements(request.planned)
        channel = local_channel.make(
            needs,
            platform=config.platform,
            interpreters=pythons,
            cache=request.cache,
            stand_ins=False,
            report=request.report,
            toolchain=toolchain,
            extra=own,
            pythons=self.needed_pythons(pythons, base),
            plan=request.plan,
        )
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
        """Return what is known before the root is made: the Pythons, and what making it takes."""
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
                f"makes a Debian root first ({size} GB); whether an earlier run's tree can be reused is known then",
                *([f"needed on this machine: {command}"] if command else []),
            ),
            install_command=command,
        )
