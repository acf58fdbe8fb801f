"""A shell script ends with an error if any one of its commands does, whichever it is, also one in the background, in a
pipe, or in another command's argument.

The programs are stand-ins. A script runs once, and then again for each command line of that run, which fails this time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small_files import program, write
from test_recipe_scripts import settings

#: Notes its command line, and fails if it is the chosen one.
STAND_IN = """
line="${0##*/} $*"
echo "$line" >>"$COMMANDS"
[ "$line" != "$FAILING" ] || exit 3
"""


#: Programs of the system that scripts call, too.
TOOLS = (
    "basename", "cat", "cmp", "cp", "cut", "dirname", "env", "getconf", "grep", "head", "install", "ln", "mkdir",
    "mktemp", "mv", "ninja", "rm", "sed", "sort", "touch", "tr", "uname", "wc", "xargs",
)  # fmt: skip
#: Commands whose failure is an answer, by their beginnings: "not the same" and "not there", which is safe to suppose.
ANSWERS = ("cmp -s ", "cat build/configured-with.txt")


@dataclass
class World:
    """A script with all that it needs to succeed."""

    repository: Path
    folder: Path
    script: str  #: below the repository
    words: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)

    def stand_in(self, place: str, then: str = "") -> Path:
        """Put a program into the folder, which also runs the commands ``then``."""
        return program(self.folder / place, STAND_IN + then)

    def tools(self) -> None:
        """Put stand-ins of the system's programs, which run these, where there is no stand-in yet."""
        for name in TOOLS:
            real = shutil.which(name)
            if real is not None and not (self.folder / "bin" / name).exists():
                self.stand_in(f"bin/{name}", f'exec {real} "$@"')

    def run(self, failing: str = "") -> subprocess.CompletedProcess[str]:
        """Run the script in a copy of the folder, so that no run finds the files of another."""
        here = self.folder.with_name("here")
        subprocess.run(["sh", "-c", 'rm -rf "$2" && cp -a "$1" "$2"', "sh", self.folder, here], check=True)
        environ = {name: value.replace(str(self.folder), str(here)) for name, value in self.environ.items()}
        environ = {"PATH": f"{here}/bin:{os.environ['PATH']}", **environ}
        environ |= {"COMMANDS": str(here / "commands"), "FAILING": failing}
        script = str(self.repository / self.script)
        return subprocess.run(
            ["bash", script, *self.words], cwd=here, env=environ, capture_output=True, text=True, check=False
        )

    def commands(self) -> list[str]:
        """Return the command lines of a run that succeeds."""
        done = self.run()
        assert done.returncode == 0, done.stderr
        return list(dict.fromkeys((self.folder.with_name("here") / "commands").read_text().splitlines()))


def of_recipe(world: World, **more: str) -> None:
    """Set what the engine sets, and a Python that configures a tree and makes a wheel."""
    made = settings(world.repository, world.folder, **more)
    world.environ |= {name: value for name, value in made.items() if name != "PATH"}
    makes_tree = "*cmake-only*) mkdir -p build"
    makes_wheel = "*build_wheel* | *bdist_wheel*) mkdir -p dist; >dist/a-1.whl"
    makes = f'case "$*" in {makes_tree} ;; {makes_wheel} ;; esac'
    world.environ |= {"PYTHON": str(world.stand_in("bin/python", makes)), "SP_DIR": "/site", "PY_VER": "3.12"}
    world.environ |= {
        "TORCH_TREE": f"{world.folder}/tree",
        "torch_source_path": "/w",
        "torch_python_base": "3.12",
    }
    for name in ("cmake", "patchelf", "python3"):
        world.stand_in(f"bin/{name}")
    for name in ("src", "tree", "env/lib"):
        (world.folder / name).mkdir(parents=True, exist_ok=True)


def staging(world: World) -> None:
    of_recipe(world)


def staging_with_scikit_build(world: World) -> None:
    of_recipe(world)
    write(world.folder / "tree/pyproject.toml", '[build-system]\nbuild-backend = "scikit_build_core.build"\n')
    world.stand_in("bin/python", 'case "$*" in *" configure "*) mkdir -p build ;; esac')


def staging_at_o0(world: World) -> None:
    of_recipe(world, torch_optimization="0")


def staging_for_another_machine(world: World) -> None:
    of_recipe(world, build_platform="linux-64", BUILD_PREFIX="/build", CMAKE_ARGS="-DCMAKE_AR=/bin/ar")
    world.environ["target_platform"] = "linux-aarch64"


