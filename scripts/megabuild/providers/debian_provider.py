"""The debian provider: PyTorch's source, compilers and libraries of Debian's archive, Pythons of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from megabuild.providers import catalogue, local_channel
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import PYTHONS, Foreign
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.local.compilers import probe
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.provider import LocalProvider, base_python, machine_values, requirements
from megabuild.providers.pypi.lock import Lock

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

    foreign: Foreign | None = None  #: the architecture to compile for, if not the machine's own

    def provide(self) -> Environment:
        """Return root and local channel; empty packages stand in where the root of another machine is rehearsed."""
        request, config, foreign = self.request, self.request.config, self.foreign
        cache, cuda = request.cache / "debian", config.cuda_version is not None
        if request.plan and debian_root.find(cache, cuda=cuda, foreign=foreign) is None:
            return self._without_root()
        root = debian_root.make(cache, request.report, cuda=cuda, foreign=foreign)
        triplet = foreign.triplet if foreign else ""
        toolchain = probe(root=root.path, enter=debian_root.enter(root.path), triplet=triplet)
        notes = [f"libraries and source of PyTorch: Debian {root.release}"]
        pythons, left_out = self._pythons(root)
        own = [libraries.package(root, toolchain.glibc, config.platform)]
        locks: list[Lock] = []
        if config.cuda_version is not None:
            table = catalogue.load()
            # cuDNN comes from a wheel, of any Python that is here: it holds none
            lock, cudnn = self.nvidia([table.debian_cudnn], next(iter(pythons.values())), dependencies=False)
            locks.append(lock)
            own += debian_cuda.packages(root, table.debian_cuda, config.cuda_version, config.platform)
            own += cudnn
            notes.append(_CUDA_NOTE)
        if foreign is not None:
            notes.append(
                f"compiled on this machine for {foreign.machine}, whose Pythons and tests run under qemu"
            )
        needs = requirements(request.planned)
        base = base_python(config, pythons)
        made = local_channel.make(
            needs,
            platform=config.platform,
            interpreters=pythons,
            cache=request.cache,
            stand_ins=request.rehearsal,
            report=request.report,
            toolchain=toolchain,
            extra=own,
            pythons=self.needed_pythons(pythons, base),
            plan=request.plan,
        )
        overrides = self.overrides({**machine_values(made, needs), "torch_python_base": base})
        inside = {} if request.rehearsal else {"torch_source_path": (_SOURCE_INSIDE,)}
        return Environment(
            channels=(made.path,),
            pythons=tuple(pythons),
            root=root.path,
            emulator=foreign.emulator(root.path) if foreign else None,
            source=None if request.rehearsal else root.source,
            left_out=left_out,
            overrides={**overrides, **inside},
            virtual_packages={**virtual_gpu(config), "__glibc": toolchain.glibc},
            **self.to_prepare(made, *locks),
            stand_ins=made.stand_ins,
            notes=(*self.notes(overrides), *notes),
        )

    def _without_root(self) -> Environment:
        """Return what is known before the root is made: the Pythons, and what making it takes."""
        config = self.request.config
        pythons = (
            [python for python in config.pythons if python in PYTHONS]
            if self.foreign
            else [*self.interpreters()]
        )
        overrides = self.overrides({"torch_python_base": base_python(config, pythons)})
        size = 8 if config.cuda_version else 2
        command = debian_root.install_command()
        return Environment(
            channels=(),
            pythons=tuple(pythons),
            left_out=self._left_out(),
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

    def _pythons(self, root: DebianRoot) -> tuple[dict[str, Interpreter], dict[str, str]]:
        """Return the config's Pythons that are available, and why the others of another architecture are not."""
        if self.foreign is None:
            return self.interpreters(), {}
        unpacked = self.foreign.interpreters(root.path / debian_root.SOURCE_FOLDER)
        there = [python for python in self.request.config.pythons if python in unpacked]
        return {python: unpacked[python] for python in there}, self._left_out()

    def _left_out(self) -> dict[str, str]:
        """Return why Pythons of another architecture are not available."""
        if self.foreign is None:
            return {}
        why = f"none of the Debian releases used here has it for {self.foreign.machine}"
        return {python: why for python in self.request.config.pythons if python not in PYTHONS}
