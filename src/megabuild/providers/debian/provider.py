"""The provider of build environments from Debian's archive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from megabuild.isolation.engine import Engine
from megabuild.providers import catalogue, local_channel
from megabuild.providers.debian import cuda as debian_cuda
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment, Pending, virtual_gpu
from megabuild.providers.local.compilers import probe
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.provider import Figures, LocalProvider, base_python, requirements

_GB = 1_000_000_000
#: Folder of the source for a build inside a root.
SOURCE_INSIDE = "/opt/megabuild/source"
#: Features that recipe/build_env.sh disables with Debian's CUDA.
_CUDA_NOTE = (
    "disabled: NCCL, cuFile, cuSPARSELt and cuDSS (not in Debian), and flash and memory-efficient attention"
    " (would more than double the compile time)"
)


class DebianProvider(LocalProvider):
    """Makes a root folder of Debian's packages. Until it exists, a plan does not know its content."""

    engines = (Engine.BUBBLEWRAP,)
    fits_extension_wheels = False
    cpu_figures = Figures(
        tree=4,
        package=0.4,
        per_python=0.1,
        memory=1.7,
        hours=4.7,
        python_hours=0.5,
        hours_unoptimized=2.4,
        python_hours_unoptimized=0.45,
        tests_hours=1.0,
        one_python_tests_hours=1.5,
        basis="measured with PyTorch 2.6 on two cores",
    )
    cuda_figures = Figures(
        tree=7,
        package=1.5,
        per_python=0.1,
        memory=2.6,
        hours=7.5,
        python_hours=0.55,
        hours_unoptimized=3.7,
        python_hours_unoptimized=0.42,
        tests_hours=1.0,
        one_python_tests_hours=1.5,
        basis="measured with PyTorch 2.6, for one GPU architecture",
    )

    def environment(self, *, survey: bool) -> Environment:
        """Return the root and the local channel."""
        request = self.request
        config = request.config
        cache = request.cache / "debian"
        cuda = config.cuda_version is not None
        pythons = self.interpreters()
        base = base_python(config, pythons)
        if survey and debian_root.find(cache, cuda=cuda) is None:
            return self.plan_root(pythons, base)
        root = debian_root.make(cache, request.report, cuda=cuda)
        toolchain = probe(root=root.path, enter=debian_root.enter(root.path))
        notes = [f"libraries and source of PyTorch: Debian {root.release}"]
        own = [libraries.package(root, toolchain.glibc, config.platform)]
        if config.cuda_version is not None:
            table = catalogue.load()
            own += debian_cuda.packages(root, table.debian_cuda, config.cuda_version, config.platform)
            # cuDNN's wheel is the same for every Python, so any of them can resolve it
            any_python = next(iter(pythons.values()))
            own += self.nvidia([table.debian_cudnn], any_python, survey=survey, dependencies=False)
            notes.append(_CUDA_NOTE)
        needs = requirements(request.planned)
        needed = self.needed_pythons(pythons, base)
        channel = local_channel.make(
            request, needs, pythons, survey=survey, toolchain=toolchain, extra=own, only=needed
        )
        made = self.of_channel(channel, pythons, {"torch_python_base": base})
        return replace(
            made,
            root=root.path,
            of_root=keys_of_root(channel.packages),
            source=root.source,
            overrides={**made.overrides, "torch_source_path": (SOURCE_INSIDE,)},
            virtual_packages={**made.virtual_packages, "__glibc": toolchain.glibc},
            notes=(*made.notes, *notes),
        )

    def plan_root(self, pythons: Iterable[str], base: str) -> Environment:
        """Return the environment known before the root is made: the Pythons, and the root's size."""
        config = self.request.config
        size = 8 if config.cuda_version else 2
        notes = [
            f"the run makes a Debian root first ({size} GB), then decides whether to reuse an earlier build tree"
        ]
        command = debian_root.install_command()
        if command:
            notes.append(f"programs are missing; run: {command}")
        return Environment(
            channels=(),
            pythons=tuple(pythons),
            overrides=self.overrides({"torch_python_base": base}),
            virtual_packages=virtual_gpu(config),
            pending=Pending(bytes=size * _GB),
            notes=tuple(notes),
        )


def keys_of_root(packages: Iterable[LocalPackage]) -> dict[str, str]:
    """Return the keys of packages made from a root's files, by name, as if every root were the same."""
    keys: dict[str, str] = {}
    for package in packages:
        if "root" in package.inputs:
            keys[package.name] = replace(package, inputs={**package.inputs, "root": ""}).key
    return keys
