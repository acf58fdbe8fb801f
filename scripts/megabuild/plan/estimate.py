"""What building a config will want of time, disk and memory.

Figures and where they come from:

- Debian's PyTorch 2.6 with few features: 2.9 CPU hours for libtorch at -O2, 1.9 at -O0 (there without AVX kernels),
  0.66 and 0.46 per Python; 1.7 GB for the largest compile; a tree of 3.6 GB at -O0 (1.7 of objects, 0.4 of libraries,
  1.4 of setup.py's copy). Measured on two cores.
- The same with CUDA 12.4 for one architecture, without attention: 240 .cu files take 1.3 CPU hours with device
  code at -O0, 2.4 at -O3, the C++ around them 0.2; 2.6 GB for the largest.
- PyTorch 2.13 with all features for CPU: 5 h and then 0.5 h per Python reported for conda-forge's macOS runners
  (pytorch-cpu-feedstock #210), which have three cores: 15 and 1.5 CPU hours.
- The same with CUDA: 8 to 9 h for a config with five Pythons on conda-forge's CI (its #298), taken as eight cores;
  3 to 5.3 GB per compile of flash-attention (pytorch #130443, #124018), taken for all heavy kernels; a tree of 30 GB.
- Its other objects: what PyTorch Geometric's take with its headers (:mod:`groundwork.jobs`).
- Official wheels of PyTorch 2.13 taken apart: 3.7 CPU minutes and 2.1 GB at the peak for CPU and one Python;
  8 minutes on two cores and 7.1 GB for CUDA and two Pythons. No tree, but libraries that the engine copies
  several times.
- PyTorch Geometric's extensions: an environment of 5.2 GB with CUDA and 0.7 GB without, all tasks' linked to one copy,
  and up to 0.2 GB for each task at work; measured with PyTorch 2.13's wheels.
- A rehearsal: measured with this repository, a few CPU minutes and less than a gigabyte.
"""

from __future__ import annotations

from dataclasses import dataclass

from groundwork.jobs import bytes_per_compile

