"""A program that fails makes its caller fail, whatever it printed or wrote before, and however it ended."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import program, write

import check_staged
from cmake_python_swap import cmake_regenerate, ninja_dry_run, python_facts, skbuild_backend
from conda_wheels import tools
from gpu_tools.slim.check import Check
from groundwork import bootstrap, machine
from groundwork.errors import MegabuildError, OutOfSpaceError, PreflightError
from groundwork.network import resolver
from groundwork.network.index import Configured
from groundwork.pip_settings import PipSettings
from megabuild.providers import command
from megabuild.providers.local import python as local_python
from megabuild.providers.local.package import LocalPackage, _compile_modules
from pin_audit import git_command
from pyg_extensions import fetch_sources
from pyg_extensions.install import toolchain, user_environment
from pyg_extensions.table import EXTENSIONS
from tree_inputs import generators
from tree_inputs.contents import UNKNOWN, Contents
from tree_inputs.tree import Tree
from upstream_tests import run as upstream_run
from upstream_tests.selection import Selection


class Failed(Exception):
    """Raised where a caller returns its failure."""


ERRORS = (Failed, MegabuildError, ninja_dry_run.NinjaError, cmake_regenerate.RegenerateError,
          python_facts.InterpreterError, skbuild_backend.SkbuildError, subprocess.CalledProcessError, PermissionError,
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """A program that writes all that a success would, and then fails or succeeds."""

    folder: Path
    end: str
    patch: pytest.MonkeyPatch
    mode: int = 0o755

    def program(self, output: str = "", *, script: str = "", name: str = "program") -> str:
        write(self.folder / "output", output)
        path = program(self.folder / "bin" / name, f'{script}\ncat "{self.folder}/output"\n{self.end}')
        path.chmod(self.mode)
        return str(path)

    def on_path(self, name: str, output: str = "", script: str = "") -> None:
        self.program(output, name=name, script=script)
        self.patch.setenv("PATH", f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}")


def returned(failure: object) -> None:
    if failure:
        raise Failed(str(failure))


def provider(world: World) -> None:
    command.run([world.program("fine")], what="x", timeout=20)


def guarded_provider(world: World) -> None:
    command.run([world.program("fine")], what="x", timeout=20, guarded=True)


def uv(world: World) -> None:
    target = cast(Any, SimpleNamespace(python="3.12"))
    resolver._compile([world.program("packages = []")], ["numpy"], target, Configured(), None)


def auditwheel(world: World) -> None:
    tools._run([world.program("fine")], {}, "x", writes=world.folder)


def git(world: World) -> None:
    world.on_path("git", "fine", script='[ "$1" != version ] || { echo git version 2.47.0; exit 0; }')
    git_command.run_git(world.folder, "status")


def clone(world: World) -> None:
    world.on_path("git", "fine", script='for folder do :; done; mkdir -p "$folder"')
    fetch_sources._clone(EXTENSIONS[0], "1", world.folder / "clone", "x", only_try=False)


def slim(world: World) -> None:
    returned(Check(world.folder, (), print)._run([world.program("fine")]))


def compiler(world: World) -> None:
    script = "for file do :; done; printf '\\177ELF' >\"$file\""
    words = [world.program(script=script), str(world.folder / "object")]
    returned(toolchain._problem(words, {"PATH": os.environ["PATH"]}, world.folder))


def environment_of(world: World) -> Any:
    python = Path(world.program("fine"))
    return SimpleNamespace(
        interpreter=python, distributions={"pip": "26"}, site=world.folder, prefix=world.folder, managed=False,
        pip=(str(python), "-m", "pip"), pip_settings=lambda: PipSettings({}),
    )  # fmt: skip


def pip(world: World) -> None:
    user_environment.run_pip(
        environment_of(world), "install", "x", what="x", links=None, temporary=world.folder
    )


def import_of_an_extension(world: World) -> None:
    returned(user_environment.find_import_fault(EXTENSIONS[1], environment_of(world)))


def python_of_the_swap(world: World) -> None:
    texts = ("prefix", "soabi", "include", "purelib", "platlib", "libdir", "library", "base_exec_prefix")
    more = ("numpy_include", "pybind11_include", "pybind11_cmake", "skbuild")
    facts = {**dict.fromkeys((*texts, *more), "x"), "implementation": "cpython", "version": "3.12.1"}
    facts |= {"free_threaded": cast(Any, False), "include": str(world.folder)}
    write(world.folder / "Python.h", "")
    answer = f"{python_facts._MARK}{json.dumps(facts)}"
    python_facts.ask(Path(world.program(answer)))


def ninja(world: World) -> None:
    write(world.folder / "build.ninja", "rule cc\n  command = cc\n")
    ninja_dry_run.dry_run(world.folder, ninja=world.program("ninja: no work to do."))


def ninja_of_a_tree(world: World) -> None:
    write(world.folder / "build.ninja", "rule cc\n  command = cc\n")
    headers = world.program("a.o: #deps 1, deps mtime 1 (VALID)\n    a.h")
    write(world.folder / "CMakeCache.txt", f"CMAKE_MAKE_PROGRAM:FILEPATH={headers}\n")
    Tree.load(world.folder).read_headers()


def cmake(world: World) -> None:
    write(world.folder / "CMakeCache.txt", f"CMAKE_COMMAND:INTERNAL={world.program('fine')}\n")
    write(world.folder / "build.ninja", "rule cc\n  command = cc\n")
    cmake_regenerate.regenerate(world.folder)


def pytest_of_upstream(world: World) -> None:
    """pytest writes its report, with a passed test, and crashes at its end."""
    report = "<testsuites><testsuite><testcase/></testsuite></testsuites>"
    script = f"echo '{report}' >{world.folder}/report.xml"
    world.patch.setattr(sys, "executable", world.program(script=script))
    selection = Selection(sections={"each Python": {"test_x.py": ""}})
    returned(len(upstream_run.run_file("test_x.py", selection, world.folder, 1).failed))


def environment_of_the_program(world: World) -> None:
    write(world.folder / "requirements.lock", "")
    make = 'mkdir -p "$last/bin" "$last/lib/python3/site-packages"; cp "$0" "$last/bin/python"; exit 0'
    cases = f'*" venv "*) {make} ;; *" config "*) exit 0 ;;'
    python = world.program(script=f'for last do :; done; case "$*" in {cases} esac')
    world.patch.setattr(sys, "executable", python)
    bootstrap.ensure(world.folder, "run")


def scikit_build(world: World) -> None:
    skbuild_backend.configure(world.folder, world.program("fine"))


def scikit_build_with_a_log(world: World) -> None:
    skbuild_backend.configure(world.folder, world.program("fine"), log=world.folder / "log")


def python_of_generators(world: World) -> None:
    """Whose modules are unknown if it does not answer; unknown inputs count as changed."""
    tree = cast(Any, SimpleNamespace(root=str(world.folder), is_outside=bool))
    python = world.program(json.dumps([str(world.folder / "lib"), str(world.folder / "lib")]))
    if generators.digest(tree, python, [], Contents()) == UNKNOWN:
        raise Failed


def byte_code(world: World) -> None:
    package = LocalPackage(name="numpy", version="1", platform="linux-64")
    _compile_modules(package, Path(world.program()), world.folder)


def readelf(world: World) -> None:
    world.patch.setenv("READELF", world.program("Shared library: [libc.so.6]"))
    check_staged.needed(world.folder)


CALLERS: tuple[Callable[[World], None], ...] = (
    provider, guarded_provider, uv, auditwheel, git, clone, slim, compiler, pip, import_of_an_extension,
    python_of_the_swap, ninja, ninja_of_a_tree, cmake, pytest_of_upstream, environment_of_the_program, byte_code,
    scikit_build, scikit_build_with_a_log, python_of_generators, readelf,
)  # fmt: skip


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
def test_its_failure_is_the_callers(
    caller: Callable[[World], None], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ERRORS):
        caller(World(tmp_path, end, monkeypatch))


#: Callers that start the program by its path.
BY_PATH = (
    provider,
    auditwheel,
    slim,
    compiler,
    import_of_an_extension,
    python_of_the_swap,
    ninja,
    ninja_of_a_tree,
    cmake,
    byte_code,
    python_of_generators,
    readelf,
)


@pytest.mark.parametrize("caller", BY_PATH, ids=lambda caller: caller.__name__)
def test_a_program_that_cannot_be_started_fails_its_caller(
    caller: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ERRORS):
        caller(World(tmp_path, "exit 0", monkeypatch, mode=0o644))


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.__name__)
def test_its_success_is_the_callers(
    caller: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the program prints and writes is enough for a success: the failures above are those of its end."""
    caller(World(tmp_path, "exit 0", monkeypatch))


