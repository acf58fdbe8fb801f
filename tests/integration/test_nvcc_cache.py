"""A real nvcc behind a real ccache: each program, flag and file that it reads is in the cache's key."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from small_files import program

from groundwork import files
from pyg_extensions.install.compile_wheel import write_launcher

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "recipe" / "pyg" / "common" / "cache_nvcc.sh"
ARCHS = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90"]
COMPILE = [*ARCHS, "-MD", "-MT", "k.o", "-MF", "k.d", "-x", "cu", "-c", "k.cu", "-o", "k.o"]
#: As PyTorch's cpp_extension writes it.
OF_TORCH = [
    "--generate-dependencies-with-compile",
    "--dependency-output",
    "k.d",
    *ARCHS,
    "-c",
    "k.cu",
    "-o",
    "k.o",
]
KERNEL = """\
#define NUMBER 0
{condition}
#undef NUMBER
#define NUMBER {number}
#endif
__device__ __host__ int number() {{ return NUMBER; }}
__global__ void kernel(int *result) {{ *result = number(); }}
"""
HIT, MISS = "direct_cache_hit", "cache_miss"
#: As both recipes set it. A hard link changes the ctime of the toolkit's headers, and other tests link whole toolkits:
#: ccache finds an object again only if no header changed during its compile.
SLOPPINESS = {"CCACHE_SLOPPINESS": "include_file_ctime"}


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """A copy of the toolkit's small parts, whose programs a test may exchange, and a folder to compile in."""

    folder: Path
    nvcc: Path

    def run(self, *words: str, launcher: Sequence[str] = (str(LAUNCHER), "ccache"), **variables: str) -> str:
        """Compile k.cu through a launcher; return the cache's answer, or "uncached"."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        (self.folder / "k.o").unlink(missing_ok=True)
        own = {"CCACHE_DIR": str(self.folder / "objects"), "CCACHE_STATSLOG": str(log), **SLOPPINESS}
        done = subprocess.run(
            [*launcher, str(self.nvcc), *words],
            cwd=self.folder, env={**os.environ, **own, **variables}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (self.folder / "k.o").is_file()
        words_of_log = log.read_text().split() if log.is_file() else []
        answers = [word for word in words_of_log if word in (HIT, MISS, "preprocessed_cache_hit")]
        return answers[0] if answers else "uncached"

    def source(self, condition: str = "#ifndef __CUDA_ARCH__", number: int = 1) -> None:
        (self.folder / "k.cu").write_text(KERNEL.format(condition=condition, number=number))


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's toolkit, tried once; skips the tests where it compiles nothing."""
    if shutil.which("ccache") is None:
        pytest.skip("ccache is not installed")
    found = next((path for path in Path("/usr/local").glob("cuda*/bin/nvcc") if path.is_file()), None)
    if found is None:
        pytest.skip("no CUDA toolkit in /usr/local")
    folder = tmp_path_factory.mktemp("trial")
    Compiler(folder=folder, nvcc=found).source()
    trial = subprocess.run([str(found), *COMPILE], cwd=folder, capture_output=True, text=True)
    if trial.returncode != 0:
        pytest.skip(f"nvcc compiles nothing here: {trial.stderr.strip()[-200:]}")
    return found.parent.parent


def link_file(source: str, target: str) -> None:
    files.link(Path(source), Path(target))