GB = 1_000_000_000
#: For one wheel, Python or compiler of the local channel, two at a time: 50 to 80 take two to four minutes.
_PACKING_SECONDS = 3.0
#: For each of nvcc's heavy objects at a time: the most that was reported of one, and an ordinary one beside it.
HEAVY_BYTES = 6 * GB


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Rough figures for one run."""

    disk: int = 0  #: bytes at the peak, packages included
    #: bytes of the largest compile; of the extensions' compilers, which take turns with PyTorch's, 0 without any
    memory_per_job: int = 0
    memory_of_ordinary: int = 0  #: bytes of an object that is not heavy
    heavy: bool = False  #: some objects take several times that (:data:`HEAVY_BYTES`)
    memory_of_extensions: int = 0
    cpu_hours: float = 0.0  #: PyTorch's part, on one core
    hours: float = 0.0  #: on the clock, with the jobs that will run at once
    #: compiling the extensions, with nothing from the object cache: on one core, and on the clock
    cpu_hours_of_extensions: float = 0.0
    hours_of_extensions: float = 0.0
    hours_of_packing: float = 0.0  #: once per machine, to pack the build tools
    basis: str = ""  #: where PyTorch's figures come from, in a few words

    @property
    def hours_in_all(self) -> float:
        """On the clock, from the start of the run to its end."""
        return self.hours_of_packing + self.hours + self.hours_of_extensions


@dataclass(frozen=True, kw_only=True)
class _Figures:
    tree: float
    package: float
    per_python: float
    memory: float
    basis: str
    hours: float = 0.0  #: CPU hours of libtorch's compile, and of each Python
    python_hours: float = 0.0
    heavy: bool = False  #: some objects take that much, and most take far less


_FIGURES = {
    "rehearsal": _Figures(
        tree=0.1, package=0.05, per_python=0.02, memory=0.5,
        hours=0.03, python_hours=0.02,
        basis="measured rehearsals",
    ),
    "debian-2": _Figures(
        tree=4.0, package=0.3, per_python=0.1, memory=1.7,
        hours=2.9, python_hours=0.7,
        basis="measured with PyTorch 2.6 on two cores",
    ),
    "debian-0": _Figures(
        tree=3.6, package=0.4, per_python=0.1, memory=1.7,
        hours=1.9, python_hours=0.5,
        basis="measured with PyTorch 2.6 at -O0 on two cores",
    ),
    "debian-cuda-2": _Figures(
        tree=7.0, package=1.5, per_python=0.1, memory=2.6,
        hours=5.7, python_hours=0.75,
        basis="measured with PyTorch 2.6, for one GPU architecture",
    ),
    "debian-cuda-0": _Figures(
        tree=7.0, package=1.5, per_python=0.1, memory=2.6,
        hours=3.4, python_hours=0.55,
        basis="measured with PyTorch 2.6 at -O0, for one GPU architecture",
    ),
    "wheel-cpu": _Figures(
        tree=0.8, package=0.3, per_python=0.2, memory=0.5,
        hours=0, python_hours=0.05,
        basis="measured with PyTorch 2.13's wheel for one Python",
    ),
    "wheel-cuda": _Figures(
        tree=2.5, package=1.0, per_python=0.2, memory=0.5,
        hours=0, python_hours=0.1,
        basis="measured with PyTorch 2.13's wheels for two Pythons",
    ),
    "official-cpu": _Figures(
        tree=12.0, package=0.5, per_python=0.2, memory=2.5,
        hours=15, python_hours=1.6,
        basis="reported for conda-forge's three-core runners",
    ),
    "official-cuda": _Figures(
        tree=30.0, package=2.0, per_python=0.2, memory=5.3, heavy=True,
        hours=56, python_hours=2.6,
        basis="reported for conda-forge's CUDA builds, taken as eight cores",
    ),
}  # fmt: skip


def kind(*, source: str, cuda: bool, optimization: str) -> str:
    """Name the kind of a build.

    `source`: ``official``, ``debian``, ``wheel`` or ``model``: what it is made from.
    """
    if source == "model":
        return "rehearsal"
    if source == "debian":
        return f"debian-{'cuda-' if cuda else ''}{'0' if optimization == '0' else '2'}"
    return f"{'wheel' if source == 'wheel' else 'official'}-{'cuda' if cuda else 'cpu'}"


def estimate(
    *,
    source: str,
    cuda: bool,
    optimization: str,
    pythons: int,
    staging: bool,
    extensions: int = 0,
    compiled: int = 0,
    extension_seconds: float = 0.0,
    jobs: int = 1,
    to_pack: int = 0,
) -> Estimate:
    """Estimate the disk, the memory and the time of a run: rough, since a first run is what tells."""
    figures = _FIGURES[kind(source=source, cuda=cuda, optimization=optimization)]
    cpu = staging * figures.hours + pythons * figures.python_hours
    # the tree once, half of it again while a package is made, packages and their unpacked test environments
    size = (
        1.5 * figures.tree + 3 * figures.package + 3 * pythons * figures.per_python
        if staging or pythons
        else 0.0
    )
    if extensions:
        size += (5.5 if cuda else 1.0) + 0.2 * min(jobs, extensions)
    return Estimate(
        disk=int(size * GB),
        memory_per_job=int(figures.memory * GB),
        memory_of_ordinary=bytes_per_compile(cuda=False) if figures.heavy else int(figures.memory * GB),
        heavy=figures.heavy,
        memory_of_extensions=bytes_per_compile(cuda=cuda) if compiled else 0,
        basis=figures.basis,
        cpu_hours=cpu,
        hours=cpu / jobs,
        cpu_hours_of_extensions=extension_seconds / 3600,
        hours_of_extensions=extension_seconds / 3600 / jobs,
        hours_of_packing=to_pack * _PACKING_SECONDS / 3600,
    )
