"""Compile an extension in an environment: build tools, compilers, environment variables, and a log."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from packaging.version import VERSION_PATTERN, Version

from groundwork import files
from groundwork.errors import (
    BuildError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PreflightError,
)
from groundwork.exhaustive import assert_never
from groundwork.failed_step import find_failed_step
from groundwork.first_error import first_error
from groundwork.host_compiler import find_gcc_suffix, read_newest_gcc
from groundwork.machine import MemoryWatch, is_full
from groundwork.pip_settings import without_pip
from groundwork.process import run, start_guarded
from groundwork.resources import ResourceFacts, Verdict, find_complaint, judge, limited_memory
from groundwork.shared_folder import refuse_foreign
from groundwork.text import counted, plain
from groundwork.zip_archive import open_zip
from pyg_extensions.install.toolchain import check_cpp, check_cuda, check_python_headers, cuda_home
from pyg_extensions.install.user_environment import UserEnvironment, clean
from pyg_extensions.recipe_files import recipe_file
from pyg_extensions.table import Extension

#: Runs setup.py files with ninja; the recipes use it, too.
_WRAPPER = recipe_file("build_wheel.py")
_CACHE_COMPILER = recipe_file("cache_compiler.sh")
_NINJA = Version("1.13")  # the first version that uses a jobserver
_CMAKE = Version("3.18")
_SETUPTOOLS = Version("70.1")  # the first version that makes wheels without the package wheel
_REMEDY = "fix the error in the log and start again"
_VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)
_LOOK_SECONDS = 0.2  # between two reads of a growing log
_FORCED = ("FORCE_CUDA", "FORCE_ONLY_CUDA", "FORCE_ONLY_CPU")
#: Variables of PyTorch's and the extensions' builds that a compile sets itself.
OWN_VARIABLES = ("TORCH_CUDA_ARCH_LIST", *_FORCED)
#: As in the recipes: packages' headers are hard links, and another installation of a package changes their ctime.
#: ccache would then not store the objects that are being compiled.
_SLOPPINESS = "include_file_ctime"


def write_launcher(folder: Path, ccache: str) -> Path:
    """Write a program ``ccache`` that adds to the key all that the real one does not read."""
    folder.mkdir(parents=True)
    launcher = folder / "ccache"
    command = shlex.join([str(_CACHE_COMPILER), ccache])
    files.write(launcher, f'#!/bin/sh\nexec {command} "$@"\n', mode=0o700)
    return launcher


def log_folder(usual: Path, cache: Path) -> Path:
    """Return a new folder name for a run's logs, in the cache if the ``usual`` folder is not writable."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    try:
        files.writable(usual, "")
    except PreflightError:
        usual = cache / "logs"
    return usual / f"install-pyg-{stamp}-{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class Builder:
    """Compiles extensions against the PyTorch of an environment."""

    environment: UserEnvironment
    jobs: int  #: compile jobs at a time
    #: for temporary files, and for build tools that the environment lacks: they are never installed into it
    folder: Path
    objects: Path  #: ccache's folder, which configs share; the user's ``CCACHE_DIR`` comes first

    @property
    def tools(self) -> Path:
        """The folder of the build tools that the environment lacks."""
        return self.folder / "tools"

    def environ(self, work: Path, archs: Sequence[str]) -> dict[str, str]:
        """Return the environment variables of a build in the folder ``work``; builds for the CPU ignore ``archs``.

        Raises PreflightError: PyTorch is for CUDA, and nvcc is missing or accepts no installed GCC.
        """
        variables = self._common_variables(work)
        ccache = shutil.which("ccache", path=variables["PATH"])
        if ccache:
            _use_ccache(ccache, work / "launcher", variables)
        if self.environment.cuda_version is None:
            return {**variables, "FORCE_CUDA": "0", "FORCE_ONLY_CPU": "1"}
        self._use_cuda(work, archs, variables)
        return variables

    def _common_variables(self, work: Path) -> dict[str, str]:
        variables = without_pip(clean(os.environ))
        # an outer jobserver does not know this run's memory limit; an active conda environment sets flags of its own
        for name in ("MAKEFLAGS", "MAX_JOBS", "CMAKE_GENERATOR", *_FORCED):
            variables.pop(name, None)
        # one path to the headers for all environments: the object cache finds their objects
        link = work / "env"
        link.symlink_to(self.environment.prefix)
        return variables | {
            "PATH": self._search_path(variables),
            "PYTHONPATH": str(self.tools),
            "CPU_COUNT": str(self.jobs),
            "CMAKE_BUILD_PARALLEL_LEVEL": str(self.jobs),
            "FORCE_NINJA": "1",
            "NINJA_STATUS": "[%f/%t %es] ",
            "BUILD_ENV_LINK": str(link),
            # Killed compilers, pips and setup.pys leave temporary files: in this folder, they are deleted later.
            "TMPDIR": str(self.folder),
            # ccache, which PyTorch 2.13 and newer put before g++ and nvcc: these two make it hit from any work folder.
            "CCACHE_BASEDIR": str(work),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_DIR": variables.get("CCACHE_DIR", str(self.objects)),
        }

    def _search_path(self, environ: Mapping[str, str]) -> str:
        """Return the user's PATH, after the folders of the build tools and of the environment's programs."""
        programs = self.environment.interpreter.parent
        return os.pathsep.join([str(self.tools / "bin"), str(programs), environ.get("PATH", os.defpath)])

    def _use_cuda(self, work: Path, archs: Sequence[str], variables: dict[str, str]) -> None:
        """Add the variables of a build for CUDA."""
        home = cuda_home(self.environment, variables)
        newest = read_newest_gcc(home / "include")
        if newest and not variables.get("CXX") and not variables.get("CC"):
            suffix = find_gcc_suffix(newest, variables["PATH"], compiler="c++")
            if suffix:
                variables["CXX"] = f"g++{suffix}"
                variables["CC"] = f"gcc{suffix}"
        libraries = str(_plain_names(home, work))
        if variables.get("LIBRARY_PATH"):
            libraries += os.pathsep + variables["LIBRARY_PATH"]
        variables.update(
            {
                "FORCE_CUDA": "1",
                "FORCE_ONLY_CUDA": "1",
                "CUDA_HOME": str(home),
                "TORCH_CUDA_ARCH_LIST": ";".join(archs),
                "PATH": f"{home / 'bin'}{os.pathsep}{variables['PATH']}",
                "LIBRARY_PATH": libraries,
            }
        )

    def check(self, environ: Mapping[str, str], archs: Sequence[str]) -> None:
        """Raise PreflightError unless the compilers and their cache work, and Python's headers are there."""
        if environ.get("CCACHE_DIR") == str(self.objects) and "CMAKE_C_COMPILER_LAUNCHER" in environ:
            refuse_foreign(
                self.objects, "set MEGABUILD_CACHE or CCACHE_DIR to a folder of your own", levels=2
            )
        check_cpp(environ, self.folder)
        check_python_headers(self.environment, environ, self.folder)
        if self.environment.cuda_version is not None:
            check_cuda(self.environment, Path(environ["CUDA_HOME"]), archs, environ, self.folder)

    def prepare(self, extension: Extension, pip: Callable[..., None], *, only_try: bool = False) -> None:
        """Install missing build tools into :attr:`tools` with ``pip`` (of :func:`run_pip`).

        With ``only_try``, only ask pip whether it could.

        Raises ProviderError: pip cannot get them.
        """
        path = self._search_path(os.environ)
        missing = []
        if not _fits(_program_version("ninja", path), _NINJA):
            missing.append(f"ninja>={_NINJA}")
        if not self._makes_wheels() and not (self.tools / "setuptools").is_dir():
            missing.append(f"setuptools>={_SETUPTOOLS},<82")  # PyTorch's own limit
        if extension.uses_cmake and not _fits(_program_version("cmake", path), _CMAKE):
            missing.append(f"cmake>={_CMAKE},<4")
        if not missing:
            return
        # Python compiles what a build imports; all modules of setuptools take as long as the rest of pip's work
        arguments = ["--target", str(self.tools), "--upgrade", "--no-deps", "--no-compile", *missing]
        if only_try:
            arguments.insert(0, "--dry-run")
        problem = f"pip cannot install build tools ({', '.join(missing)})"
        pip("install", *arguments, what=problem, private=True)

    def _makes_wheels(self) -> bool:
        """Return whether the environment's setuptools can make wheels."""
        installed = self.environment.distributions
        if "wheel" in installed and "setuptools" in installed:
            return True
        return _fits(installed.get("setuptools", ""), _SETUPTOOLS)

    def check_setup(self, source: Path, log: Path, environ: Mapping[str, str]) -> str:
        """Run ``setup.py --version``, which compiles nothing; return the version, empty if it prints none.

        Raises BuildError: It fails.
        """
        status = _logged([str(self.environment.interpreter), "setup.py", "--version"], source, log, environ)
        if status != 0:
            cause = _cause(_lines(log), status)
            raise BuildError(f"setup.py fails: {cause} (log: {log})", _REMEDY)
        last = next(filter(None, map(str.strip, reversed(_lines(log)))), "")
        return last if _VERSION.fullmatch(last) else ""

    def build(self, source: Path, log: Path, environ: Mapping[str, str], seen: Callable[[str], None]) -> Path:
        """Compile, and return the wheel; ``seen`` gets each line of the log as it is written.

        Raises BuildError: It failed; OutOfMemoryError, OutOfSpaceError: for want of memory or space.
        """
        memory = MemoryWatch()
        out = source.parent / "wheels"
        argv = [str(self.environment.interpreter), str(_WRAPPER), str(out)]
        status = _logged(argv, source, log, environ, seen, tick=memory.tick)
        wheels = sorted(out.glob("*.whl"))
        if status == 0 and len(wheels) == 1:
            if not _has_library(wheels[0]):
                raise BuildError(f"the compile made no library (log: {log})", "check CXX, CC and CXXFLAGS")
            return wheels[0]
        lines = _lines(log)
        step = find_failed_step(lines)
        objects = Path(environ.get("CCACHE_DIR", self.objects))
        facts = ResourceFacts(
            memory_short=memory.short(),
            full_disk=_find_full((source, self.folder, objects)),
            exit_codes=(status, step.exit_code or 0),
        )
        verdict = judge(facts, find_complaint(step, first_error(lines)))
        raise self._failure(verdict, facts, f"{_cause(lines, status)} (log: {log})")

    def _failure(self, verdict: Verdict, facts: ResourceFacts, cause: str) -> MegabuildError:
        """Return the error of a failed compile."""
        match verdict:
            case Verdict.ORDINARY:
                return BuildError(f"compilation failed: {cause}", _REMEDY)
            case Verdict.DISK:
                reason = f"the disk is full, or has no inodes left ({facts.full_disk}): {cause}"
                return OutOfSpaceError(reason, "free some space and start again")
            case Verdict.SPACE:
                reason = f"a program found no space left on its disk or quota: {cause}"
                return OutOfSpaceError(reason, "free some space where that program writes, and start again")
            case Verdict.FILE_LIMIT:
                reason = f"a file reached the limit of files' sizes: {cause}"
                return OutOfSpaceError(reason, "raise the limit (ulimit -f) and start again")
            case Verdict.MEMORY:
                reason = f"out of memory with {counted(self.jobs, 'compile job')}: {cause}"
                return OutOfMemoryError(reason, "use fewer compile jobs: --jobs 1")
            case Verdict.ALLOCATION:
                reason = f"a program got no memory, although the machine had some free: {cause}"
                hint = "use fewer compile jobs: --jobs 1"
                if limit := limited_memory():
                    hint = f"raise the limit of memory: ulimit {limit}"
                return OutOfMemoryError(reason, hint, fewer_jobs_help=False)
            case Verdict.KILLED:
                reason = f"a compiler was killed by a signal (kill -9?); memory did not run out: {cause}"
                hint = "find the program that kills compilers, such as a batch system, and start again"
                return BuildError(reason, hint)
            case never:
                return assert_never(never)


