"""Commands in README and docs use existing programs, sub-commands and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from command_line.audit import audit
from command_line.build import build
from command_line.install_pyg import install_pyg
from command_line.main import COMMANDS, load

ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = {"build-locally.py": build, "audit-pins": audit, "install-pyg": install_pyg}
#: Another command begins after these words of the shell.
_BETWEEN = {"&&", "||", "|", ";", ">", ">>", "2>", "<"}
_PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "recipe" / "README.md",
]


def lines(text: str) -> Iterator[str]:
    """Yield a page's commands: in bash or text blocks, after a prompt, indented, or in a workflow's step."""
    text = text.replace("\\\n", " ")
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield from (line for line in block.splitlines() if line and not line.startswith("#"))
    yield from re.findall(r"`((?:python3? |scripts/)[^`\n]+)`", text)
    for line in text.splitlines():
        if found := re.match(r"\s*(?:\$ |- run: )(.+)", line) or re.match(
            r" {4}(python3? .+|scripts/.+)", line
        ):
            yield found[1]


def commands(line: str) -> Iterator[tuple[str, list[str]]]:
    """Yield this project's programs in a line, with their arguments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _BETWEEN:
            words.append(word)
            continue
        for at, one in enumerate(words):
            name = one.rpartition("/")[2]
            if name in _PROGRAMS or one in ("scripts/megabuild", "megabuild"):
                yield name, words[at + 1 :]
                break
        words = []


def refused(name: str, arguments: list[str]) -> str:
    """Return the fault in a command's options, or an empty string."""
    command: click.Command | None = _PROGRAMS.get(name)
    if command is None:
        if not arguments or arguments[0].startswith("-"):
            return ""
        if arguments[0] not in COMMANDS:
            return f"no command {arguments[0]}"
        command, arguments = load(arguments[0]), arguments[1:]
        while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
            command, arguments = command.commands[arguments[0]], arguments[1:]
    try:
        command.make_parser(click.Context(command)).parse_args(list(arguments))
    except click.UsageError as error:
        return error.format_message()
    return ""


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_has_its_options(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = [
        f"{line}: {why}"
        for line in lines(text)
        for name, arguments in commands(line)
        if (why := refused(name, arguments))
    ]
    assert wrong == []


def test_a_wrong_command_is_found() -> None:
    found = [name for line in lines((ROOT / "README.md").read_text()) for name, _ in commands(line)]
    assert len(found) >= 5
    assert refused("megabuild", ["slim", "venv", "--gpu", "12.0"])
    assert refused("megabuild", ["nosuch"])
    assert not refused("megabuild", ["slim", "venv", "--arch-list", "12.0"])
