"""All that makes an object is in the object cache's key: each program that a compiler starts, each flag, each file.

The compilers are stand-ins: they name their programs as gcc and nvcc do. The cache prints a hash over all that ccache
makes its key from. tests/integration/test_nvcc_cache.py has the real ones, where they are installed.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from small_files import program, write

LAUNCHER = Path(__file__).parents[2] / "recipe" / "pyg" / "common" / "cache_compiler.sh"
#: ccache compares the words of a command, the compiler's content or what replaces it, and the content of further files.
CACHE = """
[ -z "$CCACHE_DISABLE" ] || { echo uncached; exit 0; }
[ -n "$CCACHE_DEPEND" ] && echo depend || echo preprocessed
{
    case "$CCACHE_COMPILERCHECK" in string:*) echo "$CCACHE_COMPILERCHECK" ;; *) cat "$1" ;; esac
    for word do echo "$word"; done
    IFS=:
    for file in $CCACHE_EXTRAFILES; do
        [ -f "$file" ] && echo "$file" && cat "$file"
    done
} | sha256sum
"""
HOST = 'case "$1" in -print-prog-name=*) echo "{parts}/${{1#*=}}" ;; esac'
#: nvcc's dry run: variables, then commands, all on standard error.
PLAN = """
case " $* " in *" --dryrun "*) ;; *) exit 0 ;; esac
[ -z "$SILENT" ] || exit 0
[ -z "$BROKEN" ] || exit 1
cat >&2 <<PLAN
#\\$ _HERE_={toolkit}/bin
#\\$ CICC_PATH={toolkit}/nvvm/bin
#\\$ NVVMIR_LIBRARY_DIR={toolkit}/nvvm/libdevice
#\\$ PATH={toolkit}/bin:{host}:$PATH
#\\$ "$HOST_COMPILER" -D__CUDA_ARCH__=800 -E $NVCC_APPEND_FLAGS "$PWD/k.cu"
#\\$ cudafe++ --gen_c_file_name "/tmp/tmpxft_$$_00000000-6_k.cudafe1.cpp"
#\\$ "\\$CICC_PATH/cicc" --module_id_file_name "/tmp/tmpxft_$$_00000000-4_k.module_id" -arch compute_80
#\\$ ptxas -arch=sm_80
#\\$ fatbinary --create=k.fatbin
#\\$ bin2c k.fatbin
#\\$ nvlink --arch=sm_80
#\\$ rm /tmp/tmpxft_$$_00000000-6_k.o
PLAN
"""
KERNEL = ("-x", "cu", "-MD", "-c", "k.cu", "-o", "k.o")


@dataclass(frozen=True)
class World:
    """A toolkit and a host compiler, and a folder to compile in."""

    folder: Path

    def key(self, compiler: str, *words: str, work: str = "work", **variables: str) -> str:
        """Return the cache's key of a command in a work folder, or ``uncached``."""
        work_folder = self.folder / work
        work_folder.mkdir(exist_ok=True)
        environ = {"PATH": f"{self.folder}/host:{os.environ['PATH']}", "HOST_COMPILER": "g++", **variables}
        environ = {"CCACHE_COMPILERCHECK": "content", "CCACHE_BASEDIR": str(work_folder), **environ}
        command = [str(LAUNCHER), str(self.folder / "cache"), str(self.folder / compiler), *words]
        done = subprocess.run(
            command, cwd=work_folder, env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout


@pytest.fixture
def world(tmp_path: Path) -> World:
    parts, host, toolkit = tmp_path / "parts", tmp_path / "host", tmp_path / "cuda"
    program(tmp_path / "cache", CACHE)
    for name in ("host/gcc", "host/g++", "host/x86_64-conda-linux-gnu-c++", "c++/bin/gcc"):
        program(tmp_path / name, HOST.format(parts=parts))
    for name in ("cc1", "cc1plus", "as", "collect2"):
        program(parts / name, "")
    program(toolkit / "bin/nvcc", PLAN.format(toolkit=toolkit, host=host))
    for name in ("bin/ptxas", "bin/fatbinary", "bin/bin2c", "bin/nvlink", "bin/cudafe++", "nvvm/bin/cicc"):
        program(toolkit / name, "")
    write(toolkit / "bin/nvcc.profile", "INCLUDES += -I.\n")
    write(toolkit / "nvvm/libdevice/libdevice.10.bc", "BC")
    return World(tmp_path)


@pytest.mark.parametrize(
    ("compiler", "part"),
    [
        *(("host/gcc", part) for part in ("host/gcc", "parts/cc1", "parts/cc1plus", "parts/as")),
        *(("host/g++", part) for part in ("host/g++", "parts/cc1plus", "parts/as")),
        ("host/x86_64-conda-linux-gnu-c++", "parts/as"),
        ("c++/bin/gcc", "parts/cc1"),  # the name of the program counts, not of its folder
    ],
)
def test_another_program_that_compiles_is_another_key(world: World, compiler: str, part: str) -> None:
    before = world.key(compiler, "-c", "a.cpp")
    assert before.startswith("preprocessed\n")
    assert world.key(compiler, "-c", "a.cpp") == before
    with (world.folder / part).open("a") as file:
        file.write("# another version\n")
    assert world.key(compiler, "-c", "a.cpp") != before


@pytest.mark.parametrize(
    "part",
    [
        "cuda/bin/nvcc", "cuda/bin/nvcc.profile", "cuda/nvvm/bin/cicc", "cuda/nvvm/libdevice/libdevice.10.bc",
        "cuda/bin/ptxas", "cuda/bin/fatbinary", "cuda/bin/bin2c", "cuda/bin/nvlink", "cuda/bin/cudafe++",
        "host/g++", "parts/cc1plus", "parts/as", "parts/collect2",
    ],
)  # fmt: skip
def test_another_part_of_nvcc_is_another_key(world: World, part: str) -> None:
    before = world.key("cuda/bin/nvcc", *KERNEL)
    assert before.startswith("depend\n")
    assert world.key("cuda/bin/nvcc", *KERNEL) == before
    with (world.folder / part).open("a") as file:
        file.write("# another version\n")
    assert world.key("cuda/bin/nvcc", *KERNEL) != before


def test_nvcc_s_flags_are_in_the_key_and_the_work_folder_is_not(world: World) -> None:
    before = world.key("cuda/bin/nvcc", *KERNEL)
    assert world.key("cuda/bin/nvcc", *KERNEL, work="elsewhere") == before
    other = f"{world.folder}/host/gcc"
    keys = {
        before,
        world.key("cuda/bin/nvcc", *KERNEL, NVCC_APPEND_FLAGS="-DX"),
        world.key("cuda/bin/nvcc", *KERNEL, NVCC_APPEND_FLAGS="-DY"),
        world.key("cuda/bin/nvcc", *KERNEL, "-DX"),
        world.key("cuda/bin/nvcc", *KERNEL, HOST_COMPILER=other),
    }
    assert len(keys) == 5


@pytest.mark.parametrize("lacking", ["the list of headers", "a dry run", "its lines", "a program", "flags"])
def test_an_object_whose_key_is_unknown_is_not_cached(world: World, lacking: str) -> None:
    words, variables = list(KERNEL), dict[str, str]()
    match lacking:
        case "the list of headers":
            words.remove("-MD")
        case "a dry run":
            variables["BROKEN"] = "yes"
        case "its lines":
            variables["SILENT"] = "yes"
        case "flags":
            variables["PREFIX"] = "/opt/a|b"  # sed takes it for the end of the expression
        case _:
            variables["HOST_COMPILER"] = "no-such-compiler"
    assert world.key("cuda/bin/nvcc", *words, **variables) == "uncached\n"
