"""Which text and which files each output of the recipe depends on."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from megabuild.errors import ConfigError
from megabuild.files import sha256

_LEFT_OUT = {"recipe.yaml", "README.md", "patches", "output", "pyg", "__pycache__"}
_RECIPE_FILE = re.compile(r"""\$\{?RECIPE_DIR\}?"?/([\w.-]+(?:/[\w.-]+)*)""")
_FILE_NAME = re.compile(r"[\w./-]{1,100}\.\w+")
_COMMENT = re.compile(r"(^|\s)#.*")
_COMPILER_KEYS = re.compile(r"(c|cxx|cuda|fortran)_(compiler|stdlib)(_version)?$")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One output of a recipe."""

    text: str  #: its section and the context values it uses, in a form that comments and layout do not change
    #: files beside the recipe that it runs, directly or through one another: name to sha256
    files: Mapping[str, str]

    def variant_keys(self, keys: Mapping[str, object], recipe: Path) -> list[str]:
        """Return those of the config's keys that the section, or a script of it, names."""
        scripts = [self.text, *((recipe.parent / name).read_text(errors="replace") for name in self.files)]
        words = set(re.findall(r"\w+", "\n".join(scripts)))
        return sorted(key for key in keys if key in words or _COMPILER_KEYS.match(key))


def parts(recipe: Path) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe.

    Parameters
    ----------
    recipe:
        The recipe file.

    Returns
    -------
    tuple[Part | None, dict[str, Part]]
        The staging output, and the package outputs by the name that stands in the recipe; those of one name together.
    """
    document = YAML(typ="safe", pure=True).load(recipe.read_text(encoding="utf-8"))
    context = {str(key): str(value) for key, value in (document.get("context") or {}).items()}
    common = {key: document[key] for key in ("build", "source", "about") if key in document}
    staging: Part | None = None
    packages: dict[str, Part] = {}
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            untested = {key: value for key, value in output.items() if key != "tests"}
            staging = _part(untested, context, recipe)
        else:
            name, part = str(output["package"]["name"]), _part({**common, **output}, context, recipe)
            twin = packages.get(name, Part(text="", files={}))
            packages[name] = Part(text=twin.text + part.text, files={**twin.files, **part.files})
    return staging, packages


def part_of(name: str, known: Mapping[str, Part]) -> Part | None:
    """Find a package's part; names that hold an expression (``pytorch-${{…}}``) match by their fixed beginning."""
    if name in known:
        return known[name]
    matches = [other for other in known if "${{" in other and name.startswith(other.split("${{")[0])]
    return known[max(matches, key=len)] if matches else None


def _part(section: Mapping[str, Any], context: Mapping[str, str], recipe: Path) -> Part:
    text = json.dumps(section, sort_keys=True, default=str)
    used: dict[str, str] = {}
    while True:  # context values may use one another
        words = set(re.findall(r"\w+", text + json.dumps(used)))
        more = {key: value for key, value in context.items() if key in words}
        if more == used:
            break
        used = more
    text += json.dumps(used, sort_keys=True)
    return Part(
        text=text, files={name: sha256(recipe.parent / name) for name in _used(section, recipe.parent)}
    )


def _used(section: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the files beside the recipe that a section names, and those that these run or import in turn."""
    found: set[str] = set()
    queue = [name for text in _strings(section) for word in _named(text) for name in _below(word, folder)]
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += [other for word in _words(folder / name, folder) for other in _below(word, folder)]
    return sorted(found)


def _named(text: str) -> Iterator[str]:
    """Give the words of a text, which may be names of files, and what it names below the recipe's folder."""
    yield from text.split()
    for line in text.splitlines():
        yield from _RECIPE_FILE.findall(_COMMENT.sub("", line))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _below(name: str, folder: Path) -> list[str]:
    """Return the files that a name beside the recipe stands for: itself, or what lies in the folder of that name."""
    path = folder / name
    if not name or name.partition("/")[0] in _LEFT_OUT or not path.resolve().is_relative_to(folder.resolve()):
        return []
    found = _files(path) if path.is_dir() and path != folder else [path] if path.is_file() else []
    return [file.relative_to(folder).as_posix() for file in found]


def _words(path: Path, folder: Path) -> Iterator[str]:
    """Give the names of other files that a script runs or imports: what it does counts, not what it says of itself."""
    text, beside = path.read_text(errors="replace"), path.parent.relative_to(folder).as_posix()
    if path.suffix == ".sh":
        for line in text.splitlines():
            yield from _RECIPE_FILE.findall(_COMMENT.sub("", line))
    elif path.suffix == ".py":
        for node in ast.walk(_parsed(path, text)):
            match node:
                case ast.Import():
                    yield from (f"{beside}/{alias.name}.py" for alias in node.names)
                case ast.ImportFrom(module=str(module)):
                    yield f"{beside}/{module}.py"
                case ast.Constant(value=str(value)) if _FILE_NAME.fullmatch(value):
                    yield f"{beside}/{value}"


def _parsed(path: Path, text: str) -> ast.Module:
    """Parse a script; raises :class:`ConfigError` where it is not Python."""
    try:
        return ast.parse(text, str(path))
    except (SyntaxError, ValueError) as error:  # the latter for null bytes, up to Python 3.11
        raise ConfigError(f"{path} is not Python: {error}", "correct it: the recipe runs it") from error


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in _LEFT_OUT or path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix != ".pyc":
            yield path