@pytest.fixture(scope="module")
def programs(toolkit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folders that nvcc starts its programs from, on the file system of temporary folders."""
    copy = tmp_path_factory.mktemp("programs")
    for name in ("bin", "nvvm"):
        shutil.copytree(toolkit / name, copy / name, copy_function=link_file, symlinks=True)
    return copy


@pytest.fixture
def compiler(toolkit: Path, programs: Path, tmp_path: Path) -> Compiler:
    copy = tmp_path / "toolkit"
    shutil.copytree(programs, copy, copy_function=os.link, symlinks=True)
    for part in toolkit.iterdir():
        if part.name not in ("bin", "nvvm"):
            (copy / part.name).symlink_to(part)
    compiler = Compiler(folder=tmp_path, nvcc=copy / "bin" / "nvcc")
    compiler.source()
    return compiler


def behind_a_script(path: Path, note: str = "") -> Path:
    """Replace a program by a script that runs it: another program with the same result."""
    real = path.with_name(f"{path.name}.real")
    if not real.exists():
        os.rename(path, real)
    return program(path, f'# {note}\nexec "{real}" "$@"')


@pytest.mark.parametrize(
    "form",
    [
        "-ccbin={}",
        *(pytest.param(form, marks=pytest.mark.long) for form in ("--compiler-bindir={}", "-ccbin {}")),
        *(pytest.param(form, marks=pytest.mark.long) for form in ("--compiler-bindir {}", "NVCC_CCBIN={}")),
    ],
)
def test_another_host_compiler_is_noticed_however_it_is_named(compiler: Compiler, form: str) -> None:
    host = compiler.folder / "host"
    word = form.format(host)
    words = [] if word.startswith("NVCC_") else word.split()
    variables = {"NVCC_CCBIN": str(host)} if word.startswith("NVCC_") else {}
    answers: list[str] = []
    for flag in ("", "", "-DOTHER=1"):
        program(host, f'exec g++ {flag} "$@"')
        answers.append(compiler.run(*words, *COMPILE, **variables))
    assert answers == [MISS, HIT, MISS]


def test_a_header_that_is_linked_elsewhere_meanwhile_is_the_same(compiler: Compiler) -> None:
    """As by an installation of the same package, or by a test with a copy of the toolkit."""
    (compiler.folder / "one.h").write_text("// 1\n")
    (compiler.folder / "k.cu").write_text('#include "one.h"\n')
    host = program(compiler.folder / "host", 'ln -f one.h elsewhere.h\nexec g++ "$@"')
    assert [compiler.run(f"-ccbin={host}", *COMPILE) for _ in range(2)] == [MISS, HIT]


@pytest.mark.parametrize(
    "variable", ["NVCC_PREPEND_FLAGS", pytest.param("NVCC_APPEND_FLAGS", marks=pytest.mark.long)]
)
def test_flags_of_variables_are_noticed(compiler: Compiler, variable: str) -> None:
    answers = [compiler.run(*COMPILE, **{variable: flags}) for flags in ("-DX=1", "-DX=1", "-DX=2")]
    assert answers == [MISS, HIT, MISS]


@pytest.mark.long
@pytest.mark.parametrize("form", ["-optf {}", "-optf={}", "--options-file {}", "--options-file={}"])
def test_flags_of_files_are_noticed(compiler: Compiler, form: str) -> None:
    answers: list[str] = []
    for flags in ("-DX=1", "-DX=1", "-DX=2"):
        (compiler.folder / "flags").write_text(flags)
        answers.append(compiler.run(*form.format("flags").split(), *COMPILE))
    assert answers == [MISS, HIT, MISS]


@pytest.mark.long  # several compiles
def test_flags_of_a_file_that_another_file_names_are_noticed(compiler: Compiler) -> None:
    (compiler.folder / "flags").write_text("--options-file more")
    answers: list[str] = []
    for flags in ("-DX=1", "-DX=1", "-DX=2"):
        (compiler.folder / "more").write_text(flags)
        answers.append(compiler.run("-optf=flags", *COMPILE))
    assert answers == [MISS, HIT, MISS]


@pytest.mark.long
@pytest.mark.parametrize("variable", ["PTXAS_FLAGS", "INCLUDES", "SYSTEM_INCLUDES"])
def test_variables_that_the_profile_appends_to_are_noticed(compiler: Compiler, variable: str) -> None:
    first, second = ("-O3", "-O2") if variable == "PTXAS_FLAGS" else ("-I/a", "-I/b")
    answers = [compiler.run(*COMPILE, **{variable: value}) for value in (first, first, second)]
    assert answers == [MISS, HIT, MISS]


@pytest.mark.long
def test_a_header_of_one_architecture_is_noticed(compiler: Compiler) -> None:
    (compiler.folder / "k.cu").write_text('#if __CUDA_ARCH__ == 900\n#include "one.h"\n#endif\n')
    answers: list[str] = []
    for text in ("// 1", "// 1", "// 2"):
        (compiler.folder / "one.h").write_text(text)
        os.utime(compiler.folder / "one.h", (10**9, 10**9))
        answers.append(compiler.run(*COMPILE))
    assert answers == [MISS, HIT, MISS]


@pytest.mark.parametrize(
    "setting",
    [
        "CCACHE_NODIRECT",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("CCACHE_NODEPEND", "direct_mode = false")),
    ],
)
def test_no_setting_of_the_user_leads_to_text(compiler: Compiler, setting: str) -> None:
    variables = {setting: "1"} if setting.startswith("CCACHE_") else {}
    if not variables:
        (compiler.folder / "objects").mkdir()
        (compiler.folder / "objects" / "ccache.conf").write_text(setting)
    answers: list[str] = []
    for number in (1, 1, 2):
        compiler.source("#if __CUDA_ARCH__ == 900", number)
        answers.append(compiler.run(*COMPILE, **variables))
    assert answers == [MISS, HIT, MISS]


@pytest.mark.parametrize(
    ("name", "cached"), [pytest.param("nvcc-13.0", True, marks=pytest.mark.long), ("cuda-compiler", False)]
)
def test_nvcc_under_another_name_is_never_found_by_text(compiler: Compiler, name: str, cached: bool) -> None:
    program(compiler.folder / name, f'exec {compiler.nvcc} "$@"')
    named = replace(compiler, nvcc=compiler.folder / name)
    launcher = (str(LAUNCHER.with_name("cache_compiler.sh")), "ccache")
    answers: list[str] = []
    for number in (1, 1, 2):
        named.source("#if __CUDA_ARCH__ == 900", number)
        answers.append(named.run(*COMPILE, launcher=launcher))
    assert answers == ([MISS, HIT, MISS] if cached else ["uncached"] * 3)


def test_an_uncached_nvcc_runs_behind_ccache_s_prefix(compiler: Compiler) -> None:
    """The prefix limits the memory of all compilers."""
    prefix = program(compiler.folder / "prefix", f'touch {compiler.folder}/called\nexec "$@"')
    words = [*ARCHS, "-c", "k.cu", "-o", "k.o"]
    assert compiler.run(*words, CCACHE_PREFIX=str(prefix)) == "uncached"
    assert (compiler.folder / "called").exists()


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_the_end_of_a_cached_nvcc_is_the_launcher_s(compiler: Compiler, end: str) -> None:
    """And nothing is left of it."""
    prefix = program(compiler.folder / "prefix", end)
    environ = {"CCACHE_DIR": str(compiler.folder / "objects"), "TMPDIR": str(compiler.folder / "tmp")}
    (compiler.folder / "tmp").mkdir()
    ends = []
    for launcher in ([str(LAUNCHER), "ccache"], ["ccache"]):
        command = [*launcher, str(compiler.nvcc), *COMPILE]
        variables = {**os.environ, **environ, "CCACHE_PREFIX": str(prefix), "CCACHE_DEPEND": "1"}
        ends.append(
            subprocess.run(command, cwd=compiler.folder, env=variables, capture_output=True).returncode
        )
    assert ends[0] == ends[1] != 0
    assert not list((compiler.folder / "tmp").glob("nvcc-flags*"))


@pytest.mark.long  # twelve compiles
def test_each_program_that_nvcc_starts_is_in_the_key(compiler: Compiler) -> None:
    toolkit = compiler.nvcc.parent.parent
    parts = [
        toolkit / "nvvm" / "bin" / "cicc",
        *(toolkit / "bin" / name for name in ("cudafe++", "ptxas", "fatbinary")),
    ]
    assert compiler.run(*COMPILE) == MISS
    for part in parts:
        behind_a_script(part, "first")
        assert compiler.run(*COMPILE) == MISS, part
        assert compiler.run(*COMPILE) == HIT, part
        behind_a_script(part, "second")
        assert compiler.run(*COMPILE) == MISS, part


def test_the_profile_and_the_device_library_are_in_the_key(compiler: Compiler) -> None:
    toolkit = compiler.nvcc.parent.parent
    assert compiler.run(*COMPILE) == MISS
    for part in (toolkit / "bin" / "nvcc.profile", *(toolkit / "nvvm" / "libdevice").glob("*.bc")):
        content = part.read_bytes()
        part.unlink()  # it is a hard link
        part.write_bytes(content + (b"\n" if part.suffix == ".profile" else b"\0\0\0\0"))
        assert compiler.run(*COMPILE) == MISS, part
        assert compiler.run(*COMPILE) == HIT, part


def test_the_host_compiler_s_own_programs_are_in_the_key(compiler: Compiler) -> None:
    host, part = compiler.folder / "host", compiler.folder / "cc1plus"
    real = subprocess.run(
        ["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=True
    ).stdout.strip()
    program(host, f'case "$*" in -print-prog-name=cc1plus) echo {part}; exit;; esac\nexec g++ "$@"')
    answers: list[str] = []
    for note in ("first", "first", "second"):
        program(part, f'# {note}\nexec {real} "$@"')
        answers.append(compiler.run(f"-ccbin={host}", *COMPILE))
    assert answers == [MISS, HIT, MISS]


@pytest.mark.long
@pytest.mark.parametrize("words", [COMPILE, OF_TORCH], ids=["cmake", "torch"])
@pytest.mark.parametrize(
    "condition", ["#ifndef __CUDA_ARCH__", "#if __CUDA_ARCH__ == 900", "#if __CUDA_ARCH__ == 800"]
)
def test_text_of_one_architecture_or_of_the_host_is_noticed(
    compiler: Compiler, words: list[str], condition: str
) -> None:
    made: list[bytes] = []
    for number in (1, 2):
        compiler.source(condition, number)
        assert compiler.run(*words) == MISS
        made.append((compiler.folder / "k.o").read_bytes())
    assert made[0] != made[1]
    for number in (1, 2):
        compiler.source(condition, number)
        assert compiler.run(*words) == HIT
        assert (compiler.folder / "k.o").read_bytes() == made[number - 1]


def of_libtorch(folder: Path) -> list[str]:
    variables = [f"RECIPE_DIR={ROOT / 'recipe'}", f"PREFIX={folder}", f"BUILD_ENV_LINK={folder}"]
    return ["env", *variables, str(ROOT / "recipe" / "compile_cached.sh"), "ccache"]


def of_an_extension(folder: Path) -> list[str]:
    recipe = ROOT / "recipe" / "pyg" / "pytorch_scatter"
    settings = {
        "RECIPE_DIR": str(recipe), "SRC_DIR": str(folder / "work" / "source"), "PREFIX": str(folder),
        "PYG_CCACHE": "ccache", "cuda_compiler_version": "None", "PATH": os.environ["PATH"],
    }  # fmt: skip
    (folder / "work" / "source").mkdir(parents=True)
    script = 'set -eu; source "$RECIPE_DIR/../common/build_env.sh"'
    subprocess.run(["bash", "-c", script], env=settings, check=True)
    return [str(folder / "work" / "launcher" / "ccache")]


def of_install_pyg(folder: Path) -> list[str]:
    return [str(write_launcher(folder / "launcher", "ccache"))]


@pytest.mark.parametrize(
    "make",
    [
        of_libtorch,
        *(pytest.param(make, marks=pytest.mark.long) for make in (of_an_extension, of_install_pyg)),
    ],
)
def test_every_launcher_of_nvcc_sees_sources_and_flags(
    compiler: Compiler, make: Callable[[Path], list[str]]
) -> None:
    launcher = make(compiler.folder)
    answers: list[str] = []
    for number, flags in [(1, "-DX=1"), (1, "-DX=1"), (2, "-DX=1"), (2, "-DX=2")]:
        compiler.source("#if __CUDA_ARCH__ == 800", number)
        answers.append(compiler.run(*OF_TORCH, launcher=launcher, NVCC_APPEND_FLAGS=flags))
    assert answers == [MISS, HIT, MISS, MISS]


def test_without_a_list_of_headers_nothing_is_cached(compiler: Compiler) -> None:
    for _ in range(2):
        assert compiler.run(*ARCHS, "-c", "k.cu", "-o", "k.o") == "uncached"


def test_a_failing_compile_fails(compiler: Compiler) -> None:
    (compiler.folder / "k.cu").write_text("#error broken on purpose\n")
    own = {**os.environ, "CCACHE_DIR": str(compiler.folder / "objects")}
    done = subprocess.run(
        [str(LAUNCHER), "ccache", str(compiler.nvcc), *COMPILE],
        cwd=compiler.folder,
        env=own,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "broken on purpose" in done.stderr
