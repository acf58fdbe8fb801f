"""Compile an extension in an environment: tools, compilers, variables, and a log."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from packaging.version import Version

from groundwork import files
from groundwork.errors import BuildError, OutOfMemoryError, PreflightError
from groundwork.machine import MemoryWatch, lacked_memory, was_killed
from groundwork.process import run, start_guarded
from pyg_extensions.install.toolchain import check_cpp, check_cuda, cuda_home
from pyg_extensions.install.user_environment import Pip, UserEnvironment, clean
from pyg_extensions.table import Extension

#: Runs setup.py files with ninja; a part of the recipes.
_WRAPPER = Path(__file__).parents[1] / "recipe" / "build_wheel.py"
_NINJA = Version("1.13")  # the first that takes part in a jobserver
_SETUPTOOLS = Version("70.1")  # the first that makes wheels without the wheel package
#: An error of a compiler, of a linker, or of Python.
_ERROR = re.compile(r"(?:^|[\s:])(?:fatal error|error|undefined reference to|[A-Z]\w*Error)\b:?\s*\S")
_REMEDY = "fix what the log reports and start again"
_LOOK_SECONDS = 0.2  # between two looks at a log
_FORCED = ("FORCE_CUDA", "FORCE_ONLY_CUDA", "FORCE_ONLY_CPU")


def log_folder(usual: Path, cache: Path) -> Path:
    """Return a folder for a run's logs, in the cache if the usual one is not writable."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    try:
        files.writable(usual, "")
    except PreflightError:
        usual = cache / "logs"
    return usual / f"install-pyg-{stamp}-{os.getpid()}"


@dataclass(frozen=True, kw_only=True)
class Builder:
    """Compiles extensions."""

    environment: UserEnvironment  #: whose PyTorch to compile against
    jobs: int  #: compile jobs at a time
    #: folder for build tools that the environment does not have, which never gets them itself, and temporary files
    folder: Path
    objects: Path  #: ccache's folder, which configs share; the user's own where he names one
    wrapper: Path = _WRAPPER

    @property
    def tools(self) -> Path:
        """Where build tools lie that the environment does not have."""
        return self.folder / "tools"

    def environ(self, work: Path, archs: Sequence[str]) -> dict[str, str]:
        """Return the environment variables of a build in ``work``; architectures mean nothing for the CPU.

        Raises PreflightError: PyTorch is for CUDA and nvcc is missing.
        """
        variables = clean(os.environ)
        # another jobserver does not know our memory; flags of an active conda environment are not ours
        for name in ("MAKEFLAGS", "MAX_JOBS", "CMAKE_GENERATOR", *_FORCED):
            variables.pop(name, None)
        link = work / "env"  # headers by one name for all environments
        link.symlink_to(self.environment.prefix)
        beside = str(self.environment.interpreter.parent)
        path = [str(self.tools / "bin"), beside, variables.get("PATH", os.defpath)]
        variables |= {
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": str(self.tools),
            "CPU_COUNT": str(self.jobs),
            "CMAKE_BUILD_PARALLEL_LEVEL": str(self.jobs),
            "FORCE_NINJA": "1",
            "NINJA_STATUS": "[%f/%t %es] ",
            "BUILD_ENV_LINK": str(link),
            # Compilers, pip and setup.py leave temporary files when they are killed: with ours, they are deleted.
            "TMPDIR": str(self.folder),
            # The object cache that builds use (PyTorch 2.13 and newer put it before g++ and nvcc): hits in another
            # folder.
            "CCACHE_BASEDIR": str(work),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_DIR": variables.get("CCACHE_DIR", str(self.objects)),
        }
        if shutil.which("ccache", path=variables["PATH"]):
            variables |= {
                f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX", "CUDA")
            }
        if self.environment.cuda_version is None:
            return {**variables, "FORCE_CUDA": "0", "FORCE_ONLY_CPU": "1"}
        home = cuda_home(self.environment, variables)
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
        """Try the compilers."""
        check_cpp(environ, self.folder)
        if self.environment.cuda_version is not None:
            check_cuda(self.environment, Path(environ["CUDA_HOME"]), archs, environ, self.folder)

    def prepare(self, extension: Extension, pip: Pip, *, only_try: bool = False) -> None:
        """Put build tools that are missing into `tools`, or only ask whether pip could.

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
            pip.run(
                "install",
                *(["--dry-run"] if only_try else []),
                *("--target", str(self.tools), "--upgrade", "--no-deps", *missing),
                what=f"no build tools ({', '.join(missing)})",
            )

    def ask(self, source: Path, log: Path, environ: Mapping[str, str]) -> None:
        """Run setup.py without compiling."""
        status = _logged([str(self.environment.interpreter), "setup.py", "--version"], source, log, environ)
        if status != 0:
            errors = _errors(log.read_text(errors="replace")) or [f"exit status {status}"]
            raise BuildError(f"its setup.py fails: {errors[-1]} (see {log})", _REMEDY)

    def build(
        self,
        source: Path,
        log: Path,
        environ: Mapping[str, str],
        seen: Callable[[str], None] = lambda line: None,
    ) -> Path:
        """Compile, and return the wheel; ``seen`` takes the lines of the log while it grows."""
        memory, out = MemoryWatch(), source.parent / "wheels"
        argv = [str(self.environment.interpreter), str(self.wrapper), str(out)]
        status = _logged(argv, source, log, environ, seen)
        wheels = sorted(out.glob("*.whl"))
        if status == 0 and len(wheels) == 1:
            with zipfile.ZipFile(wheels[0]) as archive:
                if any(".so" in name for name in archive.namelist()):
                    return wheels[0]
            raise BuildError(f"no library came out of compiling it, see {log}", "check CXX, CC and CXXFLAGS")
        text = log.read_text(errors="replace")
        killed = was_killed(text)
        if lacked_memory(text) or (killed and memory.short()):
            reason = f"a compiler was killed for want of memory, see {log}"
            raise OutOfMemoryError(reason, "use fewer jobs: --jobs 1")
        if killed:
            raise BuildError(
                f"a compiler was killed by a signal (kill -9?); memory did not run out, see {log}",
                "find out who sends it, and start again",
            )
        errors = _errors(text) or [f"exit status {status}"]
        raise BuildError(f"it does not compile: {errors[0]} (see {log})", _REMEDY)


def _errors(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if _ERROR.search(line)]


def _plain_names(home: Path, work: Path) -> Path:
    """NVIDIA's wheels have libcudart.so.13 but no libcudart.so, which the linker looks for."""
    folder = work / "cuda-links"
    folder.mkdir(parents=True, exist_ok=True)
    for library in (home / "lib").glob("*.so.*"):
        plain = folder / library.name.partition(".so.")[0]
        with contextlib.suppress(FileExistsError):
            plain.with_name(plain.name + ".so").symlink_to(library)
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
) -> int:
    """Run a build under the guard, which ends it with this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream, log.open(errors="replace") as written:
        process = start_guarded(
            argv, cwd=folder, env=environ, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert process.stdin is not None
        try:
            rest = ""
            while True:
                ended = process.poll()
                *lines, rest = (rest + written.read()).split("\n")
                for line in lines:
                    seen(line)
                if ended is not None:
                    return ended
                time.sleep(_LOOK_SECONDS)
        finally:
            process.stdin.close()
            process.wait()  # until nobody can write to its folder any more
