"""What the recipe's own shell scripts do to a tree, and what its test of libtorch refuses."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest
from small_files import program, shared_library, write
from wheel_files import make_wheel

import check_staged

SIX = "third_party/NNPACK/cmake/DownloadSix.cmake"


def settings(repository: Path, folder: Path, **more: str) -> dict[str, str]:
    """What the engine sets for a build script."""
    return {
        "PATH": os.environ["PATH"], "SRC_DIR": str(folder / "src"), "PREFIX": str(folder / "env"),
        "RECIPE_DIR": str(repository / "recipe"), "PYTHON": "false", "CPU_COUNT": "1", "target_platform": "linux-64",
        "provider": "conda-forge", "torch_source": "official", "torch_version": "2.13.0", "torch_optimization": "2",
        "blas_impl": "generic", "cuda_compiler_version": "None", **more,
    }  # fmt: skip


def sourced(script: str, variables: dict[str, str]) -> dict[str, str]:
    """Return the environment after a script below the recipe was sourced."""
    command = ["bash", "-euc", f'source "$RECIPE_DIR/{script}"; env']
    done = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def test_a_build_script_that_runs_again_keeps_the_tree(repository: Path, tmp_path: Path) -> None:
    """Someone in failed-enter's shell runs the script again, in the work folder that the first run emptied."""
    source, tree = tmp_path / "work", tmp_path / "tree"
    write(source / "Device.cpp", "int device;\n")
    write(source / "conda_build.sh", "# by rattler-build\n")
    command = [sys.executable, str(repository / "recipe" / "sync_tree.py"), str(source), str(tree)]
    subprocess.run(command, check=True)
    (tree / "Device.cpp").write_text("int mended;\n")
    write(source / "licenses" / "NOTICE", "written later in the same script\n")
    subprocess.run(command, check=True)
    assert sorted(path.name for path in tree.iterdir()) == [".megabuild-sync.json", "Device.cpp"]
    assert (tree / "Device.cpp").read_text() == "int mended;\n"


def test_extensions_kernels_are_cached_by_their_list_of_headers(repository: Path, tmp_path: Path) -> None:
    """PyTorch asks nvcc for the list unless the variable is set; without it, kernels are compiled again each time."""
    program(tmp_path / "cuda" / "bin" / "nvcc", "exit 1")
    made = settings(
        repository, tmp_path, cuda_compiler_version="13.0", torch_cuda_arch_list="9.0", PYG_CCACHE="ccache",
        CF_TORCH_CUDA_ARCH_LIST="9.0", BUILD_PREFIX=str(tmp_path / "cuda"),
        RECIPE_DIR=str(repository / "recipe/pyg/pytorch_scatter"), TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES="1",
    )  # fmt: skip
    script = 'source "$RECIPE_DIR/../common/build_env.sh"; env'
    done = subprocess.run(["bash", "-euc", script], env=made, check=True, capture_output=True, text=True)
    assert "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES" not in done.stdout
    assert f"CMAKE_CUDA_COMPILER_LAUNCHER={tmp_path}/launcher/ccache\n" in done.stdout


@pytest.mark.parametrize(
    ("built", "says"), [("", "is not set"), ("8.0", "libtorch was built for 8.0, not for")]
)
def test_an_extension_is_not_compiled_for_other_architectures_than_libtorch(
    built: str, says: str, repository: Path, tmp_path: Path
) -> None:
    made = settings(
        repository, tmp_path, cuda_compiler_version="13.0", torch_cuda_arch_list="9.0",
        CF_TORCH_CUDA_ARCH_LIST=built, RECIPE_DIR=str(repository / "recipe/pyg/pytorch_scatter"),
    )  # fmt: skip
    command = ["bash", "-euc", 'source "$RECIPE_DIR/../common/build_env.sh"; echo sourced']
    done = subprocess.run(command, env=made, check=False, capture_output=True, text=True)
    assert (done.returncode, "sourced" in done.stdout) == (1, False)
    assert says in done.stderr


@pytest.mark.parametrize("count", [1, 2])
def test_a_build_that_makes_another_number_of_wheels_than_one_has_failed(
    count: int, repository: Path, tmp_path: Path
) -> None:
    for number in range(count):
        write(tmp_path / f"src/dist/a{number}-1.whl")
    made = settings(repository, tmp_path, RECIPE_DIR=str(repository / "recipe/pyg/pytorch_scatter"))
    script = 'source "$RECIPE_DIR/../common/build_env.sh"; install_wheel() { echo "installed $1"; exit 7; }; '
    done = subprocess.run(
        ["bash", "-euc", f"{script} make_package true"], env=made, check=False, capture_output=True, text=True
    )
    assert done.returncode == (7 if count == 1 else 1), done.stderr
    assert ("installed" in done.stdout) == (count == 1)
    assert ("dist has 2 wheels instead of one" in done.stderr) == (count == 2)


@pytest.mark.parametrize(
    ("recipe", "script", "cache"),
    [
        ("recipe", "build_env.sh", "TORCH_CCACHE"),
        ("recipe/pyg/pytorch_scatter", "../common/build_env.sh", "PYG_CCACHE"),
    ],
)
def test_an_object_cache_knows_a_compiler_by_its_content_and_no_folder(
    recipe: str, script: str, cache: str, repository: Path, tmp_path: Path
) -> None:
    """Compilers of two packages may have one date and size."""
    more = {"RECIPE_DIR": str(repository / recipe), cache: "ccache"}
    told = sourced(script, settings(repository, tmp_path, **more))
    wanted = {"COMPILERCHECK": "content", "NOHASHDIR": "1", "BASEDIR": str(tmp_path)}
    assert {name: told.get(f"CCACHE_{name}") for name in wanted} == wanted