def writing_provider(world: World) -> None:
    command.run([world.program()], what="x", timeout=20, writes=world.folder)


def debug_symbols(world: World) -> None:
    world.on_path("strip")
    local_python._strip(world.folder)


#: Callers whose program fills a folder.
WRITING = (writing_provider, auditwheel, clone, byte_code, debug_symbols)
REPORTED = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    "caller", [*WRITING, pip, environment_of_the_program], ids=lambda caller: caller.__name__
)
def test_a_full_disk_that_it_reports_is_the_cause(
    caller: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutOfSpaceError):
        caller(World(tmp_path, f"echo '{REPORTED}'; echo '{REPORTED}' >&2; exit 1", monkeypatch))


@pytest.mark.parametrize("caller", WRITING, ids=lambda caller: caller.__name__)
def test_a_full_disk_that_it_does_not_report_is_the_cause(
    caller: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "is_full", lambda folder: True)
    with pytest.raises(OutOfSpaceError):
        caller(World(tmp_path, "exit 1", monkeypatch))


@pytest.mark.parametrize(
    ("limit", "kind"), [("ulimit -f 0", OutOfSpaceError), ("", None)], ids=["no space", "space"]
)
def test_byte_code_that_the_system_refuses_is_no_syntax_error(
    limit: str, kind: type[Exception] | None, tmp_path: Path
) -> None:
    """compileall ends with the same exit code for both."""
    interpreter = program(tmp_path / "python", f'{limit}\nexec "{sys.executable}" "$@"')
    write(tmp_path / "prefix/lib/template.py", 'raise OSError(" [Errno 28] No space left on device" (')
    write(tmp_path / "prefix/lib/module.py", "pass\n")
    package = LocalPackage(name="numpy", version="1", platform="linux-64")
    with pytest.raises(kind) if kind else nullcontext():
        _compile_modules(package, interpreter, tmp_path / "prefix")
    assert bool(list(tmp_path.glob("prefix/lib/__pycache__/module.*"))) == (kind is None)


