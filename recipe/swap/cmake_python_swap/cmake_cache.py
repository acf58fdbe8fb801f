"""Read and change CMakeCache.txt by key, without changing any other byte.

A text substitution over the whole file would also change similar entries (cmake itself may be below
``lib/python3.11``); this module changes only the named entry. Files are replaced atomically, and the first version is
kept as ``CMakeCache.txt.orig``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .atomic_file import keep_original, write_atomically

NAME = "CMakeCache.txt"
BOOL = "BOOL"
INTERNAL = "INTERNAL"
STATIC = "STATIC"
UNINITIALIZED = "UNINITIALIZED"
TYPES = (BOOL, "PATH", "FILEPATH", "STRING", INTERNAL, STATIC, UNINITIALIZED)
PROPERTIES = ("ADVANCED", "MODIFIED", "STRINGS")
INTERNAL_SECTION = "# INTERNAL cache entries"
_BOOLEANS = {"1", "0", "on", "off", "yes", "no", "true", "false", "y", "n", "ignore", "notfound", ""}
# CMake reads both spellings (cmCacheManager): names with a colon or a leading // are quoted.
_ENTRY = re.compile(r'^(?:"(?P<quoted>[^"]*)"|(?P<plain>[^=:"]+)):(?P<type>[^=:]*)=(?P<value>.*?)[ \t]*$')


class CacheError(Exception):
    """A cache that cannot be read, or an invalid change; the message names file, line or entry."""


@dataclass(frozen=True)
class Entry:
    """One cache entry.

    `name`, `type`, `value`: as CMake uses them (name unquoted, value without the quotes that protect outer blanks).
    """

    name: str
    type: str
    value: str
    line: int = 0

    def __str__(self) -> str:
        return _format(self.name, self.type, self.value)


@dataclass
class CMakeCache:
    """The lines of a cache file; its entries can be read, set, added and removed.

    ``str(cache)`` is the parsed text, byte by byte, with the changes made.
    """

    lines: list[str]
    where: str = "CMakeCache.txt"
    _index: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str, where: str = "CMakeCache.txt") -> CMakeCache:
        """Parse a cache file's text; ``where`` names it in errors. Raises CacheError for a broken one."""
        cache = cls(_split_lines(text), where)
        cache._reindex()
        if not cache._index:
            raise CacheError(f"{where}: no cache entries: is this a CMakeCache.txt?")
        return cache

    def _reindex(self) -> None:
        self._index = {}
        for number, line in enumerate(self.lines):
            content = line.rstrip("\r\n")
            if not content.strip() or content.startswith(("#", "//")):
                continue
            match = _ENTRY.match(content)
            if match is None or match["type"] not in TYPES:
                raise CacheError(f"{self.where}, line {number + 1}: not a cache entry: {content[:80]!r}")
            name = _name(match)
            if name in self._index:
                first = self._index[name] + 1
                raise CacheError(f"{self.where}, line {number + 1}: {name} was already set in line {first}")
            self._index[name] = number

    def __str__(self) -> str:
        return "".join(self.lines)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries in file order, without the pseudo entries for properties (NAME-ADVANCED...)."""
        for name in tuple(self._index):
            owner, _, kind = name.rpartition("-")
            if not (kind in PROPERTIES and owner in self._index):
                yield self[name]

    def __getitem__(self, name: str) -> Entry:
        """Return the entry with a name. Raises CacheError if there is none."""
        if name not in self._index:
            raise CacheError(f"{self.where}: no entry {name}{self._hint(name)}")
        number = self._index[name]
        match = _match(self.lines[number])
        return Entry(
            name=name,
            type=match["type"],
            value=_unquote(match["value"]),
            line=number + 1,
        )

    def get(self, name: str, default: str = "") -> str:
        """Return the value of an entry, or ``default`` if there is no such entry."""
        if name not in self._index:
            return default
        return self[name].value

    def set(self, name: str, value: str, type: str | None = None) -> None:
        """Change the value of an existing entry.

        ``type`` (optional) must be the entry's own, unless that is UNINITIALIZED (from -D without a type).
        Raises CacheError for an unknown name, another type, a STATIC entry, or a value that a line cannot contain.
        """
        entry = self[name]
        if entry.type == STATIC:
            raise CacheError(f"{self.where}: {name} is STATIC: only CMake may set it")
        new_type = type or entry.type
        if entry.type not in (new_type, UNINITIALIZED):
            raise CacheError(f"{self.where}: {name} is of type {entry.type}, not {type}")
        _check(self.where, name, new_type, value)
        number = self._index[name]
        self.lines[number] = _format(name, new_type, value) + _ending(self.lines[number])

    def add(self, name: str, value: str, type: str, doc: str = "") -> None:
        """Add an entry. Raises CacheError if the entry exists, or if its name or value is invalid."""
        if name in self._index:
            raise CacheError(f"{self.where}: {name} exists already")
        if not name or re.search(r'["\r\n]', name):
            raise CacheError(f"{self.where}: {name!r} is not a valid name of a cache entry")
        _check(self.where, name, type, value)
        end = _ending(self.lines[0])
        help_text = doc or "No help, variable specified on the command line."
        new = [f"//{help_text}{end}", _format(name, type, value) + end]
        at = len(self.lines)
        section = self._internal_section()
        if type != INTERNAL and section is not None:
            at = section
            new.append(end)
        if at and not self.lines[at - 1].endswith("\n"):
            self.lines[at - 1] += end
        self.lines[at:at] = new
        self._reindex()

    def _internal_section(self) -> int | None:
        """Return the index of the row of # signs above the section, if there is one."""
        for number, line in enumerate(self.lines):
            if line.rstrip("\r\n") == INTERNAL_SECTION:
                return number - 1
        return None

    def assign(self, assignment: str, *, new: bool = False) -> None:
        """Set an entry by ``NAME[:TYPE]=VALUE``; with ``new``, add the entry if it does not exist.

        Raises CacheError for another form, for a missing entry without ``new``, and as `set` and `add` do.
        """
        match = re.match(r"^([^=:]+)(?::([A-Z]+))?=(.*)$", assignment, re.DOTALL)
        if match is None:
            raise CacheError(f"{assignment!r} is not of the form NAME[:TYPE]=VALUE")
        name, type, value = match.groups()
        if name in self:
            self.set(name, value, type)
        elif new:
            self.add(name, value, type or UNINITIALIZED)
        else:
            raise CacheError(f"{self.where}: no entry {name}{self._hint(name)}; --new adds one")

    def remove(self, name: str) -> None:
        """Remove an entry with its help text and properties. Raises CacheError if there is none."""
        self._remove_lines(self[name].line - 1)
        for kind in PROPERTIES:
            number = self._index.get(f"{name}-{kind}")
            if number is not None:
                self._remove_lines(number)

    def _remove_lines(self, number: int) -> None:
        """Remove the line of an entry, its help text, and a blank line."""
        start = self._doc_start(number)
        end = number + 1
        # One blank line separates entries outside the internal section.
        if start and end < len(self.lines) and not (self.lines[start - 1] + self.lines[end]).strip():
            end += 1
        del self.lines[start:end]
        self._reindex()

    def _doc_start(self, number: int) -> int:
        while number and self.lines[number - 1].startswith("//"):
            number -= 1
        return number

    def _hint(self, name: str) -> str:
        alike = [known for known in self._index if known.casefold() == name.casefold()]
        return f" (did you mean {alike[0]}?)" if alike else ""