#: Of conda's compilers: a path with the package's name, a standard, hidden symbols, and libraries that may be dropped.
FLAGS = "-O2 -std=c++17 -fvisibility-inlines-hidden -fdebug-prefix-map=/a=/libtorch-2.13 -isystem {prefix}/include"
LINKED = "-Wl,-O2 -Wl,--as-needed -Wl,-z,now -L{prefix}/lib"


def test_flags_of_libtorch_depend_on_no_output_and_keep_its_symbols_and_libraries(
    repository: Path, tmp_path: Path
) -> None:
    prefix = tmp_path / "env"
    flags = {name: FLAGS.format(prefix=prefix) for name in ("CFLAGS", "CXXFLAGS")}
    told = sourced(
        "build_env.sh", settings(repository, tmp_path, **flags, LDFLAGS=LINKED.format(prefix=prefix))
    )
    for name in flags:
        words = told[name].split()
        assert words[:3] == ["-O2", "-isystem", f"{prefix}/include"]
        assert all(word.startswith("-ffile-prefix-map=") or word == "-w" for word in words[3:])
        assert f"-ffile-prefix-map={prefix}=/usr/local/src/conda-prefix" in words
    kept, rpath = told["LDFLAGS"].split()[:-1], told["LDFLAGS"].split()[-1]
    assert kept == ["-Wl,-O2", "-Wl,-z,lazy", f"-L{prefix}/lib", "-Wl,-z,noexecstack"]
    assert rpath.startswith("-Wl,-rpath,")
    assert (told["USE_CUDA"], told["TORCH_CUDA_ARCH_LIST"]) == ("0", "")


@pytest.mark.parametrize(("source", "has_cuda"), [("official", True), ("model", False)])
def test_a_compile_at_o0_is_cached_with_its_own_flags(
    source: str, has_cuda: bool, repository: Path, tmp_path: Path
) -> None:
    """The cache comes after the launcher that adds them; the model compiles no kernels."""
    made = settings(
        repository, tmp_path, torch_optimization="0", TORCH_CCACHE="ccache", torch_source=source,
        cuda_compiler_version="13.0", torch_cuda_arch_list="9.0",
    )  # fmt: skip
    told = sourced("build_env.sh", made)
    recipe = repository / "recipe"
    launcher = f"{recipe}/compile_at_O0.sh;{recipe}/compile_cached.sh;ccache"
    assert {told[f"CMAKE_{language}_COMPILER_LAUNCHER"] for language in ("C", "CXX")} == {launcher}
    assert told.get("CMAKE_CUDA_COMPILER_LAUNCHER") == (launcher if has_cuda else None)
    assert (told["USE_CUDA"], told["TORCH_CUDA_ARCH_LIST"]) == ("1", "9.0")


@pytest.mark.parametrize(("name", "value"), [("torch_optimization", "1"), ("blas_impl", "openblas")])
def test_an_unknown_choice_ends_the_build(name: str, value: str, repository: Path, tmp_path: Path) -> None:
    made = settings(repository, tmp_path, **{name: value})
    command = ["bash", "-euc", 'source "$RECIPE_DIR/build_env.sh"']
    done = subprocess.run(command, env=made, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith(f"{name}={value}: must be ")) == (1, True)


@pytest.mark.parametrize(("cuda", "accelerator"), [("None", "cpu"), ("13.0", "cuda130")])
def test_an_extensions_libraries_are_verified_for_its_config(
    cuda: str, accelerator: str, repository: Path, tmp_path: Path
) -> None:
    made = settings(
        repository, tmp_path, cuda_compiler_version=cuda, torch_cuda_arch_list="9.0", CF_TORCH_CUDA_ARCH_LIST="9.0",
        BUILD_PREFIX=str(program(tmp_path / "cuda/bin/nvcc", "").parents[1]), torch_pin="stable", SP_DIR="/site",
        RECIPE_DIR=str(repository / "recipe/pyg/pytorch_scatter"), PYTHON="echo", FORCE_ONLY_CPU="7",
    )  # fmt: skip
    script = (
        'source "$RECIPE_DIR/../common/build_env.sh"; verify_package torch_scatter; echo "${FORCE_ONLY_CPU-}"'
    )
    done = subprocess.run(["bash", "-euc", script], env=made, check=True, stdout=subprocess.PIPE, text=True)
    verified, only_cpu = done.stdout.splitlines()
    words = f"torch_scatter --folder /site --archs 9.0 --torch-pin stable --accelerator {accelerator}"
    assert verified.endswith(f"/verify_package.py {words}")
    assert only_cpu == ("1" if cuda == "None" else "")


