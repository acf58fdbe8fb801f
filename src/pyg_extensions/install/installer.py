"""Install extensions into an environment: choose each origin, prepare, compile, verify, install.

The origins of all extensions are chosen, and all tools of a compile are tested, before the first one is compiled.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from packaging.utils import parse_wheel_filename

from groundwork import files
from groundwork.errors import BuildError, IntegrityError, OutOfSpaceError, ProviderError, UsageError
from groundwork.machine import is_full
from groundwork.network.index import configured
from groundwork.progress import Phases, title
from groundwork.text import counted
from groundwork.wheel_file import why_broken
from pyg_extensions.fetch_sources import source_identity, unpack_sources
from pyg_extensions.find_wheel import WheelRequirements, find_fault, find_wheel, offers
from pyg_extensions.install.compile_wheel import Builder, log_folder
from pyg_extensions.install.installation import Installation, InstallOptions, Mode, Origin
from pyg_extensions.install.kept_wheel import compiled_wheel
from pyg_extensions.install.user_environment import check_installed, find_import_fault, run_pip

_OTHER_CACHE = "set MEGABUILD_CACHE to another folder"


def plan(requests: Sequence[Installation], options: InstallOptions) -> None:
    """Choose the origin of each extension and test the tools of a compile; change and report nothing.

    Raises PreflightError: The environment or the cache cannot be written to.
    Raises OutOfSpaceError: One of their disks is full.
    """
    options.environment.check_writable()
    files.check_creatable(options.cache, _OTHER_CACHE)
    _check_space(options)
    with tempfile.TemporaryDirectory() as folder:
        _Installer(options, Path(folder), only_plan=True).choose_all(requests)


def install(requests: Sequence[Installation], options: InstallOptions) -> None:
    """Install all extensions in the order of their dependencies; one that fails does not stop the others.

    Raises PreflightError: The environment or the cache cannot be written to.
    Raises OutOfSpaceError: One of their disks is full.
    Raises BusyError: Another process installs into the environment.
    """
    options.environment.check_writable()
    files.writable(options.cache, _OTHER_CACHE)
    _check_space(options)
    # two pips at once remove each other's files; the environment's lock is in the cache, by its path
    prefix = options.environment.prefix.resolve()
    name = hashlib.sha256(os.fsencode(prefix)).hexdigest()[:16]
    lock = options.cache / "in-use" / f"install-pyg-{name}.lock"
    busy = f"{prefix}: another process installs into it"
    with files.scratch(options.cache / "install-pyg") as folder, files.sole_user(lock, busy):
        installer = _Installer(options, folder, only_plan=False)
        installer.choose_all(requests)
        for request in requests:
            if request.error is None:
                with request.attempt(options.report):
                    installer.finish(request)


def _check_space(options: InstallOptions) -> None:
    """Raise OutOfSpaceError if the disk of the cache or of the environment is full."""
    for folder in (options.cache, options.environment.site):
        if is_full(files.existing_part(folder)):
            raise OutOfSpaceError(f"{folder}: the disk is full", "free disk space there")


def _ignore(sentence: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True)
class _Compile:
    """A prepared compile."""

    source: Path  #: the folder of setup.py
    environ: dict[str, str]
    kept: Path  #: the folder for its wheel, by the sources before they were copied: users may edit a checkout meanwhile


class _Installer:
    def __init__(self, options: InstallOptions, folder: Path, *, only_plan: bool) -> None:
        self._options = options
        self._folder = folder
        self._only_plan = only_plan
        self._environment = options.environment
        if only_plan:
            self._report: Callable[[str], None] = _ignore
            self._logs = options.logs
        else:
            self._report = options.report
            self._logs = log_folder(options.logs, options.cache)
        self._pip = partial(run_pip, options.environment, links=options.sources, temporary=folder)
        self._builder = Builder(
            environment=options.environment,
            jobs=options.jobs,
            folder=folder,
            objects=options.cache / "ccache",
        )
        #: architectures for which the compilers work
        self._tested: set[tuple[str, ...]] = set()
        self._ready: dict[str, _Compile] = {}  # by extension

    def choose_all(self, requests: Sequence[Installation]) -> None:
        """Choose the origin of each extension, and prepare the compiles."""
        changes = False
        for request in requests:
            self._report(f"{request.name}:")
            with request.attempt(self._report):
                # an import proves nothing if an extension that it imports will be replaced
                if not self._is_installed(request, with_import=not changes):
                    self._choose(request)
            if request.origin is not Origin.INSTALLED:
                changes = True

    def _is_installed(self, request: Installation, *, with_import: bool) -> bool:
        request.installed = self._environment.distributions.get(request.name, "")
        if not request.installed:
            return False
        problem = ""
        if not request.accepts(request.installed):
            problem = f"{request.asked} is requested"
        if not problem:
            problem = self._fault(self._environment.prefix, request)
        if not problem and with_import:
            problem = find_import_fault(request.extension, self._environment)
        if problem:
            self._note_fault_of_installed(request, problem)
            return False
        request.origin = Origin.INSTALLED
        request.imported = with_import
        return True

    def _note_fault_of_installed(self, request: Installation, problem: str) -> None:
        self._note(request, f"{request.installed} is installed, but {problem}")

    def _choose(self, request: Installation) -> None:
        """Choose the wheel compiled earlier, a wheel of the index, or the sources, and prepare these."""
        request.archs = request.extension.able(self._environment.archs(self._options.archs))
        mode = self._options.mode
        if mode is not Mode.PREBUILT:
            request.wheel = self._find_kept(request)
            if request.wheel:
                request.origin = Origin.KEPT
                return
        if mode is not Mode.SOURCE and self._find_prebuilt(request):
            request.origin = Origin.PREBUILT
            return
        self._get_ready(request)

    def _find_kept(self, request: Installation) -> Path | None:
        """Return the wheel compiled earlier, if there is one, and it is intact and of the requested version."""
        for wheel in self._kept_folder(request).glob("*.whl"):
            if why_broken(wheel):
                continue
            # a checkout may have another version than the matrix
            _, version, _, _ = parse_wheel_filename(wheel.name)
            if request.accepts(str(version)):
                return wheel
        return None

    def _find_prebuilt(self, request: Installation) -> bool:
        """Find the best wheel of the index, or note why none fits."""
        wanted = self._requirements_on_index(request)
        if self._only_plan:
            wheels, reason = offers(wanted, request.asked, self._options.index)
            if wheels:
                request.offered = wheels[0].name
                return True
        else:
            choice = find_wheel(
                wanted,
                request.asked,
                index=self._options.index,
                cache=self._options.cache,
                report=lambda sentence: self._report(f"  {sentence}"),
            )
            request.wheel = choice.wheel
            if request.wheel:
                return True
            reason = choice.reason
        self._note(request, f"no wheel: {reason}")
        return False

    def _kept_folder(self, request: Installation) -> Path:
        """Return the folder for a wheel compiled here."""
        release = request.release
        source = source_identity(request.extension, release, self._options.sources)
        key = compiled_wheel(self._environment, request.archs, source, os.environ)
        return self._options.cache / "pyg-compiled" / f"{release.name}-{release.version}-{key.digest[:16]}"

    def _requirements_on_index(self, request: Installation) -> WheelRequirements:
        """Return the requirements on a wheel of the index.

        If no GPU is known, the environment may be for another machine: the wheel must run wherever PyTorch does. It
        needs no PTX, which PyTorch has for GPUs that come later.
        """
        wanted = self._requirements(request)
        if self._environment.cuda_version and not wanted.archs:
            archs = tuple(arch.removesuffix("+PTX") for arch in self._environment.torch_archs)
            wanted = replace(wanted, archs=archs)
        return wanted

    def _requirements(self, request: Installation) -> WheelRequirements:
        """Return the requirements on a wheel or an installed extension."""
        is_compiled = request.origin is not None and request.origin.is_compiled
        archs: tuple[str, ...] = ()
        # An extension compiled here must have code for all requested archs. Another one must run on the named GPUs or
        # on those of this machine; if neither is known, on some GPUs of its PyTorch.
        if self._environment.cuda_version and is_compiled:
            archs = request.archs
        elif self._environment.cuda_version:
            archs = self._options.archs or self._environment.devices
        return WheelRequirements(
            extension=request.extension,
            target=self._environment,
            archs=archs,
            exact_archs=is_compiled,
            beside=self._environment.prefix,
        )

    def _fault(self, path: Path, request: Installation) -> str:
        """Return the fault of a wheel or of the environment; without a verdict, the import that follows decides."""
        try:
            return find_fault(path, self._requirements(request))
        except UsageError as error:
            request.notes.append(f"not verified: {error.message}")
            return ""

    def _get_ready(self, request: Installation) -> None:
        """Get all that a compile needs, and test it; for a plan, only ask whether the servers have it."""
        if self._options.mode is Mode.PREBUILT:
            raise ProviderError(request.notes[-1], "allow compiling: --pyg auto")
        request.origin = Origin.SOURCE
        request.wheel = None
        archs = request.archs
        if self._environment.cuda_version is not None and not archs:
            raise UsageError(
                "GPU architectures unknown: this machine has no GPU, and PyTorch names none",
                'pass them: --arch-list "9.0;12.0"',
            )
        work = self._folder / request.name
        work.mkdir()
        environ = self._builder.environ(work, archs)
        if archs not in self._tested:
            self._report("testing the compilers")
            self._builder.check(environ, archs)
            self._tested.add(archs)
        self._builder.prepare(request.extension, self._pip, only_try=self._only_plan)
        kept = self._kept_folder(request)
        source = unpack_sources(
            request.extension,
            request.release,
            work,
            folder=self._options.sources,
            cache=self._options.cache,
            indexes=partial(configured, self._environment.pip),
            only_try=self._only_plan,
        )
        if not self._only_plan:
            version = self._builder.check_setup(source, self._log(request), environ)
            if version and not request.accepts(version):
                raise ProviderError(
                    f"{request.name} {request.asked}: the sources are of version {version}",
                    f"check out {request.asked} in the folder of --pyg-sources, or request {version}",
                )
            self._ready[request.name] = _Compile(source=source, environ=environ, kept=kept)

    def finish(self, request: Installation) -> None:
        """Install from the chosen origin; compile if the wheel proves faulty."""
        if request.origin is Origin.INSTALLED:
            if request.imported:
                return
            problem = find_import_fault(request.extension, self._environment)
            if not problem:
                return
            self._note_fault_of_installed(request, problem)
            self._choose(request)
        if request.wheel:
            try:
                self._install(request, request.wheel)
                return
            except IntegrityError as error:  # only the wheel's fault; compiling does not help on a full disk
                self._note(request, f"wheel: {error.message}")
            self._discard_if_damaged(request)
            self._get_ready(request)
        request.wheel = self._compile(request)
        self._install(request, request.wheel)

    def _discard_if_damaged(self, request: Installation) -> None:
        """Delete a kept wheel whose own content is faulty; another one stays until a new compile replaces it."""
        wheel = request.wheel
        if request.origin is not Origin.KEPT or wheel is None:
            return
        if why_broken(wheel) or self._fault(wheel, request):
            shutil.rmtree(wheel.parent)

    def _compile(self, request: Installation) -> Path:
        """Compile, verify the wheel, move it to the kept wheels and return its path."""
        log = self._log(request)
        ready = self._ready.pop(request.name)
        subject = request.version
        if request.archs:
            subject += f" for {', '.join(request.archs)}"
        jobs = counted(self._options.jobs, "job")
        self._report(f"{request.name}: compiling {subject} with {jobs}, log: {log}")

        phases = Phases()

        def follow(text: str) -> None:
            step = phases.feed(text)
            if not step:
                return
            subject = title(request.name, self._environment.python, step.phase)
            if step.total:
                subject += f" {step.done}/{step.total}"
            self._options.progress(subject)

        follow("::megabuild:: phase compile")
        wheel = self._builder.build(ready.source, log, ready.environ, follow)
        if problem := self._fault(wheel, request):
            raise BuildError(f"the compiled wheel {problem} (log: {log})", "fix the error in the log")
        kept = ready.kept / wheel.name
        files.move(wheel, kept)
        shutil.rmtree(self._folder / request.name)
        return kept

    def _install(self, request: Installation, wheel: Path) -> None:
        """Install a wheel and its requirements, without changing PyTorch, and verify it."""
        self._report(f"{request.name}: installing {wheel.name}")
        subject = f"pip cannot install {wheel.name}"
        try:
            self._pip("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel), what=subject)
        except ProviderError as error:
            if why_broken(wheel) or "not a supported wheel" in error.message:
                raise IntegrityError(error.message, error.remedy) from error
            raise
        check_installed(self._environment, wheel)
        constraints = self._folder / "constraints.txt"
        constraints.write_text(f"torch=={self._environment.torch_version}\n")
        lacking: ProviderError | None = None
        try:
            subject = f"pip cannot install the requirements of {request.name}"
            self._pip("install", "--constraint", str(constraints), str(wheel), what=subject)
        except ProviderError as error:
            lacking = error
        problem = self._fault(self._environment.prefix, request)
        problem = problem or find_import_fault(request.extension, self._environment)
        if not problem:
            return
        if lacking is not None:
            raise ProviderError(f"{problem} ({lacking.message})", lacking.remedy)
        # a faulty extension is worse than none: programs would fail with it later
        subject = f"pip cannot remove {request.name}"
        self._pip("uninstall", "--yes", request.name, what=subject, links=None)
        raise IntegrityError(
            f"{wheel.name} was installed, and removed again: {problem}",
            "use another index (--pyg-index), or compile: --pyg source",
        )

    def _note(self, request: Installation, text: str) -> None:
        request.notes.append(text)
        self._report(f"  {text}")

    def _log(self, request: Installation) -> Path:
        return self._logs / f"{request.name}.log"
