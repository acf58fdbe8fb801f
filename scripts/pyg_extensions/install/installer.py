"""From an extension to its wheel in an environment: choose its origin, get ready, compile, judge, install.

The origins of all are chosen, and everything that a compile needs is tried, before the first one is compiled.
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
from groundwork.text import counted
from groundwork.wheel_file import why_broken
from pyg_extensions.archives import check_sources, source_identity, unpack_sources
from pyg_extensions.contents import find_fault
from pyg_extensions.find_wheel import WheelRequirements, find_wheel, offers
from pyg_extensions.install.compile_wheel import Workshop, log_folder
from pyg_extensions.install.installation import ExtensionRequest, Installation, InstallOptions, Origin
from pyg_extensions.install.kept_wheels import keep_wheel, kept_wheel, wheel_folder
from pyg_extensions.install.pip import Pip
from pyg_extensions.install.user_environment import find_import_fault


def plan(requests: Sequence[ExtensionRequest], options: InstallOptions) -> list[Installation]:
    """Choose the origin of each and try what compiling needs; nothing is changed, fetched or reported.

    Raises PreflightError: The environment cannot be written to.
    """
    options.environment.check_writable()
    with tempfile.TemporaryDirectory() as folder:
        quiet = replace(options, report=lambda sentence: None)
        return _Installer(quiet, Path(folder), only_plan=True).choose_all(requests)


def install(requests: Sequence[ExtensionRequest], options: InstallOptions) -> list[Installation]:
    """Install all, in the order of their dependencies; one that fails does not stop the others.

    Raises PreflightError: The environment, or another folder, cannot be written to.
    """
    options.environment.check_writable()
    files.writable(options.cache, "choose another folder: MEGABUILD_CACHE")
    if options.wheel_dir:
        files.writable(options.wheel_dir, "choose another folder: --wheel-dir")
    with files.scratch(options.cache / "install-pyg") as folder:
        installer = _Installer(options, folder, only_plan=False)
        chosen = installer.choose_all(requests)
        for extension in chosen:
            if extension.error is None:
                with extension.attempt(options.report):
                    installer.finish(extension)
    return chosen


class _Installer:
    """Works in a temporary folder."""

    def __init__(self, options: InstallOptions, folder: Path, *, only_plan: bool) -> None:
        self._options, self._folder, self._only_plan = options, folder, only_plan
        self._environment, self._report = options.environment, options.report
        self._pip = Pip(environment=options.environment, links=options.sources, temporary=folder)
        self._workshop = Workshop(
            environment=options.environment,
            jobs=options.jobs,
            folder=folder,
            objects=options.cache / "ccache",
        )
        self._logs = options.logs if only_plan else log_folder(options.logs, options.cache)
        # by architectures, what is wrong with the compilers; by name, sources and environment variables
        self._compilers: dict[tuple[str, ...], MegabuildError | None] = {}
        self._ready: dict[str, tuple[Path, dict[str, str]]] = {}

    def choose_all(self, requests: Sequence[ExtensionRequest]) -> list[Installation]:
        """Choose the origin of each, and get ready what is to be compiled."""
        chosen: list[Installation] = []
        for request in requests:
            installation = Installation(request=request)
            # importing it is conclusive only if what it imports stays as it is
            alone = all(other.origin.how == "there" for other in chosen)
            chosen.append(installation)
            self._report(f"{installation.name}:")
            with installation.attempt(self._report, who=" "):
                installation.origin = self._installed(installation, with_import=alone) or self._elsewhere(
                    installation
                )
                self._get_ready(installation)
        return chosen

    def _installed(self, installation: Installation, *, with_import: bool) -> Origin | None:
        there, asked = self._environment.distributions.get(installation.name), installation.request.version
        if there is None or self._options.force:
            return None
        problem = f"{asked} was asked for" if asked and there.partition("+")[0] != asked else ""
        origin = Origin(how="there", named=there, imported=with_import)
        problem = problem or self._look(self._environment.prefix, installation)
        if not problem and with_import:
            problem = find_import_fault(installation.request.extension, self._environment)
        if problem:
            self._note(installation, f"{there} was there, but {problem}")
        return None if problem else origin

    def _elsewhere(self, installation: Installation) -> Origin:
        """Choose what was compiled earlier, a wheel of the index or the sources, in this order.

        Raises ProviderError: No wheel fits, and compiling is not allowed.
        """
        compiled = Origin() if self._options.mode == "prebuilt" else self._compiled(installation.request)
        if compiled.how == "kept":
            return compiled
        if self._options.mode != "source" and (prebuilt := self._prebuilt(installation)):
            return prebuilt
        if self._options.mode == "prebuilt":
            raise ProviderError(installation.notes[-1], "allow compiling it: --pyg auto")
        return compiled

    def _prebuilt(self, installation: Installation) -> Origin | None:
        """Return the best wheel of the index, or None, with a note why none fits."""
        wanted, version, index = self._wanted(installation), installation.request.version, self._options.index
        if self._only_plan:
            fit = offers(wanted, version, index)
            if fit.wheels:
                return Origin(how="prebuilt", offered=fit.wheels[0])
            reason = fit.reason
        else:
            choice = find_wheel(
                wanted,
                version,
                index=index,
                cache=self._options.cache,
                report=lambda sentence: self._report(f"  {sentence}"),
                judge=find_fault,
            )
            if choice.wheel is not None:
                return Origin(how="prebuilt", wheel=choice.wheel)
            reason = choice.reason
        self._note(installation, f"no wheel: {reason}")
        return None

    def _compiled(self, request: ExtensionRequest) -> Origin:
        """Return its sources as origin, or the wheel of an earlier compile."""
        extension, release, options = request.extension, request.release, self._options
        archs = extension.able(self._environment.archs(options.archs))
        source = source_identity(extension, release, options.sources)
        folder = wheel_folder(
            options.cache, f"{extension.name}-{release.version}", source, self._environment, archs, os.environ
        )
        if wheel := kept_wheel(folder):
            return Origin(how="kept", wheel=wheel, archs=archs, place=folder)
        return Origin(how="source", named=release.version, archs=archs, place=folder)

    def _wanted(self, installation: Installation) -> WheelRequirements:
        """Return the requirements on an extension; one compiled here must have code for all requested archs."""
        compiled = installation.origin.how in ("kept", "source")
        # A wheel, and an installed extension, must run on the named GPUs or those of this machine. If neither is known,
        # it is verified to run on whatever its PyTorch runs on.
        archs = installation.origin.archs if compiled else self._options.archs or self._environment.devices
        return WheelRequirements(
            extension=installation.request.extension,
            target=self._environment,
            archs=archs if self._environment.cuda_version else (),
            exact_archs=compiled,
            beside=self._environment.prefix,
        )

    def _look(self, path: Path, installation: Installation) -> str:
        """Look into a wheel, or into the environment; what cannot be judged is left to the import that follows."""
        try:
            return find_fault(path, self._wanted(installation))
        except UsageError as error:
            installation.notes.append(f"not looked into: {error.message}")
            return ""

    def _get_ready(self, installation: Installation) -> None:
        """Before a compile, get everything that it needs, and try it; for a plan, ask whether it can be had."""
        if installation.origin.how != "source":
            return
        extension, release, archs = (
            installation.request.extension,
            installation.request.release,
            installation.origin.archs,
        )
        if self._environment.cuda_version is not None and not archs:
            raise UsageError(
                "the GPU architectures to compile for are unknown: no GPU here, and this PyTorch names none",
                'name them: --arch-list "9.0;12.0"',
            )
        work = self._folder / installation.name
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
        folder, cache = self._options.sources, self._options.cache
        if self._only_plan:
            check_sources(extension, release, folder=folder, cache=cache)
        self._workshop.prepare(extension, self._pip, only_try=self._only_plan)
        if not self._only_plan:
            source = unpack_sources(extension, release, work, folder=folder, cache=cache)
            self._workshop.ask(source, self._log(installation), environ)
            self._ready[installation.name] = (source, environ)

    def finish(self, installation: Installation) -> None:
        """Install from the chosen origin; a wheel that is at fault is replaced by compiling."""
        if installation.origin.how == "there":
            if installation.origin.imported or not (
                problem := find_import_fault(installation.request.extension, self._environment)
            ):
                return
            self._note(installation, f"{installation.origin.version} was there, but {problem}")
            installation.origin = self._elsewhere(installation)
            self._get_ready(installation)
        wheel = installation.origin.wheel
        if wheel:
            try:
                self._install(installation, wheel)
            except IntegrityError as error:  # the wheel's fault; a full disk or pip's own trouble ends it
                self._note(installation, f"wheel: {error.message}")
                if self._options.mode == "prebuilt":
                    raise ProviderError(installation.notes[-1], "allow compiling it: --pyg auto") from error
                if installation.origin.how == "kept" and installation.origin.place:
                    shutil.rmtree(installation.origin.place)
                installation.origin, wheel = self._compiled(installation.request), None
                self._get_ready(installation)
        if wheel is None:
            wheel = installation.origin.wheel or self._compile(installation)
            self._install(installation, wheel)
        if self._options.wheel_dir:
            shutil.copy(wheel, self._options.wheel_dir)
        installation.origin = replace(installation.origin, wheel=wheel)

    def _compile(self, installation: Installation) -> Path:
        """Compile, look into the wheel, and return it where it is kept."""
        origin, log, phases = installation.origin, self._log(installation), Phases()
        source, environ = self._ready.pop(installation.name)
        what = f"{origin.version} for {', '.join(origin.archs)}" if origin.archs else origin.version
        self._report(
            f"{installation.name}: compiling {what} with {counted(self._options.jobs, 'job')}, log: {log}"
        )

        def seen(text: str) -> None:
            if step := phases.feed(text):
                what = title(installation.name, self._environment.python, step.phase)
                self._options.progress(what, step.done, step.total)

        seen("::megabuild:: phase compile")
        made = self._workshop.build(source, log, environ, seen)
        if problem := self._look(made, installation):
            raise BuildError(f"it was compiled, but {problem} (see {log})", "fix what the log reports")
        assert origin.place is not None
        wheel = keep_wheel(made, origin.place, self._environment)
        shutil.rmtree(self._folder / installation.name)
        return wheel

    def _install(self, installation: Installation, wheel: Path) -> None:
        """Install a wheel and its requirements, keeping PyTorch, and verify it.

        Raises IntegrityError: The wheel is at fault; it is not installed any more.
        """
        self._report(f"{installation.name}: installing {wheel.name}")
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
            what = f"what {installation.name} requires"
            self._pip.run("install", "--constraint", str(constraints), str(wheel), what=what)
        except ProviderError as error:
            lacking = error
        problem = self._look(self._environment.prefix, installation)
        problem = problem or find_import_fault(installation.request.extension, self._environment)
        if problem and lacking is not None:
            raise ProviderError(f"{problem} ({lacking.message})", lacking.remedy)
        if problem:  # worse than nothing: programs would fail with it later
            self._pip.run(
                "uninstall", "--yes", installation.name, what=f"pip does not remove {installation.name}"
            )
            raise IntegrityError(
                f"it was installed, and removed again: {problem}",
                "see what it was compiled with, or use another index",
            )

    def _note(self, installation: Installation, text: str) -> None:
        installation.notes.append(text)
        self._report(f"  {text}")

    def _log(self, installation: Installation) -> Path:
        return self._logs / f"{installation.name}.log"