@pytest.mark.parametrize("pool", ["", " -j --jobserver-auth=fifo:/pool"])
def test_flags_of_an_extension_depend_on_no_folder_and_its_jobs_on_the_pool(
    pool: str, repository: Path, tmp_path: Path
) -> None:
    prefix, link = tmp_path / "env-placeholder", tmp_path / "env"
    flags = {name: FLAGS.format(prefix=prefix) for name in ("CFLAGS", "CXXFLAGS", "CPPFLAGS")}
    made = settings(
        repository, tmp_path, **flags, LDFLAGS=LINKED.format(prefix=prefix), PREFIX=str(prefix), CPU_COUNT="3",
        MAKEFLAGS=pool, MAX_JOBS="9", CMAKE_BUILD_PARALLEL_LEVEL="9", TORCH_CUDA_ARCH_LIST="9.0", FORCE_ONLY_CUDA="1",
        RECIPE_DIR=str(repository / "recipe/pyg/pytorch_scatter"),
    )  # fmt: skip
    told = sourced("../common/build_env.sh", made)
    assert {told[name] for name in flags} == {"-O2 -std=c++17 -g0"}
    assert told["LDFLAGS"] == f"-Wl,-O2 -Wl,-z,lazy -L{prefix}/lib -Wl,-z,noexecstack"
    assert link.readlink() == prefix
    assert told.get("CMAKE_BUILD_PARALLEL_LEVEL") == (None if pool else "3")
    assert told["TORCH_NO_COMPILER_WRAPPER"] == "1", "any ccache would be used"
    assert (told["FORCE_CUDA"], told["FORCE_ONLY_CPU"]) == ("0", "1")
    assert told.keys().isdisjoint({"MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "FORCE_ONLY_CUDA"})


@pytest.mark.parametrize(
    ("on_path", "wheel", "home"),
    [(False, "", None), (True, "", "host"), (False, "/torch_scatter.whl", "build")],
)
def test_an_extension_for_cuda_is_compiled_with_an_nvcc_only(
    repository: Path, tmp_path: Path, on_path: bool, wheel: str, home: str | None
) -> None:
    """A prebuilt wheel needs no compiler."""
    for name in ("dirname", "ln"):
        write(tmp_path / "host/bin" / name).unlink()
        (tmp_path / "host/bin" / name).symlink_to(f"/usr/bin/{name}")
    if on_path:
        program(tmp_path / "host/bin/nvcc", "exit 1")
    made = settings(
        repository, tmp_path, cuda_compiler_version="13.0", torch_cuda_arch_list="9.0", CF_TORCH_CUDA_ARCH_LIST="9.0",
        BUILD_PREFIX=str(tmp_path / "build"), RECIPE_DIR=str(repository / "recipe/pyg/pytorch_scatter"),
        PYG_WHEEL=wheel, PATH=str(tmp_path / "host/bin"),
    )  # fmt: skip
    script = 'source "$RECIPE_DIR/../common/build_env.sh"; echo "$CUDA_HOME"'
    done = subprocess.run(["/bin/bash", "-euc", script], env=made, capture_output=True, text=True)
    if home is None:
        assert done.returncode == 1
        refusal = f"error: nvcc: neither in {tmp_path}/build/bin nor on PATH; CUDA 13.0 needs it\n"
        assert (done.stdout, done.stderr) == ("", refusal)
    else:
        assert (done.returncode, done.stdout) == (0, f"{tmp_path / home}\n")


def test_nnpack_s_configure_gets_nothing_from_the_network(repository: Path, tmp_path: Path) -> None:
    for place in (SIX, "cmake/Modules_CUDA_fix/FindCUDA.cmake"):
        write(tmp_path / "src" / place, "ExternalProject_Add(six URL https://index.example/six.tar.gz)\n")
    (tmp_path / "src" / "FindCUDA.cmake").touch()  # the engine brings it with the patches
    environment = settings(repository, tmp_path)  # its PYTHON ends the script where it would copy the sources
    script = repository / "recipe" / "build_staging.sh"
    ended = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["::megabuild:: phase sync"], ended.stderr
    assert (tmp_path / "src" / SIX).read_bytes() == b""


def test_the_record_names_what_is_there_and_nothing_names_the_folder_of_the_wheel(
    repository: Path, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "dist", "torch-2.14.0a0+git1-py3-none-any.whl", {"torch/version.py": b"git = 1"})
    script = (repository / "recipe" / "build_pytorch.sh").read_text()
    install = re.search(r'^.*"\$PYTHON" -m pip install(?:.*\\\n)*.*', script, re.MULTILINE)
    assert install is not None
    site = tmp_path / "site"
    write(tmp_path / "home" / ".config" / "pip" / "pip.conf", "[install]\ndry-run = true\n")  # has no effect
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PIP_TARGET": str(site),
        "HOME": str(tmp_path / "home"),
    }
    subprocess.run(["bash", "-euc", install[0]], cwd=tmp_path, env=environment, check=True)
    (info,) = site.glob("torch-*.dist-info")
    named = {row[0] for row in csv.reader((info / "RECORD").read_text().splitlines())}
    assert "torch/version.py" in named
    assert all((site / name).exists() for name in named)
    assert not (info / "direct_url.json").exists()


@pytest.fixture
def libtorch(tmp_path: Path) -> Path:
    """An environment with libtorch, as far as tests/libtorch.sh looks at it, and programs that build nothing."""
    prefix = tmp_path / "env"
    for place in ("bin/torch_shm_manager", "bin/cmake", "build/torch_user"):
        program((tmp_path if place.startswith("build") else prefix) / place, "")
    for package in ("ATen", "Caffe2", "Torch", "nlohmann_json"):
        (prefix / "share" / "cmake" / package).mkdir(parents=True)
    # somebody else's package may have been built wherever it was
    (prefix / "share/cmake/nlohmann_json/x.cmake").write_text("/home/conda/feedstock_root/work/build\n")
    (prefix / "share/cmake/Caffe2/Caffe2Targets.cmake").write_text("${_IMPORT_PREFIX}/lib/libc10.so\n")
    return prefix


def judged(repository: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", repository / "recipe" / "tests" / "libtorch.sh"],
        cwd=prefix.parent,
        env={"PATH": f"{prefix}/bin:{os.environ['PATH']}", "PREFIX": str(prefix)},
        capture_output=True,
        text=True,
    )


def test_libtorch_that_names_a_folder_of_the_build_or_cannot_be_executed_is_refused(
    repository: Path, libtorch: Path
) -> None:
    assert judged(repository, libtorch).returncode == 0
    for package in ("Caffe2", "Tensorpipe", "Torch"):
        for folder in ("/opt/megabuild/state/tree/torch/lib", "/b/bld/rattler-build_libtorch/work/build"):
            text = f'INTERFACE_LINK_LIBRARIES "{folder}/libx.a"\n'
            targets = write(libtorch / "share" / "cmake" / package / "Targets.cmake", text)
            ended = judged(repository, libtorch)
            assert (ended.returncode, str(targets) in ended.stdout) == (1, True)
            targets.unlink()
    (libtorch / "bin" / "torch_shm_manager").chmod(0o644)
    assert judged(repository, libtorch).returncode == 1


def test_libtorch_whose_files_cannot_all_be_read_is_refused(repository: Path, libtorch: Path) -> None:
    """grep's exit code is then 2, also if it has found a name."""
    program(libtorch / "bin/grep", "echo 'grep: Targets.cmake: Input/output error' >&2; exit 2")
    ended = judged(repository, libtorch)
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last == f"error: {libtorch}/share/cmake/ATen: not all files could be read (grep: exit code 2)"


@pytest.mark.parametrize("stray", ["lib/libtorch_python.so", "lib/python3.12/site-packages/torch/version.py"])
def test_libtorch_with_a_file_of_pytorch_is_refused(stray: str, repository: Path, libtorch: Path) -> None:
    write(libtorch / stray)
    ended = judged(repository, libtorch)
    assert ended.returncode == 1
    assert " belongs to pytorch, not to libtorch" in ended.stderr


@pytest.mark.parametrize(
    ("flavour", "has_magma", "code", "ends"),
    [
        ("nomagma", False, "#include <stdio.h>\nint f(void) { return puts(0); }", 0),
        # bound when it is called
        ("nomagma", False, "int magma_init(void); int f(void) { return magma_init(); }", 1),
        ("nomagma", True, "int f(void) { return 0; }", 1),
        ("magma", True, "int f(void) { return 0; }", 1),
    ],
)
def test_a_linalg_library_that_lacks_a_symbol_or_is_the_other_flavour_is_refused(
    repository: Path, tmp_path: Path, flavour: str, has_magma: bool, code: str, ends: int
) -> None:
    shared_library(tmp_path / "torch" / "lib" / "libtorch_cuda_linalg.so", code)
    (tmp_path / "torch" / "__init__.py").write_text(f"class cuda:\n    has_magma = {has_magma}\n")
    script = repository / "recipe" / "tests" / "linalg_flavour.py"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run([sys.executable, script, flavour], env=environment).returncode == ends


@pytest.mark.parametrize(
    ("name", "needed"), [("libtorch_cuda_linalg.so", "libmagma.so"), ("libtorch_cpu.so.2.6", "libonnx.so.1")]
)
@pytest.mark.parametrize("with_flags", [True, False])
def test_a_library_is_refused_that_finds_nothing_through_its_link_in_torch(
    repository: Path, tmp_path: Path, name: str, needed: str, with_flags: bool
) -> None:
    prefix = tmp_path / "env"
    torch = prefix / "lib/python3.13/site-packages/torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "utils").mkdir()
    (torch / "__init__.py").touch()
    flags = "-shared -fPIC -Wl,--no-as-needed -xc /dev/null '-Wl,-rpath,$ORIGIN'"
    script = 'source "$RECIPE_DIR/build_env.sh"; echo "$LDFLAGS"'
    environment = settings(repository, tmp_path, provider="debian", torch_version="2.6.0")
    told = subprocess.run(
        ["bash", "-euc", script], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    flags += f" {told.stdout.strip()}" if with_flags else ""
    for library, other in ((needed, ""), (name, f" -L{prefix}/lib -l:{needed}")):
        command = f"gcc {flags} -Wl,-soname,{library} -o {prefix}/lib/{library}{other}"
        subprocess.run(["sh", "-c", command], check=True)
    (torch / "lib" / name).symlink_to(f"../../../../{name}")
    test = [sys.executable, str(repository / "recipe/tests/linked_libraries.py"), str(prefix)]
    environment = {**os.environ, "PYTHONPATH": str(torch.parent)}
    judged = subprocess.run(test, env=environment, capture_output=True, text=True)
    assert (judged.returncode == 0) is with_flags, judged.stderr
    assert with_flags or needed in judged.stderr


@pytest.mark.parametrize(
    ("binary", "needed", "is_fault"),
    [
        ("lib/libtorch_cpu.so", "libc.so.6", False), ("lib/libtorch_cpu.so", "libc10.so.2", False),
        ("lib/libc10.so.2", "libmkl_rt.so.2", False), ("lib/libcaffe2_nvrtc.so", "libcuda.so.1", False),
        ("lib/libtorch_cpu.so", "libgomp.so.1", True), ("lib/libc10.so.2", "libgone.so", True),
        ("_C.so", "libgone.so", True), ("bin/torch_shm_manager", "libgone.so", True),
        ("lib/libtorch_cpu.so", "libcuda.so.1", True), ("lib/libtorch_cpu.so", "libnvidia-ml.so.1", True),
    ],
)  # fmt: skip
def test_a_library_that_users_lack_is_a_fault_of_each_file_that_needs_it(
    binary: str, needed: str, is_fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch, prefix = tmp_path / "torch", tmp_path / "env"
    for place in (
        "lib/libtorch_cpu.so",
        "lib/libc10.so.2",
        "lib/libcaffe2_nvrtc.so",
        "_C.so",
        "bin/torch_shm_manager",
    ):
        write(torch / place, "\x7fELF")
    write(torch / "bin/script", "#!/bin/sh\n")
    for name in (
        "libmkl_rt.so.2",
        "libcuda.so.1",
        "libnvidia-ml.so.1",
    ):  # CUDA's package has stubs of the driver
        write(prefix / "lib" / name)
    found = {torch / binary: [needed]}
    monkeypatch.setattr(check_staged, "needed", lambda path: found.pop(path, []))
    faults = list(check_staged.lacking(torch, prefix))
    assert found == {}, "not looked at"
    assert len(faults) == is_fault
    assert all(fault.startswith(f"{torch / binary} needs {needed}") for fault in faults)


@pytest.mark.parametrize("fault", ["", "ImportError: no symbol"])
@pytest.mark.parametrize("has_extension", [True, False])
def test_a_staged_torch_is_imported_with_its_libraries_for_this_python(
    has_extension: bool, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 2.12, setup.py makes torch._C later; the tree may have another Python's, and one library needs a driver."""
    own = f"_C{EXTENSION_SUFFIXES[0]}"
    torch, sources = tmp_path / "installed/torch", tmp_path / "sources"
    places = ["lib/libc10.so", "lib/libcaffe2_nvrtc.so", "_C.cpython-399-x86_64-linux-gnu.so"]
    places += [own] * has_extension
    for place in (*places, "version.py"):
        write(torch / place, "\x7fELF")
    for place in (
        "torch/__init__.py",
        "torch/lib/of-the-sources",
        "torch/csrc/a.cpp",
        "torchgen/x.py",
        "functorch/x.py",
    ):
        write(sources / place)
    seen: list[str] = []
    loaded: list[str] = []

    def import_fault() -> str:
        view = Path(sys.path[0])
        for path in sorted(view.rglob("*")):
            seen.append(path.relative_to(view).as_posix())
        assert (view / "torch/lib").resolve() == torch / "lib"
        return fault

    def load(library: Path) -> bool:
        loaded.append(library.name)
        return True

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(check_staged, "import_fault", import_fault)
    monkeypatch.setattr(check_staged, "is_loadable", load)
    assert list(check_staged.broken(sources, torch)) == ([fault] if fault else [])
    assert {"torch/__init__.py", "torch/version.py", "functorch", "torchgen"} <= set(seen)
    assert loaded == ([] if fault else [*[own] * has_extension, "libc10.so"])
    assert isinstance(sys.meta_path[0], check_staged.StagedC) is not has_extension


def test_needed_libraries_are_asked_of_the_compilers_own_readelf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build environment may have no other one."""
    line = "0x1 (NEEDED) Shared library: [libx.so.1]"
    monkeypatch.setenv("READELF", str(program(tmp_path / "of-conda-readelf", f'echo "{line}"')))
    assert check_staged.needed(tmp_path) == ["libx.so.1"]


def test_scripts_of_cmake_that_would_download_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "build/x/CMakeLists.txt")
    assert check_staged.main(["downloads", "build"]) == 0
    places = ("build/x/download-six.cmake", "build/y/tmp/z-gitclone.cmake")
    for place in places:
        write(tmp_path / place)
    assert check_staged.main(["downloads", "build"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[1:3] == [f"  {tmp_path / place}" for place in places]
    assert said[3].startswith("hint: ")


HEADER, HIDDEN = "torch/csrc/jit/python/pybind_utils.h", "torch::jit::detail::_tryToInferTypeImpl"
FUNCTION = """
namespace pybind11 {{ struct handle {{}}; }}
namespace torch::jit::detail {{
__attribute__((visibility("{visibility}"))) void _tryToInferTypeImpl(pybind11::handle) {{}}
}}
"""


@pytest.mark.parametrize(
    ("visibility", "header", "missing"),
    [
        ("default", "_tryToInferTypeImpl(py::handle input);", ""),
        ("hidden", "_tryToInferTypeImpl(py::handle input);", HIDDEN),
        ("hidden", "tryToInferType(py::handle input) {", ""),  # 2.6 has no such function
    ],
)
def test_a_function_is_missing_if_a_header_calls_it_and_the_library_hides_it(
    repository: Path, tmp_path: Path, visibility: str, header: str, missing: str
) -> None:
    write(tmp_path / "torch/__init__.py")
    write(tmp_path / "torch/include" / HEADER, header)
    source = FUNCTION.format(visibility=visibility)
    shared_library(tmp_path / "torch/lib/libtorch_python.so", source, compiler="g++")
    found = subprocess.run(
        [sys.executable, repository / "recipe/tests/missing_exports.py"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert found.stdout.strip() == missing


@pytest.mark.parametrize(
    ("source", "missing", "built"),
    [
        ("official", "", "headers torch_user python_user"),
        ("official", HIDDEN, "headers torch_user python_user"),  # the linker then fails
        ("wheel", "", "headers torch_user python_user"),
        ("wheel", HIDDEN, "headers torch_user"),
    ],
)
def test_only_a_wheel_may_lack_an_export_and_its_test_says_so(
    repository: Path, tmp_path: Path, source: str, missing: str, built: str
) -> None:
    program(tmp_path / "bin/cmake", f'echo "$@" >>{tmp_path}/cmake.log')
    program(tmp_path / "bin/python", f'[ "$1" != tests/missing_exports.py ] || echo "{missing}"')
    for name in ("torch_user", "python_user"):
        program(tmp_path / "build" / name, "")
    done = subprocess.run(
        ["bash", repository / "recipe/tests/pytorch.sh", "2.13.0", "None", source, source], cwd=tmp_path,
        env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PREFIX": "/env", "CONDA_PREFIX": "/env"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"--build build --target {built}\n" in (tmp_path / "cmake.log").read_text()
    warned = f"warning: the official wheel's libtorch_python does not export {HIDDEN}:" in done.stdout
    assert warned == (source == "wheel" and bool(missing))


#: What build_env.sh exports besides settings of PyTorch's configure step.
NO_SETTINGS = frozenset(
    {
        "BUILD_ENV_LINK", "TORCH_TREE", "PYTHON",  # the environment's and the tree's places: PREFIX is a setting
        "CCACHE_BASEDIR", "CCACHE_COMPILERCHECK", "CCACHE_DEPEND", "CCACHE_NOHASHDIR", "CCACHE_SLOPPINESS",
        "MAX_JOBS", "NINJA_STATUS", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PACKAGE_TYPE", "INSTALL_TEST",
        "OpenBLAS_HOME", "_GLIBCXX_USE_CXX11_ABI",  # constants next to a setting
    }
)  # fmt: skip


@pytest.fixture
def staging(repository: Path, tmp_path: Path) -> Path:
    """A recipe with the real script of the staging, and functions in place of those that compile."""
    recipe = tmp_path / "recipe"
    script = (repository / "recipe" / "build_staging.sh").read_text()
    write(recipe / "build_staging.sh", script)
    write(recipe / "build_env.sh", "phase() { :; }\nwrite_toolchain() { :; }\nPYTHON=true\nis_cross=\n")
    functions = "configure_tree() { mkdir -p build; echo >>configured; $CONFIGURE; }\ninstall_tree() { :; }\n"
    write(recipe / "backend.sh", f"{functions}installed=.\n")
    (tmp_path / "tree").mkdir()
    return recipe / "build_staging.sh"


def staged(script: Path, *, ends: int = 0, **variables: str) -> bool:
    """Run the staging; return whether it configured the tree."""
    tree = script.parents[1] / "tree"
    (tree / "configured").unlink(missing_ok=True)
    environ = {
        "PATH": os.environ["PATH"], "RECIPE_DIR": str(script.parent), "SRC_DIR": "/src", "PREFIX": "/env",
        "TORCH_TREE": str(tree), "torch_source": "model", "torch_optimization": "2", "target_platform": "osx-64",
        "PYTHON": "true", "CONFIGURE": "true", **variables,
    }  # fmt: skip
    done = subprocess.run(["bash", str(script)], env=environ, capture_output=True, text=True)
    assert done.returncode == ends, done.stderr
    return (tree / "configured").exists()


def test_a_tree_is_configured_again_for_each_other_setting(
    repository: Path, tmp_path: Path, staging: Path
) -> None:
    text = (repository / "recipe" / "build_env.sh").read_text()
    code = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
    exports = re.findall(r"\bexport (.*)", code)
    names = {name for words in exports for name in re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", words)}
    names |= {name for words in exports if "=" not in words for name in words.split()}
    assert {"CFLAGS", "CXXFLAGS", "LDFLAGS", "BLAS", "USE_CUDA", "TORCH_CUDA_ARCH_LIST"} < names
    assert names > NO_SETTINGS
    record = tmp_path / "tree" / "build" / "configured-with.txt"
    assert staged(staging)
    assert not staged(staging)
    before = record.read_text()
    forgotten = []
    for name in sorted(
        {*names, "CC", "CXX", "torch_blas", "PREFIX"} - NO_SETTINGS - {"CMAKE_TOOLCHAIN_FILE"}
    ):
        changed: dict[str, Any] = {name: "changed"}
        if not staged(staging, **changed):
            forgotten.append(name)
        record.write_text(before)
    assert forgotten == []


def test_a_tree_is_configured_again_for_another_toolchain_and_after_a_failure(
    tmp_path: Path, staging: Path
) -> None:
    toolchain = str(write(tmp_path / "toolchain.cmake", "set(A 1)\n"))
    assert staged(staging, CMAKE_TOOLCHAIN_FILE=toolchain)
    assert not staged(staging, CMAKE_TOOLCHAIN_FILE=toolchain)
    write(tmp_path / "toolchain.cmake", "set(A 2)\n")
    assert staged(staging, CMAKE_TOOLCHAIN_FILE=toolchain)
    # the new settings fail: neither these nor the former ones are those of the tree
    assert staged(staging, CONFIGURE="false", ends=1, USE_CUDA="1")
    assert staged(staging, CMAKE_TOOLCHAIN_FILE=toolchain)


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_libtorchs_files_come_from_the_tree_as_links_if_possible(
    links: bool, repository: Path, tmp_path: Path
) -> None:
    library = write(tmp_path / "tree/libtorch-files/lib/libc10.so", "library")
    (library.parent / "libc10.so.1").symlink_to("libc10.so")
    write(tmp_path / "env/lib/other.so", "")
    if not links:
        program(tmp_path / "bin/cp", 'case "$1" in *l*) exit 1 ;; esac\nexec /bin/cp "$@"')
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "TORCH_TREE": str(tmp_path / "tree"), "SRC_DIR": "/src",
        "PREFIX": str(tmp_path / "env"), "cuda_compiler_version": "None",
    }  # fmt: skip
    subprocess.run(["bash", repository / "recipe/build_libtorch.sh"], env=environ, check=True)
    installed = tmp_path / "env/lib/libc10.so"
    assert installed.read_text() == "library"
    assert installed.samefile(library) == links
    assert os.readlink(tmp_path / "env/lib/libc10.so.1") == "libc10.so"


@pytest.mark.parametrize("own", ["", "8.0"])
def test_an_activated_libtorch_names_its_architectures_and_keeps_the_users(
    own: str, repository: Path, tmp_path: Path
) -> None:
    environ = {
        "PATH": os.environ["PATH"], "SRC_DIR": str(tmp_path), "PREFIX": str(tmp_path / "env"),
        "RECIPE_DIR": str(repository / "recipe"), "cuda_compiler_version": "13.0",
        "torch_cuda_arch_list": "9.0;12.0+PTX", **({"CF_TORCH_CUDA_ARCH_LIST": own} if own else {}),
    }  # fmt: skip
    tell = 'echo "${CF_TORCH_CUDA_ARCH_LIST-none}"'
    script = f"""
"$BASH" "$RECIPE_DIR/build_libtorch.sh"
source "$PREFIX/etc/conda/activate.d/libtorch_activate.sh"; {tell}
source "$PREFIX/etc/conda/deactivate.d/libtorch_deactivate.sh"; {tell}
"""
    done = subprocess.run(
        ["bash", "-euc", script], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.split() == ([own, own] if own else ["9.0;12.0+PTX", "none"])


@pytest.mark.parametrize("flavour", ["magma", "nomagma"])
def test_a_linalg_library_with_magma_has_a_name_of_its_own(
    flavour: str, repository: Path, tmp_path: Path
) -> None:
    made = settings(repository, tmp_path, linalg_backend=flavour, TORCH_TREE=str(tmp_path / "tree"))
    for name in ("libtorch_cuda_linalg", "libtorch_cuda_linalg_magma"):
        write(tmp_path / f"tree/torch/lib/{name}.so", name)
    (tmp_path / "env/lib").mkdir(parents=True)
    subprocess.run(["bash", repository / "recipe/build_linalg.sh"], env=made, check=True)
    library = tmp_path / "env/lib/libtorch_cuda_linalg.so"
    assert library.resolve().read_text() == library.resolve().name.removesuffix(".so")
    own = "libtorch_cuda_linalg_magma.so" if flavour == "magma" else library.name
    assert sorted(path.name for path in library.parent.iterdir()) == sorted({library.name, own})
    assert library.resolve().name == own


@pytest.mark.parametrize(
    ("command", "ends"),
    [
        ("c++ -O3 -c a.cpp", " -O0"),
        ("nvcc -x cu -O3 -c Sort.cu", " -O0 -Xcicc -O0 -Xptxas -O0"),
        ("nvcc -x cu -O3 -c SparseSemiStructuredTile.cu", "Tile.cu"),
        ("nvcc -x cu -O3 -c RowwiseScaledMM.cu", "MM.cu"),
        ("nvcc -x cu -O3 -c ReduceMomentKernel.cu", "Kernel.cu"),
        ("c++ -O3 -c ReduceMomentKernel.cpp", " -O0"),
    ],
)
def test_nothing_is_optimised_at_o0_but_kernels_that_need_it(
    command: str, ends: str, repository: Path
) -> None:
    launcher = repository / "recipe/compile_at_O0.sh"
    done = subprocess.run([launcher, "echo", *command.split()], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout.startswith(command)
    assert done.stdout.rstrip("\n").endswith(ends)


def test_a_cached_compile_names_the_environments_headers_by_the_link_only(
    repository: Path, tmp_path: Path
) -> None:
    """Objects are then found from another work folder; a macro's value is part of the object."""
    cache = program(tmp_path / "cache", 'echo "${CCACHE_DEPEND-none}"; printf "%s\\n" "$@"')
    words = ["-I/p/include", "-isystem", "/p/include", "-isystem=/p/include", "-I/pp", '-DHOME="/p/include"']
    words.append("-DROOT=/p/include")
    environ = {
        "PATH": os.environ["PATH"], "RECIPE_DIR": str(repository / "recipe"), "PREFIX": "/p",
        "BUILD_ENV_LINK": "/env", "CCACHE_DEPEND": "1",
    }  # fmt: skip
    for target, depends in (("torch_cpu", "1"), ("torch_python", "none")):
        output = f"caffe2/CMakeFiles/{target}.dir/a.o"
        command = [str(repository / "recipe/compile_cached.sh"), str(cache), "false", *words, "-o", output]
        done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True)
        told = done.stdout.splitlines()
        assert (told[0], told[1]) == (depends, "false")
        assert told[2:9] == [
            "-I/env/include", "-isystem", "/env/include", "-isystem=/env/include", "-I/pp", '-DHOME="/p/include"',
            "-DROOT=/p/include",
        ]  # fmt: skip


def test_libtorchs_files_of_a_wheel_are_in_the_environment_already(repository: Path, tmp_path: Path) -> None:
    environ = {
        "PATH": os.environ["PATH"], "SRC_DIR": str(tmp_path), "PREFIX": str(tmp_path / "env"),
        "cuda_compiler_version": "None",
    }  # fmt: skip
    subprocess.run(["bash", repository / "recipe/build_libtorch.sh"], env=environ, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "setup.py"),
        ('[build-system]\nbuild-backend = "setuptools.build_meta"\n', "setup.py"),
        ('[build-system]\n# build-backend = "scikit_build_core.build"\n', "setup.py"),
        ('[build-system]\nbuild-backend = "scikit_build_core.build"\n', "scikit-build-core"),
    ],
)
def test_the_tree_s_own_file_names_the_back_end(
    repository: Path, tmp_path: Path, text: str | None, expected: str
) -> None:
    if text is not None:
        write(tmp_path / "pyproject.toml", text)
    script = 'source "$RECIPE_DIR/backend.sh"; echo "$torch_backend"'
    environ = {"PATH": os.environ["PATH"], "RECIPE_DIR": str(repository / "recipe")}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environ, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == expected


def limit_jobs(repository: Path, folder: Path, *, version: str, tokens: int, pipe: str = "pipe") -> list[str]:
    """Return ninja's options, MAX_JOBS, and the tokens left in the pipe during and after a script with 4 jobs."""
    program(folder / "bin" / "ninja", f"echo {version}")
    os.mkfifo(folder / "pipe")
    descriptor = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, b"+" * tokens)
    left = (
        'python3 -c \'import fcntl, os, struct, termios; pipe = os.open("pipe", os.O_RDWR); '
        'print(*struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))))\''
    )
    script = f'source "$RECIPE_DIR/backend.sh"; limit_jobs; echo "${{ninja_jobs[*]}}/${{MAX_JOBS:-}}"; {left}'
    environ = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "RECIPE_DIR": str(repository / "recipe"), "MAX_JOBS": "4",
        "MAKEFLAGS": f" -j --jobserver-auth=fifo:{folder / pipe}",
    }  # fmt: skip
    try:
        done = subprocess.run(
            ["bash", "-euc", script], env=environ, cwd=folder, check=True, capture_output=True, text=True
        )
        after = subprocess.run(["bash", "-c", left], cwd=folder, check=True, capture_output=True, text=True)
    finally:
        os.close(descriptor)
    return [*done.stdout.splitlines(), after.stdout.strip()]


