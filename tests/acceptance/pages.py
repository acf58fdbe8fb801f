"""The commands that README, CONTRIBUTING and the pages of docs show their readers."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: Pages whose commands are for users. docs/options.md is made from the help texts, whose examples it repeats.
PAGES = (
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
)
_BLOCK = re.compile(r"^ *```(bash|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
#: A comment of the shell: after two blanks or more, as the pages write them, or a line of its own.
_COMMENT = re.compile(r"(?:^|\s{2,})# .*$")


def commands_of(page: Path) -> Iterator[str]:
    """Yield a page's commands without prompts and comments; a continued command is one line."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        joined = re.sub(r" *\\\n\s*", " ", block[2])
        for line in joined.splitlines():
            command = _command_in(line.strip(), has_prompts=block[1] == "console")
            if command:
                yield command


def _command_in(line: str, *, has_prompts: bool) -> str:
    """Return a line's command; empty if the line is output, a comment or blank."""
    if has_prompts:
        if not line.startswith("$ "):
            return ""
        line = line.removeprefix("$ ")
    return _COMMENT.sub("", line).strip()


@functools.cache
def all_commands() -> dict[str, list[str]]:
    """Return each command with the names of the pages that show it."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for command in commands_of(page):
            pages = found.setdefault(command, [])
            pages.append(str(page.relative_to(REPOSITORY)))
    return found


def documented(command: str, replaced: Mapping[str, str | Path] | None = None) -> str:
    """Return a command that a page shows, to be run by a shell.

    ``replaced``: Words of the command that stand for something of the reader's, such as ``~/venv``, with their values.
    A path is quoted for the shell.

    Raises AssertionError: No page shows this command, or it lacks one of the words.
    """
    assert command in all_commands(), f"no page shows this command: {command}"
    for word, value in (replaced or {}).items():
        assert word in command, f"{word}: not in this command: {command}"
        text = shlex.quote(str(value)) if isinstance(value, Path) else value
        command = command.replace(word, text)
    return command
