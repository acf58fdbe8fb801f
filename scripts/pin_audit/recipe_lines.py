"""The lines of a recipe or of a conda_build_config.yaml, read as text, and the one that a rendered value comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork import files
from groundwork.errors import AuditError, IntegrityError
from megabuild.configs.provider_name import ProviderName
from pin_audit.facts import Where
from pin_audit.meta_yaml import names_of

_KEY = re.compile(r"^([A-Za-z_][\w.-]*):")
_ITEM = re.compile(r"""^\s*-\s+["']?([^#"']*?)["']?\s*(?:#.*?(?:\[(?P<selector>[^\]]+)\])?\s*)?$""")
_NEED = re.compile(r"""^\s+(?:-|then:|else:)\s+(?P<items>[a-z0-9_$"'\[][^#]*?)\s*(?:#.*)?$""", re.IGNORECASE)
_GIT = re.compile(r"""\bgit:\s*["']?([^\s"',}]+)""")
_REVISION = re.compile(r"""\b(rev|tag|branch):\s*["']?(\$\{\{[^}]*\}\}|[^\s"',}#]+)""")
_PREFIXES = {"rev": "", "tag": "refs/tags/", "branch": "refs/heads/"}  # as the engine writes them out
_PIN = re.compile(r"""pin_(?:subpackage|compatible)\(\s*["']([\w.-]+)["']""")
_LARGEST = 4 << 20  # bytes of a recipe or config


@dataclass(frozen=True)
class Line:
    """A line of a recipe, or an item of a key of conda_build_config.yaml."""

    file: str
    number: int  #: counted from 1; 0 for the whole file
    text: str
    key: str = ""  #: of conda_build_config.yaml
    value: str = ""
    selector: str = ""

    @property
    def is_of_debian(self) -> bool:
        """Whether the item is for Debian's builds only."""
        return f'provider == "{ProviderName.DEBIAN}"' in self.selector

    @property
    def is_of_wheels(self) -> bool:
        """Whether the item is for builds with official wheels only."""
        return f'provider == "{ProviderName.WHEEL}"' in self.selector


def read_text(path: Path, root: Path | None = None, remedy: str = "correct the file") -> str:
    """Return a file's text, without following links below `root`. Raises AuditError if it cannot be read."""
    try:
        below = root if root is not None and path.is_relative_to(root) else None
        with files.open_regular(path, below=below) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise AuditError(f"{path}: refused: more than {_LARGEST >> 20} MB", remedy)
        return content.decode("utf-8")
    except IntegrityError as error:
        raise AuditError(f"{error.message}: refused", remedy) from error
    except (OSError, UnicodeError) as error:
        raise AuditError(f"{path}: cannot be read: {error}", remedy) from error


def read_lines(path: Path, root: Path | None = None) -> tuple[Line, ...]:
    """Return a file's lines; those of conda_build_config.yaml have key, value and selector. Raises AuditError."""
    key, lines = "", []
    name = str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else path.name
    for number, text in enumerate(read_text(path, root).splitlines(), start=1):
        if match := _KEY.match(text):
            key = match[1]
        item = _ITEM.match(text)
        value, selector = (item[1].strip(), item["selector"] or "") if item else ("", "")
        lines.append(Line(name, number, text, key, value, selector))
    return tuple(lines)


def requirement_lines(recipe: Path, root: Path | None = None) -> tuple[Line, ...]:
    """Return the lines of a recipe that may be requirements, each with its spec as the value."""
    needs = []
    for line in read_lines(recipe, root):
        if match := _NEED.match(line.text):
            listed = match["items"].startswith("[")
            items = match["items"].strip("[]").split(",") if listed else [match["items"]]
            needs += [Line(line.file, line.number, line.text, value=item.strip(" \"'")) for item in items]
    return tuple(needs)


def git_lines(recipe: Path, root: Path | None = None) -> Iterator[Line]:
    """Yield the git sources of a recipe: each address, and each revision that a line names."""
    address = ""
    for line in read_lines(recipe, root):
        if source := _GIT.search(line.text):
            address = source[1]
            yield Line(line.file, line.number, line.text, value=address)
        if address and (revision := _REVISION.search(line.text)):
            value = f"{address} {_PREFIXES[revision[1]]}{revision[2]}"
            yield Line(line.file, line.number, line.text, value=value)


def names_in(recipe: Path, root: Path | None = None) -> tuple[str, ...]:
    """Return the names of all packages that a recipe's requirements name in plain text. Raises AuditError."""
    if recipe.name == "meta.yaml":
        return names_of(read_text(recipe, root))
    words = (re.split(r"[ =<>!~]", line.value, maxsplit=1)[0] for line in requirement_lines(recipe, root))
    return tuple(sorted({word for word in words if re.fullmatch(r"[a-z0-9][\w.-]*", word)}))


def place(name: str, value: str, lines: Sequence[Line]) -> Where:
    """Find the line of a rendered requirement (``nccl`` and ``2.*``) or of a git revision.

    Returns the line that contains it literally, else the first one with its name, whose expression gives the value.
    """
    ours = []
    for line in lines:
        pinned = _PIN.search(line.value)
        if name == (pinned[1] if pinned else line.value.partition(" ")[0]):
            ours.append(line)
    literal = [line for line in ours if line.value == f"{name} {value}"]
    number = next((line.number for line in (*literal, *ours)), None)
    return Where(file=lines[0].file if lines else "", line=number)
