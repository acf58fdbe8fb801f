"""Make an index of wheels from a published channel; only new and changed packages are converted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rattler.package_streaming import extract

from conda_wheels import licences, nvidia, simple_index, tools, wheel_tree
from conda_wheels.built import TORCH, BuiltPackage, find
from conda_wheels.wheels_report import WheelIndex, WheelResult
from groundwork import files, wheel_file
from groundwork.archives import explain_damage
from groundwork.errors import ProviderError
from groundwork.keys import Key
from groundwork.progress import Notes
from megabuild import environments
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.root import DebianRoot
from megabuild.store import published

#: Raise this number when the same packages give different wheels.
_FORMAT = "5"
#: This machine's glibc may be older than the packages need: no program of the environment with their libraries is run.
_NEWER_GLIBC = "2.99"
#: Libraries that a process has loaded once it has imported PyTorch; wheels of extensions do not vendor them.
_PYTORCHS = ("libtorch*", "libc10*", "libcaffe2*", "libshm*", wheel_tree.OPENMP)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The wheels to make, and their folder."""

    output: Path  #: the output folder of builds
    config: str  #: the run's name: ``linux_64_cpu_debian``
    pythons: tuple[str, ...]  #: make wheels for these only; empty: for all
    names: tuple[str, ...]  #: make wheels of these projects only; empty: of all
    cache: Path  #: the folder that configs share
    date: int  #: the date of all files in a wheel, in seconds since 1970


def make(request: Request, report: Notes) -> WheelIndex:
    """Make the requested wheels that the index lacks, and publish them together with the earlier ones.

    ``report`` gets a line for each step.

    Raises BusyError: Another process is making wheels in the same folder.
    """
    channel = environments.find_channel(request.output, request.config)
    packages = find(channel, request.pythons, request.names)
    programs = tools.versions()
    folder = request.output / "wheels" / request.config
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"{folder}: another process is making wheels in this folder"
    with files.sole_user(folder / ".lock", busy), files.scratch(folder) as work:
        simple_index.remove_former(folder)
        indexed = simple_index.read(folder)
        published_hashes = {record.sha256 for record in published.records(channel).values()}
        kept = [entry for entry in indexed if entry.package in published_hashes]
        wheels = {entry: folder / simple_index.SIMPLE / entry.place for entry in kept}
        results: list[WheelResult] = []
        for number, package in enumerate(packages):
            root = _root(request, package)
            inputs = wheel_inputs(package, root, channel, programs, request.date).digest
            former = next((wheel for wheel in wheels if wheel.package == package.sha256), None)
            if former and former.inputs == inputs:
                results.append(WheelResult(wheel=former, kept=True, torch_pin=package.torch_pin))
                continue
            published.check(package.path)
            build = _WheelBuild(request, channel, package, root, folder=work / str(number), report=report)
            path = build.wheel()
            wheel = simple_index.index_entry(
                path, project=package.project, python=package.python, package=package.sha256, inputs=inputs
            )
            same = (package.project, package.python)
            wheels = {other: at for other, at in wheels.items() if (other.project, other.python) != same}
            wheels[wheel] = path
            results.append(WheelResult(wheel=wheel, kept=False, torch_pin=package.torch_pin))
        if {*wheels} != {*indexed}:
            simple_index.publish(folder, wheels)
    return WheelIndex(folder=folder / simple_index.SIMPLE, made=tuple(results))


@dataclass(frozen=True, kw_only=True)
class WheelInputs(Key):
    """Everything that a wheel depends on. Only PyTorch's wheel has the last three."""

    format: str
    programs: Mapping[str, str]  #: versions of the programs that make it
    date: int  #: of its files
    package: str  #: sha256 of the conda package
    version: str
    requires: Sequence[str]
    libtorch: Sequence[str]  #: sha256 of libtorch's packages, sorted
    channels: Sequence[str]  #: the channels of its libraries, in order of priority
    root: str  #: fingerprint of the Debian root with its libraries, or empty


def wheel_inputs(
    package: BuiltPackage, root: DebianRoot | None, channel: Path, programs: Mapping[str, str], date: int
) -> WheelInputs:
    """Collect a wheel's inputs: its package, and for PyTorch libtorch and the source of its libraries."""
    is_torch = package.project == TORCH
    records = published.records(channel) if is_torch else {}
    beside = published.channels_beside(channel) if is_torch else []
    return WheelInputs(
        format=_FORMAT,
        programs=programs,
        date=date,
        package=package.sha256,
        version=package.wheel_version,
        requires=package.requires,
        libtorch=sorted(records[name].sha256 for name in records if name.startswith("libtorch")),
        channels=[str(place) for names in beside[:1] for place in names],
        root=root.fingerprint if root and is_torch else "",
    )


