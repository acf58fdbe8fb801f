"""Test the compilers on a few lines before an extension is compiled: C++, and CUDA if PyTorch is for CUDA."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from groundwork.debian_packages import install_command
from groundwork.errors import PreflightError
from groundwork.process import run
from groundwork.program_words import program_words
from pyg_extensions.install.user_environment import UserEnvironment

_SECONDS = 120.0
_CXX = "c++"  # the compiler if CXX is not set
_CPP = "#include <vector>\nint size() { return static_cast<int>(std::vector<int>(1).size()); }\n"
#: The CUDA headers that PyTorch's headers (ATen/cuda/CUDAContextLight.h) and the extensions' sources include.
_CUDA = """\
#include <cuda_runtime.h>
#include <cub/version.cuh>
#include <cublas_v2.h>
#include <cuda_profiler_api.h>
#include <curand_kernel.h>
#include <cusolverDn.h>
#include <cusparse.h>
#if CUDART_VERSION / 1000 != {major}
#error the CUDA toolkit does not match PyTorch, which is for CUDA {version}
#endif
__global__ void add(float *x) {{ *x += 1; }}
"""
_OBJECTS = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # Linux, macOS
_ERROR = re.compile(r"\b(?:fatal error|error|fatal)\b", re.IGNORECASE)


def check_cpp(environ: Mapping[str, str], folder: Path) -> None:
    """Compile and link two lines with the C++ compiler that PyTorch will call, and with ``CC`` if it is set.

    ``environ`` has the build's environment variables; ``folder`` is for temporary files.

    Raises PreflightError: A compiler is missing or does not work.
    """
    source = folder / "trial.cpp"
    source.write_text(_CPP)
    cxx = environ.get("CXX", "").strip()
    cc = environ.get("CC", "").strip()
    remedy = "install a C++ compiler (Debian: apt-get install g++), or set CXX"
    if cxx:
        remedy = "correct or unset CXX"
    _try_cpp(cxx or _CXX, [str(source)], remedy, environ, folder)
    if cc:
        _try_cpp(cc, [str(source), "-lstdc++"], "correct or unset CC", environ, folder)


def _try_cpp(
    compiler: str, arguments: Sequence[str], remedy: str, environ: Mapping[str, str], folder: Path
) -> None:
    command = [*shlex.split(compiler), "-shared", "-fPIC", "-x", "c++", *arguments]
    command += ["-o", str(folder / "trial.so")]
    problem = _problem(command, environ, folder)
    if problem:
        raise PreflightError(f"{compiler} does not compile two lines of C++: {problem}", remedy)


def check_python_headers(environment: UserEnvironment, environ: Mapping[str, str], folder: Path) -> None:
    """Compile a line that includes Python.h, as PyTorch's headers do; arguments as for :func:`check_cpp`.

    Raises PreflightError: The headers of the environment's Python are missing.
    """
    source = folder / "trial-python.cpp"
    source.write_text("#include <Python.h>\n")
    command = shlex.split(environ.get("CXX", "").strip() or _CXX)
    command += shlex.split(environ.get("CFLAGS", ""))
    command += shlex.split(environ.get("CPPFLAGS", ""))
    command += [f"-I{path}" for path in environment.include]
    command += ["-fPIC", "-c", str(source), "-o", str(folder / "trial-python.o")]
    problem = _problem(command, environ, folder)
    if not problem:
        return
    remedy = "use a Python with its headers, or add their folder to CPPFLAGS"
    if environment.base_prefix == Path("/usr"):
        package = f"python{environment.python}-dev"
        if Path("/usr/bin/python3").resolve().name == f"python{environment.python}":
            package = "python3-dev"
        remedy = f"install Python's headers; in Debian, run: {install_command(package)}"
    cause = problem.rpartition("error: ")[2]  # without the path of the trial
    reason = f"Python {environment.python} of {environment.prefix} has no headers: {cause}"
    raise PreflightError(reason, remedy)


def cuda_home(
    environment: UserEnvironment, environ: Mapping[str, str], usual: Path = Path("/usr/local/cuda")
) -> Path:
    """Return the CUDA toolkit's folder: ``CUDA_HOME``, NVIDIA's wheels in the environment, the one of nvcc on PATH.

    The ``usual`` folder of NVIDIA's installer comes last, with the version appended or without.

    Raises PreflightError: No nvcc was found.
    """
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if named := environ.get(variable):
            if _has_nvcc(Path(named)):
                return Path(named)
            reason = f"{variable}={named}: no bin/nvcc in this folder"
            raise PreflightError(reason, f"correct or unset {variable}")
    version = environment.cuda_version or ""
    major = version.partition(".")[0]
    homes = [environment.site / "nvidia" / f"cu{major}", environment.prefix]
    nvcc = shutil.which("nvcc", path=environ.get("PATH"))
    if nvcc:
        homes.append(_home_of(nvcc))
    homes += [usual.with_name(f"{usual.name}-{version}"), usual]
    for home in homes:
        if _has_nvcc(home):
            return home
    raise PreflightError(f"nvcc not found, but PyTorch is for CUDA {version}", _remedy(environment))


def _has_nvcc(home: Path) -> bool:
    return (home / "bin" / "nvcc").is_file()


def _home_of(nvcc: str) -> Path:
    """Return the toolkit's folder of an nvcc; it may be a script that prints its home, as Debian's is."""
    home = Path(nvcc).resolve().parent.parent
    if (home / "include" / "cuda_runtime.h").is_file():
        return home
    dry = run([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"], timeout=_SECONDS)
    top = re.search(r"^#\$ TOP=(.+)$", dry.stdout + dry.stderr, re.MULTILINE)
    if top is None:
        return home
    return Path(top[1].strip()).resolve()


def check_cuda(
    environment: UserEnvironment, home: Path, archs: Sequence[str], environ: Mapping[str, str], folder: Path
) -> None:
    """Compile a kernel of one line for all architectures, with the headers that extensions need.

    ``home`` is the toolkit's folder; ``archs`` are as in ``TORCH_CUDA_ARCH_LIST``, the other arguments as for
    :func:`check_cpp`.

    Raises PreflightError: nvcc, its host compiler or a header does not work.
    """
    version = environment.cuda_version or ""
    source = folder / "trial.cu"
    # minor versions of one major version are compatible (CUDA Compatibility Guide)
    source.write_text(_CUDA.format(major=version.partition(".")[0], version=version))
    nvcc = str(home / "bin" / "nvcc")
    command = [nvcc, f"-I{home / 'include'}"]
    if environ.get("CC"):
        command += ["-ccbin", environ["CC"]]
    for arch in archs:
        number = arch.removesuffix("+PTX").replace(".", "")
        command.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if arch.endswith("+PTX"):
            command.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    command += ["-c", str(source), "-o", str(folder / "trial.o")]
    problem = _problem(command, environ, folder)
    if problem:
        raise PreflightError(
            f"{nvcc} does not compile a kernel of one line for {' '.join(archs)}: {problem}",
            f"{_remedy(environment)}; or use another host compiler (CC, CXX) or --arch-list",
        )


def _remedy(environment: UserEnvironment) -> str:
    if (environment.prefix / ".megabuild-slim").is_dir():
        undo = shlex.join([*program_words(), "slim", str(environment.prefix), "--undo"])
        return f"undo `megabuild slim`, which removed the headers: {undo}; or slim with --keep extensions"
    version = environment.cuda_version or ""
    major = version.partition(".")[0]
    if int(major) < 13:  # NVIDIA's wheels of nvcc contain ptxas only (12.6.85, 12.9.86)
        return f"install NVIDIA's CUDA toolkit {major} and set CUDA_HOME; PyPI has nvcc from CUDA 13 on"
    words = [str(environment.interpreter), "-m", "pip", "install"]
    if "pip" not in environment.distributions:
        words = ["uv", "pip", "install", "--python", str(environment.interpreter)]
    # nvcc's wheels take any nvvm and crt, so both are named
    parts = f"cuda-toolkit[nvcc,nvvm,crt,cccl,curand,profiler]=={version}.*"
    return f'run: {shlex.join(words)} "{parts}"; or set CUDA_HOME'


def _problem(argv: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
    """Run a compiler whose last argument is the file to write; return its error, or an empty string."""
    output_file = Path(argv[-1])
    output_file.unlink(missing_ok=True)
    done = run(argv, timeout=_SECONDS, environ=environ, folder=folder)
    if done.returncode:
        return _first_problem(done.stdout + done.stderr) or f"exit status {done.returncode}"
    if not output_file.is_file() or output_file.read_bytes()[:4] not in _OBJECTS:
        return "it writes no code"
    return ""


def _first_problem(output: str) -> str:
    """Return the first line that says ``error``, else the last line that is not empty."""
    last = ""
    for line in output.splitlines():
        line = line.strip()
        if _ERROR.search(line):
            return line
        last = line or last
    return last