def load(path: Path) -> CMakeCache:
    """Read a cache file. Raises CacheError if it is missing or broken."""
    try:
        # surrogateescape, and no newline translation: paths may contain bytes that are not UTF-8
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise CacheError(f"{path}: {error.strerror}") from error
    return CMakeCache.parse(text, str(path))


def save(cache: CMakeCache, path: Path) -> None:
    """Replace a cache file atomically; its first version is kept as NAME.orig in the same folder."""
    keep_original(path)
    write_atomically(path, str(cache).encode("utf-8", "surrogateescape"))


def _split_lines(text: str) -> list[str]:
    # str.splitlines would also split at form feeds and U+2028, which may occur inside values.
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _match(line: str) -> re.Match[str]:
    match = _ENTRY.match(line.rstrip("\r\n"))
    assert match is not None, "only parsed lines are indexed"
    return match


def _name(match: re.Match[str]) -> str:
    quoted: str | None = match["quoted"]
    return match["plain"] if quoted is None else quoted


def _unquote(value: str) -> str:
    return value[1:-1] if _is_quoted(value) else value


def _is_quoted(value: str) -> bool:
    return len(value) >= 2 and value[0] == value[-1] == "'"


def _ending(line: str) -> str:
    return "\r\n" if line.endswith("\r\n") else "\n"


def _format(name: str, type: str, value: str) -> str:
    if ":" in name or name.startswith("//"):
        name = f'"{name}"'
    # CMake drops outer blanks of a value unless it is quoted, and removes quotes around a value.
    if value != value.strip() or _is_quoted(value):
        value = f"'{value}'"
    return f"{name}:{type}={value}"


def _check(where: str, name: str, type: str, value: str) -> None:
    if type not in TYPES:
        raise CacheError(f"{where}: {type!r} is not a type of cache entries ({', '.join(TYPES)})")
    if re.search(r"[\r\n\0]", value):
        raise CacheError(f"{where}: the value for {name} contains a line break or NUL")
    is_boolean = value.lower() in _BOOLEANS or value.upper().endswith("-NOTFOUND")
    if type == BOOL and not is_boolean:
        raise CacheError(f"{where}: {name} is a BOOL, and {value!r} is not one (ON, OFF, ...)")
