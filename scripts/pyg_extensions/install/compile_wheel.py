"""Compile an extension in an environment: build tools, compilers, environment variables, and a log."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from packaging.version import Version

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
from pyg_extensions.table import Extension

#: Runs setup.py files with ninja; the recipes use it, too.
_WRAPPER = Path(__file__).parents[1] / "recipe" / "build_wheel.py"
_CACHE_COMPILER = Path(__file__).parents[1] / "recipe" / "cache_compiler.sh"
_NINJA = Version("1.13")  # the first version that uses a jobserver
_SETUPTOOLS = Version("70.1")  # the first version that makes wheels without the package wheel
_REMEDY = "fix the error in the log and start again"
_LOOK_SECONDS = 0.2  # between two reads of a growing log
_FORCED = ("FORCE_CUDA", "FORCE_ONLY_CUDA", "FORCE_ONLY_CPU")
#: Variables of PyTorch's and the extensions' builds that a compile sets itself.
OWN_VARIABLES = ("TORCH_CUDA_ARCH_LIST", *_FORCED)


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
        variables = without_pip(clean(os.environ))
        # an outer jobserver does not know this run's memory limit; an active conda environment sets flags of its own
        for name in ("MAKEFLAGS", "MAX_JOBS", "CMAKE_GENERATOR", *_FORCED):
            variables.pop(name, None)
        # one path to the headers for all environments: the object cache finds their objects
        link = work / "env"
        link.symlink_to(self.environment.prefix)
        programs = str(self.environment.interpreter.parent)
        path = [str(self.tools / "bin"), programs, variables.get("PATH", os.defpath)]
        variables |= {
            "PATH": os.pathsep.join(path),
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
        ccache = shutil.which("ccache", path=variables["PATH"])
        if ccache:
            launcher = write_launcher(work / "launcher", ccache)
            launchers = (f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA"))
            variables |= dict.fromkeys(launchers, str(launcher))
            # PyTorch looks for it on PATH
            path = [str(launcher.parent), *path]
            variables["PATH"] = os.pathsep.join(path)
            variables["CCACHE_COMPILERCHECK"] = "content"
            # without the list of headers, nvcc's objects are not cached
            variables.pop("TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES", None)
        if self.environment.cuda_version is None:
            return {**variables, "FORCE_CUDA": "0", "FORCE_ONLY_CPU": "1"}
        home = cuda_home(self.environment, variables)
        newest = read_newest_gcc(home / "include")
        if newest and not (variables.get("CXX") or variables.get("CC")):
            suffix = find_gcc_suffix(newest, variables["PATH"], compiler="c++")
            variables |= {"CXX": f"g++{suffix}", "CC": f"gcc{suffix}"} if suffix else {}
        libraries = [str(_plain_names(home, work)), *filter(None, [variables.get("LIBRARY_PATH", "")])]
        return variables | {
            "FORCE_CUDA": "1",
            "FORCE_ONLY_CUDA": "1",
            "CUDA_HOME": str(home),
            "TORCH_CUDA_ARCH_LIST": ";".join(archs),
            "PATH": os.pathsep.join([str(home / "bin"), *path]),
            "LIBRARY_PATH": os.pathsep.join(libraries),
        }

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
        folders = [str(self.tools / "bin"), str(self.environment.interpreter.parent), os.environ["PATH"]]
        path = os.pathsep.join(folders)
        have, missing = self.environment.distributions, []
        if not _fits(_program_version("ninja", path), _NINJA):
            missing.append(f"ninja>={_NINJA}")
        able = ("wheel" in have and "setuptools" in have) or _fits(have.get("setuptools", ""), _SETUPTOOLS)
        if not able and not (self.tools / "setuptools").is_dir():
            missing.append(f"setuptools>={_SETUPTOOLS},<82")  # PyTorch's own limit
        if not extension.has_sdist and not _fits(_program_version("cmake", path), Version("3.18")):
            missing.append("cmake>=3.18,<4")
        if missing:
            pip(
                "install",
                *(["--dry-run"] if only_try else []),
                *("--target", str(self.tools), "--upgrade", "--no-deps", *missing),
                what=f"pip cannot install build tools ({', '.join(missing)})",
                private=True,
            )

    def check_setup(self, source: Path, log: Path, environ: Mapping[str, str]) -> None:
        """Run ``setup.py --version``, which compiles nothing; raise BuildError if it fails."""
        status = _logged([str(self.environment.interpreter), "setup.py", "--version"], source, log, environ)
        if status != 0:
            cause = _cause(log, status)
            raise BuildError(f"setup.py fails: {cause} (log: {log})", _REMEDY)

    def build(self, source: Path, log: Path, environ: Mapping[str, str], seen: Callable[[str], None]) -> Path:
        """Compile, and return the wheel; ``seen`` gets each line of the log as it is written.

        Raises BuildError: It failed; OutOfMemoryError, OutOfSpaceError: for want of memory or space.
        """
        memory, out = MemoryWatch(), source.parent / "wheels"
        argv = [str(self.environment.interpreter), str(_WRAPPER), str(out)]
        status = _logged(argv, source, log, environ, seen, tick=memory.tick)
        wheels = sorted(out.glob("*.whl"))
        if status == 0 and len(wheels) == 1:
            with open_zip(wheels[0]) as archive:
                if any(".so" in name for name in archive.namelist()):
                    return wheels[0]
            raise BuildError(f"the compile made no library (log: {log})", "check CXX, CC and CXXFLAGS")
        lines = _lines(log)
        step, error = find_failed_step(lines), first_error(lines)
        folders = (source, self.folder, Path(environ.get("CCACHE_DIR", self.objects)))
        full = [folder for folder in folders if folder.exists() and is_full(folder)]
        facts = ResourceFacts(
            memory_short=memory.short(),
            full_disk=full[0] if full else None,
            exit_codes=(status, step.exit_code or 0),
        )
        cause = f"{error.headline if error else f'exit status {status}'} (log: {log})"
        raise self._failure(judge(facts, find_complaint(step, error)), facts, cause)

    def _failure(self, verdict: Verdict, facts: ResourceFacts, cause: str) -> MegabuildError:
        """Return the error of a failed compile."""
        match verdict:
            case Verdict.ordinary:
                return BuildError(f"compilation failed: {cause}", _REMEDY)
            case Verdict.disk:
                reason = f"the disk is full, or has no inodes left ({facts.full_disk}): {cause}"
                return OutOfSpaceError(reason, "free some space and start again")
            case Verdict.space:
                reason = f"a program found no space left on its disk or quota: {cause}"
                return OutOfSpaceError(reason, "free some space where that program writes, and start again")
            case Verdict.file_limit:
                reason = f"a file reached the limit of files' sizes: {cause}"
                return OutOfSpaceError(reason, "raise the limit (ulimit -f) and start again")
            case Verdict.memory:
                reason = f"out of memory with {counted(self.jobs, 'compile job')}: {cause}"
                return OutOfMemoryError(reason, "use fewer compile jobs: --jobs 1")
            case Verdict.allocation:
                reason = f"a program got no memory, although the machine had some free: {cause}"
                limit = limited_memory()
                hint = (
                    f"raise the limit of memory: ulimit {limit}"
                    if limit
                    else "use fewer compile jobs: --jobs 1"
                )
                return OutOfMemoryError(reason, hint, fewer_jobs_help=False)
            case Verdict.killed:
                reason = f"a compiler was killed by a signal (kill -9?); memory did not run out: {cause}"
                hint = "find the program that kills compilers, such as a batch system, and start again"
                return BuildError(reason, hint)
            case never:
                return assert_never(never)


def _lines(log: Path) -> list[str]:
    return [plain(line) for line in log.read_text(errors="replace").splitlines()]


def _cause(log: Path, status: int) -> str:
    error = first_error(_lines(log))
    return error.headline if error else f"exit status {status}"


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
    match = re.search(r"\d+(?:\.\d+)+", run([executable, "--version"], timeout=30).stdout)
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