def _root(request: Request, package: BuiltPackage) -> DebianRoot | None:
    """Return the Debian root that PyTorch was compiled in, if it still exists; it has libraries that no package has."""
    if package.project != TORCH or "_debian" not in request.config:
        return None
    try:
        return debian_root.find(request.cache / "debian", cuda=package.cuda is not None)
    except ProviderError:  # no mirror is configured
        return None


#: The contents of a wheel: a folder, paths of files in it, and licence texts.
_Contents = tuple[Path, Sequence[str], Mapping[str, Path]]


@dataclass(frozen=True)
class _WheelBuild:
    """The build of one wheel, in a temporary folder."""

    request: Request
    channel: Path
    built: BuiltPackage
    root: DebianRoot | None
    folder: Path
    report: Notes

    def wheel(self) -> Path:
        package, date, laid_out, root = self.built, self.request.date, self.folder / "tree", self.root
        laid_out.mkdir(parents=True)
        self._report("laying out")
        is_torch = package.project == TORCH
        prefix, paths, texts = self._environment() if is_torch else self._package()
        wheel_tree.lay_out(prefix, paths, laid_out)
        wheel_tree.add_licences(laid_out, texts)
        requires, folders, records = list[str](), list[str](), licences.installed(prefix)
        libraries, without = None, [*nvidia.LIBRARIES]
        if is_torch:
            wheel_tree.add_headers(prefix, laid_out)
            needed = wheel_tree.needed(laid_out)
            if package.cuda:
                requires, folders = nvidia.required(needed, package.cuda, records)
            libraries = [prefix / "lib", *([root.libraries] if root else [])]
            openmp = prefix / "lib" / wheel_tree.OPENMP
            if wheel_tree.OPENMP in needed and openmp.is_file():
                shutil.copy(openmp, laid_out / wheel_tree.LIBRARIES)
                without.append(wheel_tree.OPENMP)
        else:
            without += _PYTORCHS
        wheel_tree.link(laid_out, folders)
        wheel_file.name_version(laid_out, package.wheel_version, (*package.requires, *requires))
        name = wheel_tree.tag(laid_out, package.path.parent.name)
        plain = wheel_file.pack(laid_out, self.folder / name, date, compressed=False)
        self._report("vendoring libraries")
        repaired = tools.auditwheel(plain, self.folder, libraries=libraries, without=without, date=date)
        plain.unlink()
        shutil.rmtree(laid_out)
        wheel_file.unpack(repaired, laid_out)
        if is_torch:
            wheel_tree.set_vendored_rpaths(laid_out, folders)
            texts = licences.of_vendored(laid_out, records, root.path if root else None)
            wheel_tree.add_licences(laid_out, texts)
        shutil.rmtree(prefix)
        self._report("packing")
        return wheel_file.pack(laid_out, self.folder / repaired.name, date)

    def _report(self, step: str) -> None:
        python = f" for Python {self.built.python}" if self.built.python else ""
        self.report(f"{self.built.project} {self.built.wheel_version}{python}: {step}")

    def _environment(self) -> _Contents:
        """Install PyTorch with its dependencies, which have the libraries that it links to."""
        folder = self.folder / "environment"
        solution = environments.solve(
            self.channel,
            [f"pytorch =={self.built.version} {self.built.build_string}"],
            virtual={"__glibc": _NEWER_GLIBC, **({"__cuda": self.built.cuda} if self.built.cuda else {})},
            platform=self.built.path.parent.name,
        )
        environments.create(folder, solution, cache=self.request.cache, report=self.report)
        records = licences.installed(folder)
        names = ("libtorch", "pytorch", *sorted(records.keys() & {"pybind11", "fmt", "sleef"}))
        return folder, records["pytorch"]["files"], licences.of_records(records, names)

    def _package(self) -> _Contents:
        """Unpack an extension, which links only to PyTorch."""
        folder = self.folder / "package"
        with explain_damage(self.built.path):
            extract(self.built.path, folder)
        paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
        return folder, paths, licences.of_package(self.built.project, folder)
