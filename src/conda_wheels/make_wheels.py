"""Make an index of wheels from a published channel; only new and changed packages are converted."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rattler.package_streaming import extract

from conda_wheels import licences, nvidia, simple_index, tools, wheel_tree
from conda_wheels.built import TORCH, BuiltPackage, build_command, find
from conda_wheels.licences import CondaRecord
from conda_wheels.simple_index import IndexedWheel
from conda_wheels.wheels_report import WheelIndex, WheelResult
from groundwork import files, wheel_file
from groundwork.damage import reading_archive
from groundwork.errors import BuildError, ProviderError
from groundwork.keys import Key
from groundwork.machine import machine_platform
from groundwork.progress import Notes
from megabuild import environments
from megabuild.configs.platforms import Platforms
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import Foreign
from megabuild.providers.debian.root import DebianRoot
from megabuild.store import published

#: Raise this number when the same packages give different wheels.
_FORMAT = "5"
#: This machine's glibc may be older than the packages need: no program of the environment with their libraries is run.
_NEWER_GLIBC = "2.99"
#: Begins the names of the packages with PyTorch's libraries.
_LIBTORCH = "libtorch"
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
        valid = _still_valid(indexed, channel, folder, report)
        wheels = dict(valid)
        results: list[WheelResult] = []
        for number, package in enumerate(packages):
            root = _root(request, package)
            inputs = wheel_inputs(package, root, channel, programs, request.date).digest
            wheel = _find_wheel(wheels, package, inputs)
            is_kept = wheel is not None
            if wheel is None:
                published.check(package.path)
                build = _WheelBuild(request, channel, package, root, folder=work / str(number), report=report)
                path = build.wheel()
                wheel = simple_index.index_entry(
                    path,
                    project=package.project,
                    python=package.python,
                    package=package.sha256,
                    inputs=inputs,
                )
                _replace_wheel(wheels, wheel, path)
            results.append(WheelResult(wheel=wheel, kept=is_kept, torch_pin=package.torch_pin))
        if wheels != valid or len(valid) < len(indexed):
            simple_index.publish(folder, wheels)
    return WheelIndex(
        folder=folder / simple_index.SIMPLE,
        made=tuple(results),
        missing_tests=published.find_missing_tests(channel, _contained(channel, packages)),
    )


def _contained(channel: Path, packages: Iterable[BuiltPackage]) -> list[str]:
    """Return the packages in wheels, as file names; PyTorch's wheel contains libtorch."""
    names = [package.path.name for package in packages]
    if any(package.project == TORCH for package in packages):
        names += [name for name in published.records(channel) if name.startswith(_LIBTORCH)]
    return names


def _still_valid(
    indexed: Iterable[IndexedWheel], channel: Path, folder: Path, report: Notes
) -> dict[IndexedWheel, Path]:
    """Return the intact wheels of an index whose packages are still published, with their files."""
    hashes = {record.sha256 for record in published.records(channel).values()}
    wheels: dict[IndexedWheel, Path] = {}
    for wheel in indexed:
        if wheel.package not in hashes:
            continue
        if not simple_index.is_intact(folder, wheel):
            report(f"{wheel.name} is damaged: it leaves the index")
            continue
        wheels[wheel] = folder / simple_index.SIMPLE / wheel.place
    return wheels


def _find_wheel(wheels: Iterable[IndexedWheel], package: BuiltPackage, inputs: str) -> IndexedWheel | None:
    """Return the wheel of a package if it was made from these inputs."""
    for wheel in wheels:
        if wheel.package == package.sha256 and wheel.inputs == inputs:
            return wheel
    return None


def _replace_wheel(wheels: dict[IndexedWheel, Path], wheel: IndexedWheel, path: Path) -> None:
    """Add a wheel, in place of a former one of the same project and Python."""
    for former in list(wheels):
        if (former.project, former.python) == (wheel.project, wheel.python):
            del wheels[former]
    wheels[wheel] = path


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
    inputs = WheelInputs(
        format=_FORMAT,
        programs=programs,
        date=date,
        package=package.sha256,
        version=package.wheel_version,
        requires=package.requires,
        libtorch=(),
        channels=(),
        root="",
    )
    if package.project != TORCH:
        return inputs
    records = published.records(channel)
    fingerprint = ""
    if root:
        fingerprint = root.fingerprint
    channels: list[str] = []
    for beside in published.channels_beside(channel)[:1]:
        channels += [place.address for place in beside]
    return replace(
        inputs,
        libtorch=sorted(records[name].sha256 for name in records if name.startswith(_LIBTORCH)),
        channels=channels,
        root=fingerprint,
    )


def _root(request: Request, package: BuiltPackage) -> DebianRoot | None:
    """Return the Debian root that PyTorch was compiled in, which has libraries that no package has.

    None if it is gone, but this machine may have these libraries itself.

    Raises BuildError: It is gone, and its libraries are for another platform than this machine's.
    """
    if package.project != TORCH or "_debian" not in request.config:
        return None
    platforms = Platforms(build=machine_platform(), target=package.subdir)
    problem = f"{package.path.name}: the Debian root with libraries for its wheel is missing"
    elsewhere = f"make the wheel on a {package.subdir} machine"
    try:
        foreign = Foreign.of(platforms)
    except ProviderError as error:  # no root of this machine has libraries for the platform
        raise BuildError(f"{problem}: {error.message}", elsewhere) from error
    found: DebianRoot | None = None
    reason = "it was deleted, or another release of megabuild makes another one"
    remedy = f"run again: {build_command(request.config)} (finished packages are kept), or {elsewhere}"
    try:
        found = debian_root.find(request.cache / "debian", cuda=package.cuda is not None, foreign=foreign)
    except ProviderError as error:  # no mirror is configured
        reason = error.message
        remedy = error.remedy
    if found is None and platforms.is_cross:
        raise BuildError(f"{problem}: {reason}", remedy)
    return found


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """The contents of a wheel."""

    prefix: Path  #: the folder of the files
    paths: Sequence[str]  #: of the files, below ``prefix``
    texts: Mapping[str, Path]  #: licence texts
    records: Mapping[str, CondaRecord] = field(default_factory=dict)  #: of an environment's packages


