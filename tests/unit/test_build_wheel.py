"""The command lines with which an extension's setup.py compiles."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from small_files import program, write


class BuildExtension:
    """In place of PyTorch's: notes what it would compile, with which flags."""

    def __init__(self, **options: object) -> None:
        self.options = options
        self.flags: list[str] = []
        self.seen: list[dict[str, object]] = []

    def _add_compile_flag(self, extension: object, flag: str) -> None:
        self.flags.append(flag)

    def build_extensions(self) -> None:
        status = os.environ["NINJA_STATUS"]
        self.seen += [{**vars(self), **vars(module), "status": status} for module in vars(self)["extensions"]]


@pytest.fixture
def build_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with an empty PyTorch: the real one is in no environment of these tests."""
    utils, cpp_extension = ModuleType("torch.utils"), ModuleType("torch.utils.cpp_extension")
    cpp_extension.BuildExtension = BuildExtension  # type: ignore[attr-defined]
    cpp_extension.__file__ = str(tmp_path / "torch" / "utils" / "cpp_extension.py")
    utils.cpp_extension = cpp_extension  # type: ignore[attr-defined]
    for module in (ModuleType("torch"), utils, cpp_extension):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "build_wheel", raising=False)
    return importlib.import_module("build_wheel")


def test_header_folders_are_named_alike_for_every_python_and_work_folder(
    build_wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvcc's objects are found only by equal commands."""
    named = []
    for python in ("python3.12", "python3.13t"):
        environment, link = tmp_path / f"env-of-{python}", tmp_path / python / "env"
        folders = [
            environment / "include",
            environment / "include" / python,
            environment / "lib" / python / "site-packages" / "torch" / "include",
        ]
        for folder in folders:
            folder.mkdir(parents=True)
        link.parent.mkdir()
        link.symlink_to(environment)
        monkeypatch.setenv("BUILD_ENV_LINK", str(link))
        neutral = build_wheel._neutral_includes(["/usr/include", *map(str, folders)])
        assert [Path(folder).resolve() for folder in neutral[1:]] == folders
        named.append([folder.replace(str(link.parent), "WORK") for folder in neutral])
    assert named[0] == named[1]


