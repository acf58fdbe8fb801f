"""From an extension to its wheel in an environment, in five steps: decide, get ready, compile, judge, install.

All origins are chosen, and everything that a compile needs is tried, before the first extension is compiled. If an
origin then fails, another one is chosen.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from groundwork import files
from groundwork.errors import BuildError, IntegrityError, MegabuildError, ProviderError, UsageError
from groundwork.progress import Phases, title
from groundwork.wheel_file import why_broken
from groundwork.wording import counted
from pyg_extensions.archives import check_sources, source_identity, unpack_sources
from pyg_extensions.contents import look_inside
from pyg_extensions.find_wheel import WantedWheel, find_wheel, offers
from pyg_extensions.install.compile_wheel import Workshop, log_folder
from pyg_extensions.install.installation import ExtensionRequest, Installation, InstallOptions, Origin
from pyg_extensions.install.kept_wheels import KeptWheels
from pyg_extensions.install.pip import Pip
from pyg_extensions.install.user_environment import why_unfit


def plan(requests: Sequence[ExtensionRequest], options: InstallOptions) -> list[Installation]:
    """Choose the origin of each, in the order of their dependencies, and try what compiling needs.

    Nothing is changed, fetched or reported.

    Raises PreflightError: The environment cannot be written to.
    """
    options.environment.check_writable()
    options = replace(options, report=lambda sentence: None)
    with tempfile.TemporaryDirectory() as folder:
        decider = _Planner(options, fetch=False)
        installer = _Installer(options, decider, Path(folder))
        found: list[Installation] = []
        for request in requests:
            found.append(decider.decide(request, after=found))
            with found[-1].attempt(options.report):
                installer.prepare(found[-1], only_try=True)
    return found


def install(requests: Sequence[ExtensionRequest], options: InstallOptions) -> list[Installation]:
    """Install all, in the order of their dependencies; one that fails does not stop the others.

    Raises PreflightError: The environment, or another folder, cannot be written to.
    """
    options.environment.check_writable()
    files.writable(options.cache, "choose another folder: MEGABUILD_CACHE")
    if options.wheel_dir:
        files.writable(options.wheel_dir, "choose another folder: --wheel-dir")
    with files.scratch(options.cache / "install-pyg") as folder:
        decider = _Planner(options, fetch=True)
        installer = _Installer(options, decider, folder)
        found: list[Installation] = []
        for request in requests:
            found.append(decider.decide(request, after=found))
            with found[-1].attempt(options.report):
                installer.prepare(found[-1])
        for one in found:
            if one.error is None:
                with one.attempt(options.report):
                    installer.finish(one)
    return found


class _Planner:
    """Step 1: the installed one if it fits, an earlier compile, an index's wheel, the sources, in this order.

    Without ``fetch`` only local files and the index's pages are read.
    """

    def __init__(self, options: InstallOptions, *, fetch: bool) -> None:
        self._options, self._environment, self._report = options, options.environment, options.report
        self._fetch = fetch
        self.kept = KeptWheels(cache=options.cache, environment=options.environment)

    def decide(self, request: ExtensionRequest, after: Sequence[Installation]) -> Installation:
        """Choose an extension's origin; those that it may import have theirs already."""
        one = Installation(request=request)
        self._report(f"{one.name}:")
        with one.attempt(self._report, who=" "):
            # importing it is conclusive only if what it imports stays as it is
            imported = all(other.origin.how == "there" for other in after)
            if version := self._there(one, imported=imported):
                one.origin = Origin(how="there", named=version, imported=imported)
            else:
                one.origin = self.elsewhere(one)
        return one

    def _there(self, one: Installation, *, imported: bool) -> str:
        """Return the installed version if it fits, else an empty string."""
        there, asked = self._environment.distributions.get(one.name), one.request.version
        if there is None or self._options.force:
            return ""
        if asked and there.partition("+")[0] != asked:
            one.notes.append(f"{there} was there, {asked} was asked for")
            return ""
        problem = self.look(self._environment.prefix, one)
        if not problem and imported:
            problem = why_unfit(one.request.extension, self._environment)
        if problem:
            one.notes.append(f"{there} was there, but {problem}")
            self._report(f"  {one.notes[-1]}")
        return "" if problem else there

    def elsewhere(self, one: Installation, *, wheels: bool = True) -> Origin:
        """Choose the origin of an extension that is not installed; without ``wheels``, not from the index.

        Raises ProviderError: No wheel fits, and compiling is not allowed.
        Raises UsageError: The GPU architectures to compile for are unknown.
        """
        mode = self._options.mode
        compiled = Origin() if mode == "prebuilt" else self._compiled(one.request)
        if compiled.how == "kept":
            return compiled
        if mode != "source" and wheels and (prebuilt := self._prebuilt(one)):
            return prebuilt
        if mode == "prebuilt":
            raise ProviderError(one.notes[-1], "allow compiling it: --pyg auto")
        if self._environment.cuda_version is not None and not compiled.archs:
            raise UsageError(
                "the GPU architectures to compile for are unknown: no GPU here, and this PyTorch names none",
                'name them: --arch-list "9.0;12.0"',
            )
        return compiled

    def _prebuilt(self, one: Installation) -> Origin | None:
        """Return the best wheel of the index, or None, with a note why none fits."""
        wanted, version, index = self.wanted(one), one.request.version, self._options.index
        if self._fetch:
            choice = find_wheel(
                wanted,
                version,
                index=index,
                cache=self._options.cache,
                report=lambda sentence: self._report(f"  {sentence}"),
                judge=look_inside,
            )
            reason = choice.reason
            if choice.wheel is not None:
                return Origin(how="prebuilt", wheel=choice.wheel)
        else:
            fit = offers(wanted, version, index)
            reason = fit.reason
            if fit.wheels:
                return Origin(how="prebuilt", offered=fit.wheels[0])
        one.notes.append(f"no wheel: {reason}")
        self._report(f"  {one.notes[-1]}")
        return None

    def _compiled(self, request: ExtensionRequest) -> Origin:
        """Return its sources as origin, or the wheel of an earlier compile."""
        extension, version = request.extension, request.release.version
        archs = extension.able(self._environment.archs(self._options.archs))
        source = source_identity(extension, request.release, self._options.sources)
        place = self.kept.place(extension.name, version, source, archs, os.environ)
        if wheel := self.kept.find(place):
            return Origin(how="kept", wheel=wheel, archs=archs, place=place)
        return Origin(how="source", named=version, archs=archs, place=place)

    def look(self, path: Path, one: Installation) -> str:
        """Look into a wheel, or into the environment; what cannot be judged is left to the import that follows."""
        try:
            return look_inside(path, self.wanted(one))
        except UsageError as error:
            one.notes.append(f"not looked into: {error.message}")
            return ""

    def wanted(self, one: Installation) -> WantedWheel:
        """Return the requirements on an extension; one compiled here must have code for all requested archs."""
        compiled = one.origin.how in ("kept", "source")
        # A wheel, and an installed extension, must run on the named GPUs or those of this machine. If neither is known,
        # it is verified to run on whatever its PyTorch runs on.
        archs = one.origin.archs if compiled else self._options.archs or self._environment.devices
        return WantedWheel(
            extension=one.request.extension,
            target=self._environment,
            archs=archs if self._environment.cuda_version else (),
            exact_archs=compiled,
            beside=self._environment.prefix,
        )


