"""Tables of the pages match the code: exit codes, variables, steps of slim, engines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from command_line.run_command import CRASHED, PIPE_CLOSED
from gpu_tools.slim.steps import STEPS
from groundwork import errors
from megabuild.isolation.engine import Engine

#: Variables read by a literal name; the driver's own are often named in a constant.
_READ = re.compile(r"""(?:environ(?:ment)?(?:\.get\(|\.pop\(|\[)|getenv\()["']([A-Z][A-Z_]+)["']""")
_OWN = re.compile(r"\bMEGABUILD_[A-Z_]*[A-Z]\b")


def _classes(one: type[errors.MegabuildError]) -> Iterator[type[errors.MegabuildError]]:
    for other in one.__subclasses__():
        yield other
        yield from _classes(other)


def test_every_exit_code_is_in_the_table_once(repository: Path) -> None:
    page = (repository / "docs" / "json.md").read_text(encoding="utf-8")
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    codes = {one.exit_code for one in _classes(errors.MegabuildError)}
    assert not codes & {0, CRASHED, PIPE_CLOSED}
    assert listed == sorted({0, 1, *codes, CRASHED, PIPE_CLOSED})


def test_every_variable_that_is_read_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs" / "environment.md").read_text(encoding="utf-8")
    # links lead to scripts of recipes; the build sets their variables
    modules = (path for path in (repository / "src").rglob("*.py") if not path.is_symlink())
    read = {
        name
        for text in (path.read_text(encoding="utf-8") for path in modules)
        for name in (*_READ.findall(text), *_OWN.findall(text))
    }
    assert {"MEGABUILD_CACHE", "PYENV_ROOT"} <= read
    assert {name for name in read if f"`{name}`" not in page} == set()


def test_every_step_of_slim_is_in_its_table(repository: Path) -> None:
    page = (repository / "docs" / "slim.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert re.findall(r"`([^`]+)`", " ".join(cells)) == [step.name for step in STEPS]


def test_every_engine_is_in_the_plans_table(repository: Path) -> None:
    page = (repository / "docs" / "json.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^\| `isolation`, `problem` \| ([^;]+);", page, re.MULTILINE)
    assert {*re.findall(r"`([^`]+)`", listed)} == {engine.value for engine in Engine}