@dataclass(frozen=True, kw_only=True)
class _Linking:
    """The libraries that a wheel vendors, and those that it finds in other wheels."""

    without: Sequence[str]  #: sonames that are never vendored
    libraries: Sequence[Path] | None = None  #: folders of the vendored ones; None: it vendors none
    requires: Sequence[str] = ()  #: requirements on the other wheels
    folders: Sequence[str] = ()  #: of the other wheels' libraries, below site-packages


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
        package = self.built
        tree = self.folder / "tree"
        tree.mkdir(parents=True)
        self._report("laying out")
        contents = self._contents()
        wheel_tree.lay_out(contents.prefix, contents.paths, tree)
        wheel_tree.add_licences(tree, contents.texts)
        linking = _Linking(without=(*nvidia.LIBRARIES, *_PYTORCHS))
        if self._is_torch:
            wheel_tree.add_headers(contents.prefix, tree)
            linking = self._link_torch(contents, tree)
        wheel_tree.link(tree, linking.folders)
        wheel_file.name_version(tree, package.wheel_version, (*package.requires, *linking.requires))
        repaired = self._vendored(tree, linking)
        if self._is_torch:
            wheel_tree.set_vendored_rpaths(tree, linking.folders)
            wheel_tree.add_licences(tree, self._vendored_texts(contents, tree))
        shutil.rmtree(contents.prefix)
        self._report("packing")
        return wheel_file.pack(tree, self.folder / repaired.name, self.request.date)

    @property
    def _is_torch(self) -> bool:
        return self.built.project == TORCH

    def _contents(self) -> _Contents:
        if self._is_torch:
            return self._environment()
        return self._package()

    def _link_torch(self, contents: _Contents, tree: Path) -> _Linking:
        """Choose the libraries of PyTorch's wheel, and copy OpenMP's to its own."""
        needed = wheel_tree.needed(tree)
        libraries = [contents.prefix / "lib"]
        if self.root:
            libraries.append(self.root.libraries)
        without = [*nvidia.LIBRARIES]
        openmp = contents.prefix / "lib" / wheel_tree.OPENMP
        if wheel_tree.OPENMP in needed and openmp.is_file():
            shutil.copy(openmp, tree / wheel_tree.LIBRARIES)
            without.append(wheel_tree.OPENMP)
        others = nvidia.NvidiaWheels([], [])
        if self.built.cuda:
            others = nvidia.required(needed, self.built.cuda, contents.records)
        return _Linking(
            without=without, libraries=libraries, requires=others.requires, folders=others.folders
        )

    def _vendored(self, tree: Path, linking: _Linking) -> Path:
        """Replace a tree by one with vendored libraries; return the wheel that was unpacked to it."""
        name = wheel_tree.tag(tree, self.built.subdir)
        plain = wheel_file.pack(tree, self.folder / name, self.request.date, compressed=False)
        self._report("vendoring libraries")
        repaired = tools.auditwheel(
            plain,
            self.folder,
            libraries=linking.libraries,
            without=linking.without,
            date=self.request.date,
        )
        plain.unlink()
        shutil.rmtree(tree)
        wheel_file.unpack(repaired, tree)
        return repaired

    def _vendored_texts(self, contents: _Contents, tree: Path) -> Mapping[str, Path]:
        root = None
        if self.root:
            root = self.root.path
        return licences.of_vendored(tree, contents.records, root)

    def _report(self, step: str) -> None:
        name = f"{self.built.project} {self.built.wheel_version}"
        if self.built.python:
            name += f" for Python {self.built.python}"
        self.report(f"{name}: {step}")

    def _environment(self) -> _Contents:
        """Install PyTorch with its dependencies, which have the libraries that it links to."""
        folder = self.folder / "environment"
        virtual = {"__glibc": _NEWER_GLIBC}
        if self.built.cuda:
            virtual["__cuda"] = self.built.cuda
        solution = environments.solve(
            self.channel,
            [f"pytorch =={self.built.version} {self.built.build_string}"],
            virtual=virtual,
            platform=self.built.subdir,
        )
        environments.create(folder, solution, cache=self.request.cache, report=self.report)
        records = licences.installed(folder)
        names = ("libtorch", "pytorch", *sorted(records.keys() & {"pybind11", "fmt", "sleef"}))
        texts = licences.of_records(records, names)
        return _Contents(prefix=folder, paths=records["pytorch"]["files"], texts=texts, records=records)

    def _package(self) -> _Contents:
        """Unpack an extension, which links only to PyTorch."""
        folder = self.folder / "package"
        with reading_archive(self.built.path):
            extract(self.built.path, folder)
        paths = [path.relative_to(folder).as_posix() for path in files.below(folder)]
        texts = licences.of_package(self.built.project, folder)
        return _Contents(prefix=folder, paths=paths, texts=texts)