@pytest.mark.parametrize("answer", ["", "no JSON", "[1", '["/nowhere"'])
def test_a_python_whose_answer_cannot_be_read_has_unknown_modules(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = World(tmp_path, "exit 0", monkeypatch).program(answer)
    tree = cast(Any, SimpleNamespace(root=str(tmp_path)))
    assert generators.digest(tree, python, [], Contents()) == UNKNOWN


@pytest.mark.parametrize("may_be_empty", [True, False])
@pytest.mark.parametrize(
    ("script", "end", "failed"),
    [
        ("", "exit 0", "always"),  # no report
        ("echo '<testsuites' >{report}", "exit 0", "always"),  # half a report
        ("echo '<testsuites' >{report}", "exit 1", "always"),
        ("echo '<testsuites/>' >{report}", "exit 0", "if it may not be empty"),
        ("echo '<testsuites/>' >{report}", "exit 5", "if it may not be empty"),
        ("echo '<testsuites/>' >{report}", "exit 3", "always"),
        ("echo '<testsuites/>' >{report}", "kill -9 $$", "always"),
        ("", "sleep 30", "always"),
    ],
)
def test_tests_without_a_result_have_failed(
    script: str, end: str, failed: str, may_be_empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.xml"
    world = World(tmp_path, end.replace("sleep", "exec sleep"), monkeypatch)
    monkeypatch.setattr(sys, "executable", world.program(script=script.format(report=report)))
    monkeypatch.setattr(upstream_run, "installed_build", lambda: None)
    monkeypatch.setattr(upstream_run, "PATIENCE", 0.3 / 3600 if "sleep" in end else 1)
    monkeypatch.setattr(Selection, "may_be_empty", lambda *_: may_be_empty)
    selection = Selection(sections={"each Python": {"test_x.py": ""}})
    result = upstream_run.run_file("test_x.py", selection, tmp_path, 1)
    assert result.failed == ["test_x.py"] * (failed == "always" or not may_be_empty)
    assert result.counts[upstream_run.Outcome.FAILED] == len(result.failed)


@pytest.mark.parametrize(
    ("environ", "tried"),
    [
        ({}, ["c++"]),
        ({"CXX": "a -m"}, ["a"]),
        ({"CC": "b"}, ["c++", "b"]),
        ({"CXX": "a", "CC": "b -m"}, ["a", "b"]),
    ],
)
def test_each_compiler_of_a_build_compiles_before_it(
    environ: dict[str, str], tried: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fails = ""

    def compile_trial(words: list[str], *_: object) -> str:
        asked.append(words[0])
        return "no space" if words[0] == fails else ""

    monkeypatch.setattr(toolchain, "_problem", compile_trial)
    toolchain.check_cpp(environ, tmp_path)
    assert asked == tried
    for fails in tried:
        with pytest.raises(PreflightError, match=f"^{re.escape(fails)} .*no space"):
            toolchain.check_cpp(environ, tmp_path)