@pytest.mark.parametrize(
    ("version", "tokens", "pipe", "expected"),
    [
        (
            "1.13.0",
            5,
            "pipe",
            ["/", "5", "5"],
        ),  # ninja itself takes tokens, unless -j or MAX_JOBS says how many
        ("1.13.0.git.kitware.jobserver-pipe-1", 5, "pipe", ["/", "5", "5"]),
        (
            "1.12.1",
            5,
            "pipe",
            ["-j 4/4", "2", "5"],
        ),  # an older one has no more jobs than the script has tokens
        ("1.9.0", 1, "pipe", ["-j 2/2", "0", "1"]),
        ("1.12.1", 0, "pipe", ["-j 1/1", "0", "0"]),
        ("1.13.0", 5, "gone", ["-j 4/4", "5", "5"]),  # after a failure, in its environment
    ],
)
def test_jobs_come_from_the_pool_of_makeflags(
    repository: Path, tmp_path: Path, version: str, tokens: int, pipe: str, expected: list[str]
) -> None:
    assert limit_jobs(repository, tmp_path, version=version, tokens=tokens, pipe=pipe) == expected


def test_a_ninja_that_does_not_run_ends_the_build(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        limit_jobs(repository, tmp_path, version="1.13; exit 3", tokens=1)


def test_without_a_pool_ninja_gets_the_number_of_jobs(repository: Path) -> None:
    script = 'source "$RECIPE_DIR/backend.sh"; limit_jobs; echo "${ninja_jobs[*]}/$MAX_JOBS"'
    environ = {"PATH": os.environ["PATH"], "RECIPE_DIR": str(repository / "recipe"), "MAX_JOBS": "4"}
    done = subprocess.run(["bash", "-euc", script], env=environ, check=True, capture_output=True, text=True)
    assert done.stdout == "-j 4/4\n"
