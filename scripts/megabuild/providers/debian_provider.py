"""The debian provider: PyTorch's source, compilers and libraries of Debian's archive, Pythons of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from megabuild.providers import catalogue, local_channel
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import Foreign
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.debian.simulation import SimulatedRoot, simulate_root
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.local.compilers import Toolchain, probe
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
    """Makes a root folder of Debian's packages, or for a plan finds out what would be in it."""

    foreign: Foreign | None = None  #: the architecture to compile for, if not the machine's own

    def provide(self) -> Environment:
        """Return root and local channel; empty packages stand in where the root of another machine is rehearsed."""
        request, config, foreign = self.request, self.request.config, self.foreign
        root, toolchain, simulated = self._root()
        install_command = debian_root.install_command() if simulated else ""
        notes = [f"libraries and source of PyTorch: Debian {root.release}"]
        if simulated:
            notes.append(
                f"a Debian root of about {8 if config.cuda_version else 2} GB is made first; whether an earlier run's "
                "tree can be reused is known only then"
            )
            notes += [f"needed on this machine: {command}" for command in [install_command] if command]
        pythons, left_out = self._pythons(root)
        own = [libraries.package(root, toolchain.glibc, config.platform)]
        locks: list[Lock] = []
        if config.cuda_version is not None:
            table = catalogue.load()
            # cuDNN comes from a wheel, of any Python that is here: it holds none
            lock, cudnn = self.nvidia([table.debian_cudnn], next(iter(pythons.values())), dependencies=False)
            locks.append(lock)
            own += debian_cuda.packages(
                simulated or root, table.debian_cuda, config.cuda_version, config.platform
            )
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
        prepared = self.to_prepare(made, *locks, also=[simulated.download] if simulated else [])
        if simulated:
            prepared["to_make"] += (8 if config.cuda_version else 2) * _GB
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
            **prepared,
            stand_ins=made.stand_ins,
            notes=(*self.notes(overrides), *notes),
            install_command=install_command,
        )

    def _root(self) -> tuple[DebianRoot, Toolchain, SimulatedRoot | None]:
        """Return the root and its compilers; a plan simulates a root that does not exist yet."""
        request, foreign = self.request, self.foreign
        cache, cuda = request.cache / "debian", request.config.cuda_version is not None
        if request.plan and debian_root.find(cache, cuda=cuda, foreign=foreign) is None:
            simulated = simulate_root(cache, request.report, cuda=cuda, foreign=foreign)
            return simulated.root, simulated.toolchain, simulated
        root = debian_root.make(cache, request.report, request.ask, cuda=cuda, foreign=foreign)
        triplet = foreign.triplet if foreign else ""
        return root, probe(root=root.path, enter=debian_root.enter(root.path), triplet=triplet), None

    def _pythons(self, root: DebianRoot) -> tuple[dict[str, Interpreter], dict[str, str]]:
        """Return the config's Pythons that are available, and why the others of another architecture are not."""
        if self.foreign is None:
            return self.interpreters(), {}
        config, unpacked = (
            self.request.config,
            self.foreign.interpreters(root.path / debian_root.SOURCE_FOLDER),
        )
        why = f"none of the Debian releases used here has it for {self.foreign.machine}"
        return (
            {python: unpacked[python] for python in config.pythons if python in unpacked},
            {python: why for python in config.pythons if python not in unpacked},
        )