def staging_of_official_sources(world: World) -> None:
    """With what the recipe changes before it copies them."""
    of_recipe(world)
    sources = world.folder / "src"
    for place in ("FindCUDA.cmake", "cmake/Modules_CUDA_fix/x", "aten/src/ATen/Config.h.in"):
        write(sources / place)
    world.stand_in("bin/mv", f'exec {shutil.which("mv")} "$@"')


def staging_of_debian_s_sources(world: World) -> None:
    compiler = world.stand_in("bin/g++", "echo x86_64-linux-gnu")
    of_recipe(world, provider="debian", torch_source="debian", CXX=str(compiler))
    (world.folder / "tree/torch/csrc/jit/serialization").mkdir(parents=True)
    for name in ("cp", "rm"):
        world.stand_in(f"bin/{name}")


def pytorch(world: World) -> None:
    of_recipe(world)


def pytorch_with_scikit_build(world: World) -> None:
    of_recipe(world)
    write(world.folder / "tree/pyproject.toml", '[build-system]\nbuild-backend = "scikit_build_core.build"\n')


def linalg(world: World) -> None:
    of_recipe(world, linalg_backend="magma")
    for name in ("install", "ln"):
        world.stand_in(f"bin/{name}")


def libtorch(world: World) -> None:
    of_recipe(world, cuda_compiler_version="13.0", torch_cuda_arch_list="9.0")
    for name in ("sed", "mkdir"):
        world.stand_in(f"bin/{name}", f'exec {shutil.which(name)} "$@"')


def upstreams_tests(world: World) -> None:
    of_recipe(world)


def wheel(world: World) -> None:
    of_recipe(world, RECIPE_DIR=str(world.repository / "recipe/wheel"))
    write(world.folder / "env/lib/libc10.so")


def extension(world: World) -> None:
    place = str(world.repository / "recipe/pyg/pytorch_sparse")
    of_recipe(world, RECIPE_DIR=place, module="torch_sparse", with_metis="static", torch_pin="exact")
    world.environ |= {"torch_cuda_arch_list": "None"}


def extension_for_cuda(world: World) -> None:
    extension(world)
    nvcc = world.stand_in("cuda/bin/nvcc")
    world.environ |= {"cuda_compiler_version": "13.0", "BUILD_PREFIX": str(nvcc.parents[1])}
    world.environ |= {"torch_cuda_arch_list": "9.0", "CF_TORCH_CUDA_ARCH_LIST": "9.0"}


def extension_of_a_wheel(world: World) -> None:
    extension(world)
    world.environ |= {"PYG_WHEEL": "/wheels/torch_sparse-1-py3-none-any.whl"}
    world.stand_in("bin/cp")


def pytorchs_test(world: World) -> None:
    world.words = ("2.13.0", "None", "conda-forge", "official")
    world.environ |= {"PREFIX": "/env", "CONDA_PREFIX": "/env"}
    for name in ("bin/cmake", "bin/python", "build/torch_user", "build/python_user"):
        world.stand_in(name)


def libtorchs_test(world: World) -> None:
    world.environ |= {"PREFIX": f"{world.folder}/env"}
    for name in ("bin/cmake", "build/torch_user"):
        world.stand_in(name)
    program(world.folder / "env/bin/torch_shm_manager", "")
    (world.folder / "env/share/cmake/Torch").mkdir(parents=True)


def all_configs(world: World) -> None:
    world.words = ("linux_64_cpu", "--keep-going")
    world.stand_in("bin/python3")


SCRIPTS: Mapping[Callable[[World], None], tuple[str, ...]] = {
    staging: ("recipe/build_staging.sh",),
    staging_with_scikit_build: ("recipe/build_staging.sh",),
    staging_at_o0: ("recipe/build_staging.sh",),
    staging_for_another_machine: ("recipe/build_staging.sh",),
    staging_of_official_sources: ("recipe/build_staging.sh",),
    staging_of_debian_s_sources: ("recipe/build_staging.sh",),
    pytorch: ("recipe/build_pytorch.sh",),
    pytorch_with_scikit_build: ("recipe/build_pytorch.sh",),
    linalg: ("recipe/build_linalg.sh",),
    libtorch: ("recipe/build_libtorch.sh",),
    upstreams_tests: ("recipe/build_tests.sh",),
    wheel: ("recipe/wheel/build_staging.sh", "recipe/wheel/build_pytorch.sh"),
    extension: ("recipe/pyg/common/build_extension.sh", "recipe/pyg/common/build_pyg_lib.sh"),
    extension_for_cuda: ("recipe/pyg/common/build_extension.sh", "recipe/pyg/common/build_pyg_lib.sh"),
    extension_of_a_wheel: ("recipe/pyg/common/build_extension.sh", "recipe/pyg/common/build_pyg_lib.sh"),
    pytorchs_test: ("recipe/tests/pytorch.sh",),
    libtorchs_test: ("recipe/tests/libtorch.sh",),
    all_configs: ("scripts/build-all.sh",),
}


