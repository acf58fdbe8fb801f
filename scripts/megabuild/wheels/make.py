"""From a published channel to an index of wheels: only what is new or has changed is made."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from rattler.package_streaming import extract

from megabuild import files
from megabuild.errors import BusyError, IntegrityError
from megabuild.plan import published
from megabuild.using import prefix
from megabuild.wheels import index, licences, pack, tools, tree
from megabuild.wheels.built import TORCH, Built, find
from megabuild.wheels.index import Wheel

#: To be raised where other wheels are made of the same packages.
_FORMAT = "1"
#: Nothing of the environment that libraries are taken from is run: this machine may be older than what was built.
_NEWER_GLIBC = "2.99"
#: What an extension finds in a process that has imported PyTorch: PyTorch's libraries and those it was linked to.
_PYTORCHS = ("libtorch*", "libc10*", "libcaffe2*", "libshm*", "libcu*", "libnv*", "libnccl*", tree.OPENMP)
_MANYLINUX = re.compile(r"manylinux_2_(\d+)_")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What somebody wants."""

    #: the output folder of builds, and the run's name: ``linux_64_cpu_debian``
    output: Path
    config: str
    #: only these; empty for all
    pythons: tuple[str, ...]
    names: tuple[str, ...]
    #: folder that is shared by all configs
    cache: Path
    #: seconds since 1970, which everything in a wheel has as its date
    date: int


@dataclass(frozen=True, kw_only=True)
class Made:
    """A wheel that was asked for."""

    wheel: Wheel
    #: it was there already
    kept: bool
    #: what it needs PyTorch as
    torch_pin: str

    @property
    def glibc(self) -> str:
        """The oldest glibc that it runs with: ``2.36``."""
        return ", ".join(f"2.{minor}" for minor in sorted(_MANYLINUX.findall(self.wheel.name), key=int)[:1])


@dataclass(frozen=True, kw_only=True)
class Index:
    """What came out."""

    folder: Path
    made: tuple[Made, ...]
    #: wheels of former calls that are in it besides
    others: int


def make(request: Request, report: Callable[[str], None]) -> Index:
    """Make the wheels that are wanted and not there yet, and publish them together with those of former calls.

    Parameters
    ----------
    request:
        What is wanted.
    report:
        Told what is being done, a line at a time.

    Raises
    ------
    ConfigError, UsageError
        There is nothing to make wheels of, or not what was asked for.
    BuildError
        A wheel cannot have what a package needs.
    BusyError
        Another process is making this config's wheels.
    PreflightError
        auditwheel or patchelf is missing.
    """
    channel = prefix.find(request.output, request.config)
    wanted = find(channel, request.pythons, request.names)
    programs = tools.versions()
    folder = request.output / "wheels" / request.config
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder), files.scratch(folder) as work:
        there = index.read(folder)
        still = {record.sha256 for record in published.records(channel).values()}
        every = {one: folder / index.SIMPLE / one.place for one in there if one.package in still}
        made: list[Made] = []
        for number, one in enumerate(wanted):
            made_from = json.dumps(
                [_FORMAT, programs, request.date, one.sha256, one.wheel_version, one.requires]
            )
            inputs = hashlib.sha256(made_from.encode()).hexdigest()
            former = next((wheel for wheel in every if wheel.package == one.sha256), None)
            if former and former.inputs == inputs:
                made.append(Made(wheel=former, kept=True, torch_pin=one.torch_pin))
                continue
            place = work / str(number)
            place.mkdir()
            path = _Work(request=request, channel=channel, built=one, folder=place, report=report).wheel()
            wheel = index.described(
                path, project=one.project, python=one.python, package=one.sha256, inputs=inputs
            )
            # another wheel of this Python and project was of a package of a former build
            every = {
                known: at
                for known, at in every.items()
                if (known.project, known.python) != (wheel.project, wheel.python)
            }
            every[wheel] = path
            made.append(Made(wheel=wheel, kept=False, torch_pin=one.torch_pin))
        if {*every} != {*there} or any(not one.kept for one in made):
            index.publish(folder, every)
        return Index(folder=folder / index.SIMPLE, made=tuple(made), others=len(every) - len(made))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise BusyError(f"another process is making the wheels in {folder}", "wait for it") from error


@dataclass(frozen=True, kw_only=True)
class _Work:
    """Making one wheel."""

    request: Request
    channel: Path
    built: Built
    #: empty, and removed at the end
    folder: Path
    report: Callable[[str], None]

    def wheel(self) -> Path:
        """Make it; returns the file."""
        laid_out = self.folder / "tree"
        laid_out.mkdir()
        one = self.built
        named = f"{one.project} {one.wheel_version}" + (f" for Python {one.python}" if one.python else "")
        self.report(f"{named}: laying out")
        environment = None
        if one.project == TORCH:
            environment = self._torch(laid_out)
        else:
            self._extension(laid_out)
        outside = tree.link(laid_out)
        without: tuple[str, ...] = _PYTORCHS
        if environment is not None:
            without = (tree.OPENMP,)
            openmp = environment / "lib" / tree.OPENMP
            if tree.OPENMP in outside and openmp.is_file():
                shutil.copy(
                    openmp, laid_out / tree.LIBRARIES
                )  # as upstream does: under the name extensions know
        tree.name_version(laid_out, one.wheel_version, one.requires)
        name = tree.tag(laid_out, one.path.parent.name)
        self.report(f"{named}: auditwheel")
        plain = pack.pack(laid_out, self.folder / name, self.request.date, compressed=False)
        libraries = environment / "lib" if environment else None
        repaired = tools.auditwheel(
            plain, self.folder, libraries=libraries, without=without, date=self.request.date
        )
        plain.unlink()
        shutil.rmtree(laid_out)
        pack.unpack(repaired, laid_out)
        if environment is not None:
            tree.link_vendored(laid_out)
            tree.add_licences(laid_out, licences.of_vendored(laid_out, licences.installed(environment)))
            shutil.rmtree(environment)
        self.report(f"{named}: packing")
        return pack.pack(laid_out, self.folder / repaired.name, self.request.date)

    def _torch(self, laid_out: Path) -> Path:
        """Lay out PyTorch, from an environment of it; returns the environment, which has what it links to."""
        one, environment = self.built, self.folder / "environment"
        wanted = prefix.Wanted(
            specs=(f"pytorch =={one.version} {one.build}",),
            published=self.channel,
            virtual={"__glibc": _NEWER_GLIBC},
        )
        solution = prefix.solve(wanted)
        prefix.create(environment, wanted, solution, cache=self.request.cache, report=self.report)
        records = licences.installed(environment)
        tree.lay_out(environment, records["pytorch"]["files"], laid_out)
        tree.add_licences(laid_out, licences.of_records(records, ("libtorch", "pytorch")))
        return environment

    def _extension(self, laid_out: Path) -> None:
        """Lay out an extension, from its package alone."""
        unpacked = self.folder / "package"
        try:
            extract(self.built.path, unpacked)
        except Exception as error:  # rattler's errors share no base class
            raise IntegrityError(f"{self.built.path} cannot be read: {error}", "build it again") from error
        paths = [path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*")]
        tree.lay_out(unpacked, [path for path in paths if not (unpacked / path).is_dir()], laid_out)
        tree.add_licences(laid_out, licences.of_package(self.built.project, unpacked))