@pytest.mark.parametrize("crossing", [True, False])
def test_headers_of_torch_are_searched_in_the_environment_before_the_package(
    crossing: bool, build_wheel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package that runs on the building machine is for its processor alone."""
    monkeypatch.setenv("BUILD_ENV_LINK", "/env")
    monkeypatch.delenv("CONDA_BUILD_CROSS_COMPILATION", raising=False)
    if crossing:
        monkeypatch.setenv("CONDA_BUILD_CROSS_COMPILATION", "1")
    include = f"{tmp_path}/torch/include"
    given = [include, f"{include}/torch/csrc/api/include", f"{include}s", include]
    of_environment = ["/env/include", "/env/include/torch/csrc/api/include"]
    neutral = build_wheel._neutral_includes(given)
    if crossing:
        assert neutral == [*of_environment, f"{include}s"]
    else:
        assert neutral == [of_environment[0], include, of_environment[1], given[1], f"{include}s"]
    monkeypatch.delenv("BUILD_ENV_LINK")
    assert build_wheel._neutral_includes(given) == given


@pytest.mark.parametrize(("prefix", "own"), [("/p", ["/p/lib"]), ("", [])])
def test_libraries_are_searched_in_the_prefix_before_the_package(
    prefix: str, own: list[str], build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFIX", prefix)
    assert build_wheel._neutral_libraries(["/site/torch/lib"]) == [*own, "/site/torch/lib"]


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_each_module_has_a_folder_of_its_own_and_no_macro_for_python(
    platform: str, build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch writes the same build.ninja for each; the object cache compares what Python.h adds."""
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("NINJA_STATUS", "")
    monkeypatch.setenv("PREFIX", "/p")
    monkeypatch.delenv("BUILD_ENV_LINK", raising=False)
    macros = [("WITH_PYTHON", None), ("WITH_CUDA", None)]
    modules = [
        SimpleNamespace(name=f"a.{name}", define_macros=list(macros), include_dirs=[], library_dirs=["/l"])
        for name in ("one", "two")
    ]
    builder = build_wheel.ModulesAtOnce(use_ninja=False)
    assert builder.options == {"use_ninja": True}
    builder.compiler = SimpleNamespace(include_dirs=[])
    builder._objects = 7
    for module in modules:
        builder._build_one(module)
        for flag in ("-DTORCH_API_INCLUDE_EXTENSION_H", "-DWITH_HIP"):
            builder._add_compile_flag(module, flag)
    assert [seen["name"] for seen in builder.seen] == ["a.one", "a.two"]
    assert [seen["build_temp"] for seen in builder.seen] == ["build/temp/one", "build/temp/two"]
    assert [seen["status"] for seen in builder.seen] == [
        f"[%f/%t %es {name} of 7] " for name in ("one", "two")
    ]
    assert {str(seen["library_dirs"]) for seen in builder.seen} == {"['/p/lib', '/l']"}
    on_linux = platform == "linux"
    assert builder.seen[0]["define_macros"] == (macros[1:] if on_linux else macros)
    assert ("-DTORCH_API_INCLUDE_EXTENSION_H" in builder.flags) != on_linux
    assert "-DWITH_HIP" in builder.flags


def test_the_largest_module_is_compiled_first(
    build_wheel: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    modules = []
    for name, sizes in {"small": [1, 2], "large": [9, 1, 1], "middle": [8]}.items():
        sources = [str(write(tmp_path / f"{name}-{n}", "x" * size)) for n, size in enumerate(sizes)]
        modules.append(SimpleNamespace(name=f"a.{name}", sources=sources))
    order: list[str] = []
    monkeypatch.setattr(build_wheel, "_constant_flags", lambda _: None)
    monkeypatch.setattr(build_wheel, "_jobserver", nullcontext)
    monkeypatch.setattr(build_wheel, "run_all", lambda tasks, _: order.extend(name for name, _ in tasks))
    builder = build_wheel.ModulesAtOnce()
    builder.compiler = None
    builder.extensions = modules
    builder.build_extensions()
    assert order == ["a.large", "a.middle", "a.small"]
    assert capsys.readouterr().out == "[0/3 0.0s large of 6] large middle small\n"


@pytest.mark.parametrize("failed", [[], ["a.one"], ["a.one", "a.two"]])
def test_a_module_that_does_not_compile_fails_the_wheel(
    failed: list[str], build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = [SimpleNamespace(name=name, sources=["x.cpp"]) for name in ("a.one", "a.two")]
    builder = SimpleNamespace(compiler=None, extensions=modules, _build_one=lambda _: None)
    monkeypatch.setattr(build_wheel, "_constant_flags", lambda _: None)
    monkeypatch.setattr(build_wheel, "_weight", lambda _: 0)
    monkeypatch.setattr(build_wheel, "_jobserver", nullcontext)
    monkeypatch.setattr(build_wheel, "run_all", lambda *_: failed)
    with pytest.raises(RuntimeError, match=f": {', '.join(failed)}$") if failed else nullcontext():
        build_wheel.ModulesAtOnce.build_extensions(builder)


def test_the_jobserver_has_the_jobs_that_the_user_allows_and_ninja_follows_it(
    build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ninja that sees MAX_JOBS takes no part in the jobserver."""
    seen: list[str | None] = []

    @contextmanager
    def make_jobserver() -> Iterator[None]:
        seen.append(os.environ.get("MAX_JOBS"))
        yield

    def run_all(*_: object) -> list[str]:
        seen.append(os.environ.get("MAX_JOBS"))
        return []

    monkeypatch.setenv("MAX_JOBS", "4")
    monkeypatch.setattr(build_wheel, "_constant_flags", lambda _: None)
    monkeypatch.setattr(build_wheel, "_weight", lambda _: 0)
    monkeypatch.setattr(build_wheel, "_jobserver", make_jobserver)
    monkeypatch.setattr(build_wheel, "run_all", run_all)
    module = SimpleNamespace(name="a.one", sources=["x.cpp"])
    builder = SimpleNamespace(compiler=None, extensions=[module], _build_one=lambda _: None)
    build_wheel.ModulesAtOnce.build_extensions(builder)
    assert seen == ["4", None]


@pytest.mark.parametrize(
    ("ninja", "found"),
    [
        (None, "none"),
        ("exit 1", ""),
        ("echo 1.12.1", "1.12.1"),
        ("echo 1.13.0.git", None),
        ("echo 2.0", None),
    ],
)
def test_a_ninja_that_uses_no_jobserver_ends_the_build(
    ninja: str | None,
    found: str | None,
    build_wheel: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if ninja is not None:
        program(tmp_path / "bin" / "ninja", ninja)
    if found is None:
        build_wheel._check_ninja()
    else:
        with pytest.raises(SystemExit) as ended:
            build_wheel._check_ninja()
        assert ended.value.code == f"error: build_wheel.py needs ninja >= 1.13 on PATH, found: {found}"


@pytest.mark.parametrize(
    ("variables", "jobs"),
    [({"MAX_JOBS": "3", "CPU_COUNT": "2"}, 3), ({"CPU_COUNT": "2"}, 2), ({"MAX_JOBS": "0", "CPU_COUNT": "2"}, 2),
     ({"MAX_JOBS": "all"}, 5), ({}, 5)],
)  # fmt: skip
def test_a_build_has_the_jobs_of_its_variables(
    variables: dict[str, str], jobs: int, build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    for name in ("MAX_JOBS", "CPU_COUNT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert build_wheel._jobs() == jobs


@pytest.mark.parametrize("of_conda", [True, False])
def test_a_compiler_gets_the_flags_of_the_build_not_those_of_its_python(
    of_conda: bool, build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """conda's CXXFLAGS contradict PyTorch's own."""
    monkeypatch.delenv("CONDA_BUILD", raising=False)
    if of_conda:
        monkeypatch.setenv("CONDA_BUILD", "1")
    for name, value in {"CFLAGS": "-O2 -g", "CXXFLAGS": "-std=c++14", "CPPFLAGS": "-I'/a b'"}.items():
        monkeypatch.setenv(name, value)
    made: dict[str, list[str]] = {}
    compiler = SimpleNamespace(compiler_so=["gcc", "-fno-of-python"], set_executable=made.__setitem__)
    build_wheel._constant_flags(compiler)
    own = ["-O2", "-g"] if of_conda else ["-O2", "-g", "-std=c++14"]
    assert made == {"compiler_so": ["gcc", "-fPIC", "-DNDEBUG", *own, "-I/a b"]}


def test_a_build_joins_the_jobserver_of_its_variables_or_makes_one(
    build_wheel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEFLAGS", " -j")
    monkeypatch.setattr(build_wheel, "_jobs", lambda: 3)
    with build_wheel._jobserver() as made:
        assert os.environ["MAKEFLAGS"] == made.makeflags
        assert [made.take() for _ in range(3)] == [b"+", b"+", b""]
        with build_wheel._jobserver() as joined:
            assert joined.path == made.path
        assert made.path.exists(), "others use it"
    assert not made.path.exists()


@pytest.mark.parametrize(
    ("archs", "oldest", "kept"),
    [
        ("5.0;6.0;9.0a;12.0+PTX", "6.0", "6.0;9.0a;12.0+PTX"),
        ("5.0;10.0f", "9.0", "10.0f"),
        ("5.0", "9.0", ""),
    ],
)
def test_a_list_of_archs_is_printed_without_those_that_are_too_old(
    archs: str, oldest: str, kept: str, repository: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["arch_list.py", archs, "--at-least", oldest])
    runpy.run_path(str(repository / "recipe/pyg/common/arch_list.py"), run_name="__main__")
    assert capsys.readouterr().out == f"{kept}\n"