@pytest.mark.parametrize(
    ("make", "script"),
    [(make, script) for make, scripts in SCRIPTS.items() for script in scripts],
    ids=lambda value: value.__name__ if callable(value) else value,
)
def test_each_command_that_fails_ends_its_script(
    make: Callable[[World], None], script: str, repository: Path, tmp_path: Path
) -> None:
    world = World(repository, tmp_path / "world", script)
    world.folder.mkdir()
    make(world)
    world.tools()
    commands = [command for command in world.commands() if not command.startswith(ANSWERS)]
    assert commands
    here = str(tmp_path / "here")
    ignored = [command.replace(here, "") for command in commands if world.run(command).returncode == 0]
    assert ignored == []


#: Steps whose order matters if the script is killed in between, or for what a record says; words of their commands.
ORDER: Mapping[Callable[[World], None], tuple[str, ...]] = {
    staging: (
        "sync_tree.py", "gather_licences.py", "cmake_python_swap return", "tree_inputs compare", "cmake-only",
        "check_staged.py downloads", "tree_inputs begin", "--target install", "check_staged.py libraries",
        "check_staged.py import", "tree_inputs record", "install_libtorch.py",
    ),
    pytorch: (
        "cmake_python_swap keep", "cmake_python_swap apply", "setup.py build", "share_libtorch.py take-out",
        "bdist_wheel", "pip install", "share_libtorch.py link",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", ORDER, ids=lambda make: make.__name__)
def test_a_script_does_its_steps_in_this_order(
    make: Callable[[World], None], repository: Path, tmp_path: Path
) -> None:
    world = World(repository, tmp_path / "world", SCRIPTS[make][0])
    world.folder.mkdir()
    make(world)
    (world.folder / "tree/build").mkdir()
    commands = world.commands()
    found = []
    for command in commands:
        found += [step for step in ORDER[make] if step in command]
    assert tuple(found) == ORDER[make]


def test_a_staging_leaves_nothing_of_a_former_one_in_its_files(repository: Path, tmp_path: Path) -> None:
    world = World(repository, tmp_path / "world", "recipe/build_staging.sh")
    world.folder.mkdir()
    staging(world)
    write(world.folder / "tree/libtorch-files/lib/libformer.so")
    world.commands()
    assert not (tmp_path / "here/tree/libtorch-files/lib/libformer.so").exists()


def test_a_local_checkouts_earlier_build_is_not_packed(repository: Path, tmp_path: Path) -> None:
    world = World(repository, tmp_path / "world", "recipe/pyg/common/build_pyg_lib.sh")
    world.folder.mkdir()
    extension(world)
    for name in ("build/lib/pyg_lib/removed.py", "dist/pyg_lib-0.7.0.whl"):
        write(world.folder / "src" / name)
    world.commands()
    assert not (tmp_path / "here/src/build").exists()
    assert [path.name for path in (tmp_path / "here/src/dist").iterdir()] == ["a-1.whl"]


def test_a_tree_whose_configuration_failed_is_configured_again(repository: Path, tmp_path: Path) -> None:
    """Also by a run with the former settings, whose record is older than the half-made build files."""
    world = World(repository, tmp_path / "world", "recipe/build_staging.sh")
    world.folder.mkdir()
    staging(world)
    record = tmp_path / "here/tree/build/configured-with.txt"
    for former in ("", "former settings"):
        if former:
            write(world.folder / "tree/build/configured-with.txt", former)
        commands = world.commands()
        settings = record.read_text()
        assert "CFLAGS=" in settings or "USE_" in settings
        configuring = [command for command in commands if "cmake-only" in command or " downloads " in command]
        assert len(configuring) == 2
        for command in configuring:
            assert world.run(command).returncode != 0
            assert not record.exists(), command


def test_every_script_that_builds_or_tests_has_a_case(repository: Path) -> None:
    found = {path.relative_to(repository).as_posix() for path in (repository / "recipe").rglob("*.sh")}
    sourced = {"recipe/activate.sh", "recipe/deactivate.sh", "recipe/backend.sh", "recipe/build_env.sh",
               "recipe/pyg/common/build_env.sh"}  # fmt: skip
    launchers = {"recipe/compile_at_O0.sh", "recipe/compile_cached.sh", "recipe/pyg/common/cache_compiler.sh",
                 "recipe/pyg/common/cache_nvcc.sh"}  # fmt: skip
    cases = {script for scripts in SCRIPTS.values() for script in scripts}
    assert found - sourced - launchers == cases - {"scripts/build-all.sh"}
