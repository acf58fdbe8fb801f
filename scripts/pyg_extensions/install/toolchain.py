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
from pyg_extensions.install.user_environment import UserEnvironment

_SECONDS = 120.0
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
    for variable, default, more in (("CXX", "c++", []), ("CC", "", ["-lstdc++"])):
        value = environ.get(variable, "").strip()
        if not (value or default):
            continue
        install = "install a C++ compiler (Debian: apt-get install g++), or set CXX"
        remedy = f"correct or unset {variable}" if value else install
        words = shlex.split(value or default)
        flags = ["-shared", "-fPIC", "-x", "c++", str(source), *more, "-o", str(folder / "trial.so")]
        if problem := _problem([*words, *flags], environ, folder):
            raise PreflightError(f"{value or default} does not compile two lines of C++: {problem}", remedy)


def check_python_headers(environment: UserEnvironment, environ: Mapping[str, str], folder: Path) -> None:
    """Compile a line that includes Python.h, as PyTorch's headers do; arguments as for :func:`check_cpp`.

    Raises PreflightError: The headers of the environment's Python are missing.
    """
    source = folder / "trial-python.cpp"
    source.write_text("#include <Python.h>\n")
    flags = [word for name in ("CFLAGS", "CPPFLAGS") for word in shlex.split(environ.get(name, ""))]
    flags += [f"-I{path}" for path in environment.include]
    compiler = shlex.split(environ.get("CXX", "").strip() or "c++")
    command = [*compiler, *flags, "-fPIC", "-c", str(source), "-o", str(folder / "trial-python.o")]
    problem = _problem(command, environ, folder)
    if not problem:
        return
    remedy = "use a Python with its headers, or add their folder to CPPFLAGS"
    if environment.base_prefix == Path("/usr"):
        usual = Path("/usr/bin/python3").resolve().name == f"python{environment.python}"
        package = "python3-dev" if usual else f"python{environment.python}-dev"
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
    version = environment.cuda_version or ""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if named := environ.get(variable):
            if (Path(named) / "bin" / "nvcc").is_file():
                return Path(named)
            reason = f"{variable}={named}: no bin/nvcc in this folder"
            raise PreflightError(reason, f"correct or unset {variable}")
    homes = [environment.site / "nvidia" / f"cu{version.partition('.')[0]}", environment.prefix]
    if on_path := shutil.which("nvcc", path=environ.get("PATH")):
        home = Path(on_path).resolve().parent.parent
        # nvcc may be a script that prints its home, as Debian's is
        if not (home / "include" / "cuda_runtime.h").is_file():
            words = [on_path, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"]
            dry = run(words, timeout=_SECONDS)
            top = re.search(r"^#\$ TOP=(.+)$", dry.stdout + dry.stderr, re.MULTILINE)
            home = Path(top[1].strip()).resolve() if top else home
        homes.append(home)
    for home in (*homes, usual.with_name(f"{usual.name}-{version}"), usual):
        if (home / "bin" / "nvcc").is_file():
            return home
    raise PreflightError(f"nvcc not found, but PyTorch is for CUDA {version}", _remedy(environment))


def check_cuda(
    environment: UserEnvironment, home: Path, archs: Sequence[str], environ: Mapping[str, str], folder: Path
) -> None:
    """Compile a kernel of one line for all architectures, with the headers that extensions need.

    ``home`` is the toolkit's folder; ``archs`` are as in ``TORCH_CUDA_ARCH_LIST``, the other arguments as for
    :func:`check_cpp`.

    Raises PreflightError: nvcc, its host compiler or a header does not work.
    """
    version, nvcc = environment.cuda_version or "", str(home / "bin" / "nvcc")
    source = folder / "trial.cu"
    # minor versions of one major version are compatible (CUDA Compatibility Guide)
    source.write_text(_CUDA.format(major=version.partition(".")[0], version=version))
    flags = [f"-I{home / 'include'}", *(["-ccbin", environ["CC"]] if environ.get("CC") else [])]
    for arch in archs:
        number = arch.removesuffix("+PTX").replace(".", "")
        kinds = ("sm", "compute") if arch.endswith("+PTX") else ("sm",)
        flags += [f"-gencode=arch=compute_{number},code={kind}_{number}" for kind in kinds]
    problem = _problem([nvcc, *flags, "-c", str(source), "-o", str(folder / "trial.o")], environ, folder)
    if problem:
        raise PreflightError(
            f"{nvcc} does not compile a kernel of one line for {' '.join(archs)}: {problem}",
            f"{_remedy(environment)}; or use another host compiler (CC, CXX) or --arch-list",
        )


def _remedy(environment: UserEnvironment) -> str:
    if (environment.prefix / ".megabuild-slim").is_dir():
        undo = shlex.join(["python3", "scripts/megabuild", "slim", str(environment.prefix), "--undo"])
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
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = (lines or [f"exit status {done.returncode}"])[-1]
        return next((line for line in lines if _ERROR.search(line)), last)
    return "" if output_file.is_file() and output_file.read_bytes()[:4] in _OBJECTS else "it writes no code"
