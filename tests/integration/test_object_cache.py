"""What PyTorch's build scripts compile is found again from another folder, and is the same as if compiled there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from small_files import program, write
from test_recipe_scripts import settings

#: As long as the engine makes the paths of environments.
PADDED = 255
SOURCE = """\
#include <dependency.h>
#include "core.h"
const char* where() { return __FILE__; }
const char* of_core() { return core(); }
const char* of_dependency() { return dependency(); }
"""
#: As a build script of the recipe, but that what it compiles is one file.
SCRIPT = """\
set -euo pipefail
source "$RECIPE_DIR/build_env.sh"
mkdir -p "$TORCH_TREE/build" && cd "$TORCH_TREE/build"
IFS=';' read -ra launchers <<<"${CMAKE_CXX_COMPILER_LAUNCHER:-}"
mkdir -p "$(dirname "$OBJECT")"
"${launchers[@]}" "$CXX" $CXXFLAGS $DEFINITION -I"$TORCH_TREE/c10" -isystem "$PREFIX/include" \\
    -MD -MT "$OBJECT" -MF "$OBJECT.d" -o "$OBJECT" -c "$TORCH_TREE/c10/x.cpp"
"""
HIT, MISS, SAME_TEXT = ["direct_cache_hit"], ["cache_miss"], ["preprocessed_cache_hit"]
CORE, BINDING = "x.o", "caffe2/torch/CMakeFiles/torch_python.dir/x.o"


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A compiler meanwhile the package with a header is installed once more."""
    if shutil.which("ccache") is None or shutil.which("g++") is None:
        pytest.skip("ccache or g++ is not installed")
    package = write(
        tmp_path / "package" / "dependency.h", "inline const char* dependency() { return __FILE__; }\n"
    )
    os.utime(package, (10**9, 10**9))
    return program(tmp_path / "g++", f'ln -f "{package}" "{package}.again"\nexec g++ "$@"')


def compiled(
    repository: Path,
    compiler: Path,
    folder: Path,
    *,
    version: str = "2.13.0",
    cuda: str = "None",
    output: str = CORE,
    definition: str = "",
) -> list[str]:
    """Compile in a folder; return what the object cache had to say."""
    top = compiler.parent
    work = folder / "out" / "bld" / "rattler-build_libtorch"
    prefix = work / "host_env".ljust(PADDED - len(str(work)) - 1, "_")
    (prefix / "include").mkdir(parents=True)
    os.link(top / "package" / "dependency.h", prefix / "include" / "dependency.h")
    (folder / "tree" / "c10").mkdir(parents=True)
    (folder / "tree" / "c10" / "x.cpp").write_text(SOURCE)
    (folder / "tree" / "c10" / "core.h").write_text("inline const char* core() { return __FILE__; }\n")
    stats = folder / "stats"
    environment = settings(
        repository, folder, CCACHE_DIR=str(top / "objects"), CCACHE_STATSLOG=str(stats), TORCH_CCACHE="ccache",
        TORCH_TREE=str(folder / "tree"), SRC_DIR=str(work / "work"), PREFIX=str(prefix),
        BUILD_PREFIX=str(work / "build_env"), CXX=str(compiler), torch_version=version, blas_impl="mkl",
        CXXFLAGS=f"-O2 -isystem {prefix}/include -fdebug-prefix-map={work}/work=/usr/local/src/{version}",
        cuda_compiler_version=cuda, torch_cuda_arch_list="9.0", OBJECT=output, DEFINITION=definition,
    )  # fmt: skip
    subprocess.run(["bash", "-c", SCRIPT], env=environment, check=True)
    return [word for word in stats.read_text().split() if word in (*HIT, *MISS, *SAME_TEXT)]


def test_an_object_comes_from_another_folder_and_release_and_names_neither(
    repository: Path, compiler: Path, tmp_path: Path
) -> None:
    first, second, third = tmp_path / "a", tmp_path / "another" / "of" / "another-length", tmp_path / "cold"
    assert compiled(repository, compiler, first) == MISS
    assert compiled(repository, compiler, second, version="2.13.1") == HIT
    shutil.rmtree(tmp_path / "objects")
    assert compiled(repository, compiler, third) == MISS
    objects = {(folder / "tree" / "build" / "x.o").read_bytes() for folder in (first, second, third)}
    assert len(objects) == 1, "found in the cache, it is another one than compiled"
    (held,) = objects
    assert str(tmp_path).encode() not in held
    paths = (b"conda/libtorch/c10/x.cpp", b"conda/libtorch/c10/core.h", b"conda-prefix/include/dependency.h")
    assert [path for path in paths if path not in held] == []


