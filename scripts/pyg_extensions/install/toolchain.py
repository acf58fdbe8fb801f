"""Compilers, tried on a few lines before an extension is compiled: C++, and CUDA where PyTorch is for CUDA."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from groundwork.errors import PreflightError
from groundwork.process import run
from pyg_extensions.install.user_environment import UserEnvironment

_SECONDS = 120.0
_CPP = "#include <vector>\nint size() { return static_cast<int>(std::vector<int>(1).size()); }\n"
#: What PyTorch's headers for CUDA (ATen/cuda/CUDAContextLight.h) and the extensions' sources include of CUDA's.
_CUDA = """\
#include <cuda_runtime.h>
#include <cub/version.cuh>
#include <cublas_v2.h>
#include <cuda_profiler_api.h>
#include <curand_kernel.h>
#include <cusolverDn.h>
#include <cusparse.h>
#if CUDART_VERSION / 1000 != {major}
#error the headers are for another CUDA than {version}
#endif
__global__ void add(float *x) {{ *x += 1; }}
"""
_OBJECTS = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # Linux, macOS
_ERROR = re.compile(r"\b(?:fatal error|error|fatal)\b\s*:?\s*(.*)", re.IGNORECASE)
_MISSING = re.compile(r"([\w./]+\.c?u?h(?:pp)?): No such file")


def check_cpp(environ: Mapping[str, str], folder: Path) -> None:
    """Compile and link a few lines with the C++ compiler that PyTorch will call, and with ``CC`` where it is set.

    ``environ`` are the environment variables of the build, ``folder`` is to work in.

    Raises PreflightError: A compiler is missing, or does not compile.
    """
    source = folder / "trial.cpp"
    source.write_text(_CPP)
    for variable in ("CXX", "CC"):
        value = environ.get(variable, "").strip()
        if not value and variable == "CC":
            continue
        words = shlex.split(value or "c++")
        named = f"{variable} is '{value}', which" if value else "there is no C++ compiler: c++"
        remedy = (
            f"correct or unset {variable}"
            if value
            else "install one (Debian: apt-get install g++), or set CXX"
        )
        if shutil.which(words[0], path=environ.get("PATH")) is None:
            raise PreflightError(f"{named} is not found", remedy)
        flags = ["-shared", "-fPIC", "-x", "c++", str(source), "-o", str(folder / "trial.so")]
        problem = _problem([*words, *flags, *(["-lstdc++"] if variable == "CC" else [])], environ, folder)
        if problem:
            raise PreflightError(f"{value or 'c++'} does not compile two lines of C++: {problem}", remedy)


def cuda_home(
    environment: UserEnvironment, environ: Mapping[str, str], usual: Path = Path("/usr/local/cuda")
) -> Path:
    """Return the folder of the CUDA toolkit: ``CUDA_HOME``, NVIDIA's wheels in the environment, or nvcc on PATH.

    Last comes the ``usual`` folder of NVIDIA's installer, first with a version appended.

    Raises PreflightError: It was not found.
    """
    version = environment.cuda_version or ""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if named := environ.get(variable):
            if (Path(named) / "bin" / "nvcc").is_file():
                return Path(named)
            raise PreflightError(
                f"{variable} is {named}, which has no bin/nvcc", f"correct or unset {variable}"
            )
    for place in _places(environment, environ, usual):
        if (place / "bin" / "nvcc").is_file():
            return place
    raise PreflightError(f"nvcc was not found, and PyTorch here is for CUDA {version}", _remedy(environment))


def _places(environment: UserEnvironment, environ: Mapping[str, str], usual: Path) -> Iterator[Path]:
    version = environment.cuda_version or ""
    yield environment.site / "nvidia" / f"cu{version.partition('.')[0]}"
    yield environment.prefix
    if on_path := shutil.which("nvcc", path=environ.get("PATH")):
        beside = Path(on_path).resolve().parent.parent
        # a wrapper script of an nvcc elsewhere, such as Debian's, has no headers beside it
        yield beside if (beside / "include" / "cuda_runtime.h").is_file() else _toolkit_of(on_path) or beside
    yield usual.with_name(f"{usual.name}-{version}")
    yield usual


def _toolkit_of(nvcc: str) -> Path | None:
    """Return nvcc's own toolkit folder, which it prints with the commands of a dry run."""
    _, output = _run([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"])
    found = re.search(r"^#\$ TOP=(.+)$", output, re.MULTILINE)
    return Path(found[1].strip()).resolve() if found else None


def check_cuda(
    environment: UserEnvironment, home: Path, archs: Sequence[str], environ: Mapping[str, str], folder: Path
) -> None:
    """Ask nvcc for its version, and compile a kernel of one line for all architectures, with the headers needed.

    ``home`` is the toolkit's folder; architectures are as in ``TORCH_CUDA_ARCH_LIST``, the rest as for
    :func:`check_cpp`.

    Raises PreflightError: nvcc does not run, is for another CUDA than PyTorch, lacks headers, or does not compile.
    """
    version, nvcc = environment.cuda_version or "", str(home / "bin" / "nvcc")
    major = version.partition(".")[0]
    status, output = _run([nvcc, "--version"], environ)
    release = re.search(r"release (\d+)\.(\d+)", output)
    if status or release is None:
        raise PreflightError(f"{nvcc} does not run: {_first_error(output, status)}", _remedy(environment))
    if release[1] != major:  # within a major version they fit together (CUDA Compatibility Guide)
        raise PreflightError(
            f"{nvcc} is for CUDA {release[1]}.{release[2]}, PyTorch here is for CUDA {version}",
            _remedy(environment),
        )
    source = folder / "trial.cu"
    source.write_text(_CUDA.format(major=major, version=version))
    flags = [f"-I{home / 'include'}", *(["-ccbin", environ["CC"]] if environ.get("CC") else [])]
    for arch in archs:
        number = arch.removesuffix("+PTX").replace(".", "")
        kinds = ("sm", "compute") if arch.endswith("+PTX") else ("sm",)
        flags += [f"-gencode=arch=compute_{number},code={kind}_{number}" for kind in kinds]
    problem = _problem([nvcc, *flags, "-c", str(source), "-o", str(folder / "trial.o")], environ, folder)
    if missing := _MISSING.search(problem):
        raise PreflightError(f"CUDA's headers in {home} lack {missing[1]}", _remedy(environment))
    if problem:
        raise PreflightError(
            f"{nvcc} does not compile a kernel of one line for {' '.join(archs)}: {problem}",
            "fix what it reports: another host compiler (CC, CXX), another --arch-list, or another CUDA toolkit "
            "(CUDA_HOME)",
        )


def _remedy(environment: UserEnvironment) -> str:
    if (environment.prefix / ".megabuild-slim").is_dir():
        undo = shlex.join(["python3", "scripts/megabuild", "slim", str(environment.prefix), "--undo"])
        return f"`megabuild slim` took away what compiling needs: {undo}, or slim it with --keep extensions"
    line = environment.install_line(f"cuda-toolkit[nvcc,cccl,curand,profiler]=={environment.cuda_version}.*")
    return f"{line}, or set CUDA_HOME"


def _problem(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
    """Run a compiler whose last word is the file to write; return what is wrong."""
    output_file = Path(argv[argv.index("-o") + 1])
    output_file.unlink(missing_ok=True)
    status, output = _run(argv, environ, folder)
    if status:
        return _first_error(output, status)
    return "" if output_file.is_file() and output_file.read_bytes()[:4] in _OBJECTS else "it writes no code"


def _first_error(output: str, status: int) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if _ERROR.search(line)), (lines or [f"exit status {status}"])[-1])


def _run(
    argv: Sequence[str], environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[int, str]:
    done = run(argv, timeout=_SECONDS, environ=environ, folder=folder)
    return done.returncode, done.stdout + done.stderr