def _lines(log: Path) -> list[str]:
    return [plain(line) for line in log.read_text(errors="replace").splitlines()]


def _cause(lines: Sequence[str], status: int) -> str:
    error = first_error(lines)
    if error is None:
        return f"exit status {status}"
    return error.headline


def _has_library(wheel: Path) -> bool:
    with open_zip(wheel) as archive:
        return any(".so" in name for name in archive.namelist())


def _find_full(folders: Iterable[Path]) -> Path | None:
    """Return the first folder whose disk is full."""
    for folder in folders:
        if folder.exists() and is_full(folder):
            return folder
    return None


def _use_ccache(ccache: str, folder: Path, variables: dict[str, str]) -> None:
    """Write a launcher of ccache into a folder, and add the variables that make builds use it."""
    launcher = write_launcher(folder, ccache)
    for language in ("C", "CXX", "CUDA"):
        variables[f"CMAKE_{language}_COMPILER_LAUNCHER"] = str(launcher)
    # PyTorch looks for it on PATH
    variables["PATH"] = f"{folder}{os.pathsep}{variables['PATH']}"
    variables["CCACHE_COMPILERCHECK"] = "content"
    variables["CCACHE_SLOPPINESS"] = _sloppiness(ccache, variables)
    # without the list of headers, nvcc's objects are not cached
    variables.pop("TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES", None)


