"""Pages that list what the code has: exit codes and environment variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from command_line.run_command import CRASHED, PIPE_CLOSED
from groundwork import errors

#: Variables that are read by their name; the driver's own are often named in a constant.
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
    assert listed == sorted({0, 1, *codes, CRASHED, PIPE_CLOSED})


def test_every_variable_that_is_read_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs" / "environment.md").read_text(encoding="utf-8")
    # links lead to what recipes run, whose variables the build sets
    modules = (path for path in (repository / "scripts").rglob("*.py") if not path.is_symlink())
    read = {
        name
        for text in (path.read_text(encoding="utf-8") for path in modules)
        for name in (*_READ.findall(text), *_OWN.findall(text))
    }
    assert {"MEGABUILD_CACHE", "PYENV_ROOT"} <= read
    assert {name for name in read if f"`{name}`" not in page} == set()


def _texts(path: Path) -> Iterator[str]:
    """Give the texts in a program as they are printed, ``…`` in place of what differs."""
    if path.suffix != ".py":
        yield path.read_text(encoding="utf-8")
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)


def test_what_troubleshooting_quotes_is_what_the_programs_say(repository: Path) -> None:
    page = (repository / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    ours = page[: page.index("## What other programs say")]
    quoted = [
        words
        for row in re.findall(r"^\| (`.*?) \|", ours, re.MULTILINE)
        for words in re.findall("`(.+?)`", row)
    ]
    assert len(quoted) > 20
    programs = [path for name in ("scripts", "recipe") for path in (repository / name).rglob("*.*")]
    texts = [text for path in programs if path.suffix in (".py", ".sh") for text in _texts(path)]
    for words in quoted:
        parts = [re.escape(part) for part in words.strip("… ").split("…")]
        # what differs may be several things, with words of ours in between
        said = re.compile(".*".join(parts), re.DOTALL)
        assert any(said.search(text) for text in texts), words
