"""recipe/check_staged.py on a small staged tree, sound and with each fault planted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_site import serving

RECIPE = Path(__file__).resolve().parents[2] / "recipe"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
#: As torch/csrc/stub.c
STUB = (
    "#include <Python.h>\nPyObject *initModule(void);\nPyObject *PyInit__C(void) { return initModule(); }\n"
)
#: torch._nccl_ep, which torch imports only when it needs it
NCCL_EP = "int @(void); int PyInit__nccl_ep(void) { return @(); }\n"
#: torch._C, and what torch/csrc/stub.c calls
MODULE = """\
#include <Python.h>
static PyObject *add(PyObject *self, PyObject *both) {
    return PyNumber_Add(PyTuple_GetItem(both, 0), PyTuple_GetItem(both, 1));
}
static PyMethodDef methods[] = {{"add", add, METH_VARARGS, ""}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "torch._C", "", -1, methods};
int c10(void);
PyObject *initModule(void) { return c10() ? PyModule_Create(&module) : NULL; }
"""
PACKAGE = "from torch._C import add\n__version__ = '9'\ndef ones(number): return (1.0,) * number\n"


def compiled(library: Path, code: str, *flags: str) -> Path:
    """Compile a library."""
    library.parent.mkdir(parents=True, exist_ok=True)
    command = f"gcc -shared -fPIC -x c - -o {library} -x none -Wl,--no-as-needed".split()
    subprocess.run([*command, *flags], input=code, text=True, check=True)
    return library


def check(name: str, *folders: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the check as build_staging.sh does."""
    command = [sys.executable, str(RECIPE / "check_staged.py"), name, *map(str, folders)]
    environ = {**os.environ, "LD_BIND_NOW": "1", **env}
    return subprocess.run(command, env=environ, text=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree as setup.py's flow leaves it: libtorch installed into torch/, no torch._C yet."""
    lib = tmp_path / "tree" / "torch" / "lib"
    compiled(lib / "libc10.so", "int c10(void) { return 1; }")
    include = f"-I{sysconfig.get_path('include')}"
    compiled(lib / "libtorch_python.so", MODULE, include, f"-L{lib}", "-lc10", "-Wl,-rpath,$ORIGIN")
    (lib.parent / "__init__.py").write_text(PACKAGE)
    (lib.parent / "_C").mkdir()  # of stubs, which Python would take for a namespace
    (tmp_path / "prefix" / "lib").mkdir(parents=True)
    return tmp_path / "tree"


@pytest.fixture
def built_by_cmake(tree: Path) -> Path:
    """The tree of 2.13, in which CMake has made the modules: those of this Python, and one that another Python left."""
    torch = tree / "torch"
    flags = f"-I{sysconfig.get_path('include')} -L{torch / 'lib'} -Wl,-rpath,$ORIGIN/lib".split()
    compiled(torch / f"_C{SUFFIX}", STUB, *flags, "-ltorch_python")
    compiled(torch / f"_nccl_ep{SUFFIX}", NCCL_EP.replace("@", "c10"), *flags, "-lc10")
    compiled(torch / "_nccl_ep.cpython-39-x86_64-linux-gnu.so", NCCL_EP.replace("@", "of_another_python"))
    return tree


def test_modules_that_cmake_has_built_are_imported_and_loaded(built_by_cmake: Path, tmp_path: Path) -> None:
    torch = built_by_cmake / "torch"
    for name, folders in (
        ("libraries", (torch, tmp_path / "prefix")),
        ("import", (built_by_cmake, torch)),
    ):
        assert check(name, *folders).returncode == 0, check(name, *folders).stderr


@pytest.mark.parametrize("module", ["_C", "_nccl_ep"])
def test_each_fault_of_a_module_that_cmake_has_built_is_found(
    module: str, built_by_cmake: Path, tmp_path: Path
) -> None:
    torch, prefix = built_by_cmake / "torch", tmp_path / "prefix"
    path = torch / f"{module}{SUFFIX}"
    flags = f"-I{sysconfig.get_path('include')} -L{torch / 'lib'} -Wl,-rpath,$ORIGIN/lib".split()
    sound = {"_C": STUB, "_nccl_ep": NCCL_EP.replace("@", "c10")}[module]
    driver = compiled(prefix / "lib" / "stubs" / "libcuda.so", "", "-Wl,-soname,libcuda.so.1")
    other = compiled(tmp_path / "elsewhere" / "libnccl_ep.so", "", "-Wl,-soname,libnccl_ep.so.0")
    for library, named in ((driver, "libcuda.so.1"), (other, "libnccl_ep.so.0")):
        compiled(path, sound, *flags, "-ltorch_python", "-lc10", str(library))
        done = check("libraries", torch, prefix)
        assert (done.returncode, f"{path} needs {named}" in done.stderr) == (1, True), done.stderr
    compiled(path, sound.replace("initModule", "absent").replace("c10", "absent"), *flags)
    done = check("import", built_by_cmake, torch)
    assert (done.returncode, "undefined symbol: absent" in done.stderr) == (1, True), done.stderr
    path.write_bytes(path.read_bytes()[:64])  # a link that a full disk ended
    done = check("import", built_by_cmake, torch)
    assert (done.returncode, path.name in done.stderr) == (1, True), done.stderr


def test_a_sound_tree_passes(tree: Path, tmp_path: Path) -> None:
    for name, folders in (
        ("libraries", (tree / "torch", tmp_path / "prefix")),
        ("import", (tree, tree / "torch")),
    ):
        done = check(name, *folders)
        assert (done.returncode, done.stdout) == (0, f"::megabuild:: checked {name}\n"), done.stderr
    installed = tmp_path / "installed" / "torch"  # elsewhere than the sources
    installed.mkdir(parents=True)
    (tree / "torch" / "lib").rename(installed / "lib")
    assert check("import", tree, installed).returncode == 0


def test_the_script_finds_libraries_that_have_no_path_to_one_another_yet(tree: Path, tmp_path: Path) -> None:
    """PyTorch 2.6 as Debian has it names the environment alone in its RPATHs; the package has all in one folder."""
    lib, prefix = tree / "torch" / "lib", tmp_path / "prefix"
    include = f"-I{sysconfig.get_path('include')}"
    compiled(lib / "libtorch_python.so", MODULE, include, f"-L{lib}", "-lc10", f"-Wl,-rpath,{prefix}/lib")
    phase = (RECIPE / "build_staging.sh").read_text().partition("phase check\n")[2]
    # no ninja compiled this tree
    script = phase.partition('"$PYTHON" "$RECIPE_DIR/tree_inputs"')[0]
    assert "check_staged.py" in script
    environ = {
        **os.environ, "RECIPE_DIR": str(RECIPE), "PREFIX": str(prefix), "PYTHON": sys.executable,
        "is_cross": "", "installed": ".", "target_platform": "linux-64",
    }  # fmt: skip
    done = subprocess.run(["bash", "-euc", script], cwd=tree, env=environ, text=True, capture_output=True)
    said = "::megabuild:: checked libraries\n::megabuild:: checked import\n"
    assert (done.returncode, done.stdout) == (0, said), done.stderr


def test_the_gpu_drivers_library_may_only_be_asked_for_by_what_is_opened_later(
    tree: Path, tmp_path: Path
) -> None:
    lib, prefix = tree / "torch" / "lib", tmp_path / "prefix"
    driver = compiled(
        prefix / "lib" / "stubs" / "libcuda.so", "int cuInit(void) { return 0; }", "-Wl,-soname,libcuda.so.1"
    )
    compiled(lib / "libcaffe2_nvrtc.so", "", str(driver))
    assert check("libraries", lib.parent, prefix).returncode == 0
    assert check("import", tree, lib.parent).returncode == 0
    compiled(lib / "libc10_cuda.so", "", str(driver))
    done = check("libraries", lib.parent, prefix)
    assert done.returncode == 1
    assert all(name in done.stderr for name in (str(lib / "libc10_cuda.so"), "libcuda.so.1"))
    assert "libcaffe2_nvrtc" not in done.stderr


def test_what_no_package_has_is_named_with_the_file_that_asks(tree: Path, tmp_path: Path) -> None:
    torch, prefix = tree / "torch", tmp_path / "prefix"
    other = compiled(tmp_path / "elsewhere" / "libfound.so", "", "-Wl,-soname,libfound.so.2")
    compiled(torch / "bin" / "torch_shm_manager", "", str(other))
    done = check("libraries", torch, prefix)
    assert done.returncode == 1
    program = torch / "bin" / "torch_shm_manager"
    assert all(name in done.stderr for name in (f"{program} ", " libfound.so.2", f" {torch / 'lib'} "))
    assert "host requirements" in done.stderr
    (prefix / "lib" / "libfound.so.2").symlink_to(other)
    assert check("libraries", torch, prefix).returncode == 0


def test_a_symbol_that_nobody_has_is_found(tree: Path) -> None:
    lib = tree / "torch" / "lib"
    compiled(lib / "libtorch_cuda_linalg.so", "int magma(void); int solve(void) { return magma(); }")
    done = check("import", tree, lib.parent)
    assert done.returncode == 1
    assert "undefined symbol: magma" in done.stderr
    assert str(lib / "libtorch_cuda_linalg.so") in done.stderr
    compiled(lib / "libc10.so", "int another(void) { return 1; }")
    done = check("import", tree, lib.parent)
    assert (done.returncode, "undefined symbol: c10" in done.stderr) == (1, True)


def test_a_torch_that_does_not_import_is_told_with_why_unless_a_requirement_of_the_package_is_not_there(
    tree: Path,
) -> None:
    module = tree / "torch" / "__init__.py"
    for line in ("from torch import nothing", "import torch._vendor", "raise RuntimeError('no')"):
        module.write_text(f"{PACKAGE}{line}\n")
        done = check("import", tree, tree / "torch")
        assert done.returncode == 1
        assert re.search(r"error: .*:\n  \w+Error: ", done.stderr)
    # 2.13's `torch` imports no more than the build has; a later one may
    module.write_text(f"{PACKAGE}import not_in_the_environment.part\n")
    done = check("import", tree, tree / "torch")
    assert (done.returncode, " not_in_the_environment" in done.stdout) == (0, True)
    (tree / "torch" / "lib" / "libc10.so").unlink()
    assert check("import", tree, tree / "torch").returncode == 1


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of an archive with a CMake project."""
    source = tmp_path / "web" / "project" / "CMakeLists.txt"
    source.parent.mkdir(parents=True)
    source.write_text("cmake_minimum_required(VERSION 3.20)\nproject(p NONE)\n")
    subprocess.run(["tar", "-czf", "p.tgz", "project"], cwd=tmp_path / "web", check=True)

    with serving({"/p.tgz": (tmp_path / "web" / "p.tgz").read_bytes()}) as site:
        yield f"{site.url}/p.tgz"


def configured(folder: Path, asks: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Configure a project."""
    (folder / "p").mkdir(parents=True)
    lines = "cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\ninclude(FetchContent)\ninclude(ExternalProject)\n"
    (folder / "p" / "CMakeLists.txt").write_text(lines + asks)
    command = ["cmake", "-Wno-dev", "-S", str(folder / "p"), "-B", str(folder / "build")]
    return subprocess.run(command, env={**os.environ, **env}, text=True, capture_output=True)


def test_a_configure_that_downloads_is_told(tmp_path: Path, web: str) -> None:
    asks = (
        'FetchContent_Declare(six URL "@" DOWNLOAD_EXTRACT_TIMESTAMP ON)\nFetchContent_MakeAvailable(six)\n'
    )
    assert configured(tmp_path / "web", asks.replace("@", web)).returncode == 0
    done = check("downloads", tmp_path / "web" / "build")
    assert done.returncode == 1
    assert "download-six" in done.stderr
    local = tmp_path / "web" / "p.tgz"
    assert configured(tmp_path / "local", asks.replace("@", str(local))).returncode == 0
    assert check("downloads", tmp_path / "local" / "build").returncode == 0
    asks = 'ExternalProject_Add(nccl GIT_REPOSITORY "https://example.invalid/nccl" GIT_TAG v1)\n'  # by the compile
    assert configured(tmp_path / "later", asks).returncode == 0
    assert "nccl-gitclone.cmake" in check("downloads", tmp_path / "later" / "build").stderr


def test_configuring_has_no_network(tmp_path: Path, web: str) -> None:
    """With the variables that build_staging.sh sets."""
    script = (RECIPE / "build_staging.sh").read_text(encoding="utf-8")
    lines = [line.strip() for line in script.splitlines()]
    exports = [line for line in lines if line.startswith(("none=", "export http_proxy", "export HTTP_PROXY"))]
    assert len(exports) == 3
    asks = f'file(DOWNLOAD "{web}" "${{CMAKE_BINARY_DIR}}/got" LOG log)\nmessage(STATUS "${{log}}")\n'
    printed = subprocess.run(
        ["bash", "-c", "\n".join([*exports, "env -0"])], capture_output=True, text=True, check=True
    ).stdout
    env = dict(line.partition("=")[::2] for line in printed.split("\0") if "proxy" in line.lower())
    assert "nothing-is-downloaded-here" not in configured(tmp_path / "with", asks).stdout
    assert (tmp_path / "with" / "build" / "got").stat().st_size
    assert "nothing-is-downloaded-here" in configured(tmp_path / "without", asks, **env).stdout
    assert not (tmp_path / "without" / "build" / "got").stat().st_size