@pytest.mark.parametrize("part", ["cc1plus", "as"])
@pytest.mark.parametrize("named", [True, False])
def test_another_program_that_a_compiler_starts_is_a_miss(
    repository: Path, compiler: Path, tmp_path: Path, part: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds run further compilers than those that CC and CXX name: for tools of a cross build, or as nvcc's host."""
    for name in ("cc1plus", "as"):
        asked = subprocess.run(
            ["g++", f"-print-prog-name={name}"], capture_output=True, text=True, check=True
        )
        program(tmp_path / "parts" / name, f'exec {shutil.which(asked.stdout.strip())} "$@"')
    compiler.write_text(compiler.read_text().replace("exec g++", f"exec g++ -B{tmp_path}/parts/"))
    if not named:
        monkeypatch.setitem(globals(), "SCRIPT", SCRIPT.replace("source", "run=$CXX CXX=g++; source").replace(
            '"$CXX" $CXX', '"$run" $CXX'))  # fmt: skip
    assert compiled(repository, compiler, tmp_path / "first") == MISS
    assert compiled(repository, compiler, tmp_path / "second") == HIT
    with (tmp_path / "parts" / part).open("a") as file:
        file.write("# another\n")
    assert compiled(repository, compiler, tmp_path / "third") == MISS


def test_an_object_whose_list_of_headers_lacks_the_system_s_is_found_by_text(
    repository: Path, compiler: Path, tmp_path: Path
) -> None:
    assert compiled(repository, compiler, tmp_path / "first", definition="-MMD") == MISS
    package = tmp_path / "package" / "dependency.h"
    package.write_text(package.read_text().replace("__FILE__", '"changed"'))
    os.utime(package, (10**9, 10**9))
    assert compiled(repository, compiler, tmp_path / "second", definition="-MMD") == MISS


def stand_in_for_nvcc(compiler: Path) -> Path:
    """A compiler named nvcc whose dry run names g++ and a ptxas next to it; test_nvcc_cache has the real one."""
    folder = compiler.parent
    plan = f"#$ _HERE_={folder}\\n#$ PATH={folder}:/usr/bin:/bin\\n#$ g++ -c x.cpp\\n#$ ptxas x.ptx\\n"
    program(folder / "ptxas", "12.9")
    return program(
        folder / "nvcc", f'case "$1" in --dryrun) printf \'{plan}\'; exit;; esac\nexec {compiler} "$@"'
    )


def test_what_nvcc_makes_depends_on_the_programs_that_it_calls(
    repository: Path, compiler: Path, tmp_path: Path
) -> None:
    nvcc = stand_in_for_nvcc(compiler)
    for number, (ptxas, said) in enumerate([("12.9", MISS), ("12.9", HIT), ("13.0", MISS)]):
        program(compiler.parent / "ptxas", ptxas)
        assert compiled(repository, nvcc, tmp_path / f"folder{number}", cuda="13.0") == said


@pytest.mark.parametrize(
    ("output", "name", "said"), [(BINDING, "g++", SAME_TEXT), (CORE, "g++", MISS), (BINDING, "nvcc", MISS)]
)
def test_only_the_bindings_are_found_by_their_text(
    repository: Path, compiler: Path, tmp_path: Path, output: str, name: str, said: list[str]
) -> None:
    """A config with CUDA defines USE_CUDA for all bindings, of which most do not read it."""
    cuda = "13.0" if name == "nvcc" else "None"
    compiler = stand_in_for_nvcc(compiler) if name == "nvcc" else compiler
    assert compiled(repository, compiler, tmp_path / "first", output=output, cuda=cuda) == MISS
    options = {"output": output, "cuda": cuda, "definition": "-DUSE_CUDA"}
    assert compiled(repository, compiler, tmp_path / "second", **options) == said