class _Installer:
    """Steps 2 to 5, in a temporary folder."""

    def __init__(self, options: InstallOptions, decider: _Planner, folder: Path) -> None:
        self._options, self._decider, self._folder = options, decider, folder
        self._environment, self._report = options.environment, options.report
        self._pip = Pip(environment=options.environment, links=options.sources, temporary=folder)
        self._workshop = Workshop(
            environment=options.environment,
            jobs=options.jobs,
            folder=folder,
            objects=options.cache / "ccache",
        )
        self._logs = log_folder(options.logs, options.cache)
        # by architectures, what is wrong with the compilers; by name, sources and environment variables
        self._compilers: dict[tuple[str, ...], MegabuildError | None] = {}
        self._ready: dict[str, tuple[Path, dict[str, str]]] = {}

    def prepare(self, one: Installation, *, only_try: bool = False) -> None:
        """Step 2: before a compile, get everything that it needs, and try it; or only ask whether it can be had."""
        if one.origin.how != "source":
            return
        extension, archs, options = one.request.extension, one.origin.archs, self._options
        work = self._folder / one.name
        work.mkdir()
        environ = self._workshop.environ(work, archs)
        if archs not in self._compilers:
            self._report("trying the compilers")
            self._compilers[archs] = None
            try:
                self._workshop.check(environ, archs)
            except MegabuildError as error:
                self._compilers[archs] = error
        if problem := self._compilers[archs]:
            raise problem
        release = one.request.release
        if only_try:
            check_sources(extension, release, folder=options.sources, cache=options.cache)
            self._workshop.prepare(extension, self._pip, only_try=True)
            return
        self._workshop.prepare(extension, self._pip)
        source = unpack_sources(extension, release, work, folder=options.sources, cache=options.cache)
        self._workshop.ask(source, self._log(one), environ)
        self._ready[one.name] = (source, environ)

    def finish(self, one: Installation) -> None:
        """Install from the chosen origin; if that fails, choose another one."""
        if one.origin.how == "there":
            if one.origin.imported or not (problem := why_unfit(one.request.extension, self._environment)):
                return
            one.notes.append(f"{one.origin.version} was there, but {problem}")
            one.origin = self._decider.elsewhere(one)
            self.prepare(one)
        while wheel := one.origin.wheel:
            try:
                self._install(one, wheel)
                break
            except IntegrityError as error:  # the wheel's fault; a full disk or pip's own trouble ends it
                one.notes.append(f"wheel: {error.message}")
                if self._options.mode == "prebuilt":
                    raise ProviderError(one.notes[-1], "allow compiling it: --pyg auto") from error
            self._report(f"  {one.notes[-1]}")
            if one.origin.place:  # where wheels are kept that were compiled earlier
                shutil.rmtree(one.origin.place)
            one.origin = self._decider.elsewhere(one, wheels=False)
            self.prepare(one)
        else:
            wheel = self._compile(one)
            self._install(one, wheel)
        one.needs = self._decider.kept.needs(wheel, self._folder / f"{one.name}-libraries")
        if self._options.wheel_dir:
            shutil.copy(wheel, self._options.wheel_dir)
        one.origin = replace(one.origin, wheel=wheel)

    def _compile(self, one: Installation) -> Path:
        """Steps 3 and 4: compile, verify, and return the wheel that is kept."""
        origin, log, phases = one.origin, self._log(one), Phases()
        source, environ = self._ready.pop(one.name)
        what = f"{origin.version} for {', '.join(origin.archs)}" if origin.archs else origin.version
        jobs = counted(self._options.jobs, "job")
        self._report(f"{one.name}: compiling {what} with {jobs}, log: {log}")

        def seen(text: str) -> None:
            if step := phases.feed(text):
                what = title(one.name, self._environment.python, step.phase)
                self._options.progress(what, step.done, step.total)

        seen("::megabuild:: phase compile")
        made = self._workshop.build(source, log, environ, seen)
        if problem := self._decider.look(made, one):
            raise BuildError(f"it was compiled, but {problem} (see {log})", "fix what the log reports")
        assert origin.place is not None
        wheel = self._decider.kept.keep(made, origin.place)
        shutil.rmtree(self._folder / one.name)
        return wheel

    def _install(self, one: Installation, wheel: Path) -> None:
        """Step 5: install a wheel and its requirements, keeping PyTorch, and verify it."""
        self._report(f"{one.name}: installing {wheel.name}")
        what = f"pip does not install {wheel.name}"
        try:
            self._pip.run("install", "--no-deps", "--no-index", "--force-reinstall", str(wheel), what=what)
        except ProviderError as error:
            if why_broken(wheel) or "not a supported wheel" in error.message:
                raise IntegrityError(error.message, error.remedy) from error
            raise
        constraints = self._folder / "constraints.txt"
        constraints.write_text(f"torch=={self._environment.torch_version}\n")
        lacking: ProviderError | None = None
        try:
            what = f"what {one.name} requires"
            self._pip.run("install", "--constraint", str(constraints), str(wheel), what=what)
        except ProviderError as error:
            lacking = error
        problem = self._decider.look(self._environment.prefix, one)
        problem = problem or why_unfit(one.request.extension, self._environment)
        if problem and lacking is not None:
            raise ProviderError(f"{problem} ({lacking.message})", lacking.remedy)
        if problem:  # worse than nothing: programs would fail with it later
            self._pip.run("uninstall", "--yes", one.name, what=f"pip does not remove {one.name}")
            raise IntegrityError(
                f"it was installed, and removed again: {problem}",
                "see what it was compiled with, or use another index",
            )

    def _log(self, one: Installation) -> Path:
        return self._logs / f"{one.name}.log"