def _sloppiness(ccache: str, variables: Mapping[str, str]) -> str:
    """Return the user's sloppiness, from the variable or ccache's configuration files, and the recipes' one.

    The variable alone would replace that of the files.
    """
    asked = run([ccache, "--get-config", "sloppiness"], timeout=30, environ=variables)
    own = variables.get("CCACHE_SLOPPINESS", "")
    if asked.returncode == 0:
        own = asked.stdout.strip()
    kept = [word for word in re.split(r"[,\s]+", own) if word not in ("", _SLOPPINESS)]
    return ",".join([*kept, _SLOPPINESS])


def _plain_names(home: Path, work: Path) -> Path:
    """Link libcudart.so, which the linker looks for, to libcudart.so.13: NVIDIA's wheels have only the latter."""
    folder = work / "cuda-links"
    folder.mkdir(parents=True, exist_ok=True)
    for library in (home / "lib").glob("*.so.*"):
        with contextlib.suppress(FileExistsError):
            (folder / f"{library.name.partition('.so.')[0]}.so").symlink_to(library)
    return folder


def _program_version(program: str, path: str) -> str:
    executable = shutil.which(program, path=path)
    if executable is None:
        return ""
    printed = run([executable, "--version"], timeout=30).stdout
    match = re.search(r"\d+(?:\.\d+)+", printed)
    return match[0] if match else ""


def _fits(version: str, least: Version) -> bool:
    return bool(version) and Version(version) >= least


def _logged(
    argv: Sequence[str],
    folder: Path,
    log: Path,
    environ: Mapping[str, str],
    seen: Callable[[str], None] = lambda line: None,
    tick: Callable[[], None] = lambda: None,
) -> int:
    """Run a build under the guard, which ends the build when this process ends; return the exit status."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream, log.open(errors="replace") as written:
        process = start_guarded(
            argv, cwd=folder, env=environ, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert process.stdin is not None
        try:
            partial = ""
            while True:
                status = process.poll()
                *lines, partial = (partial + written.read()).split("\n")
                for line in lines:
                    seen(line)
                tick()
                if status is not None:
                    return status
                time.sleep(_LOOK_SECONDS)
        finally:
            process.stdin.close()
            process.wait()  # after this, no compiler writes to the folder any more
