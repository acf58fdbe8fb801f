"""Finds the text and the files that each output of a recipe depends on."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from groundwork.damage import reading
from groundwork.errors import ConfigError
from groundwork.files import sha256

_LEFT_OUT = frozenset({"recipe.yaml", "README.md", "patches", "output", "pyg", "wheel", "__pycache__"})
#: Variant files: a package's plan has the values that it is built with.
_VALUES = frozenset({"variants.yaml", "conda_build_config.yaml"})
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
_RECIPE_FILE = re.compile(r"""\$\{?RECIPE_DIR\}?"?/([\w.-]+(?:/[\w.-]+)*)""")
_FILE_NAME = re.compile(r"[\w./-]{1,100}\.\w+")
_COMMENT = re.compile(r"(^|\s)#.*")
_COMPILER_KEYS = re.compile(r"(c|cxx|cuda|fortran)_(compiler|stdlib)(_version)?$")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One output of a recipe."""

    text: str  #: its section and the context values it uses, without comments and layout
    #: sha256 of the files that it runs, directly or indirectly, by path below the recipes' folder
    files: Mapping[str, str]

    def variant_keys(self, keys: Mapping[str, object], top: Path) -> list[str]:
        """Return the config's keys that the section or one of its scripts names; ``top`` as for :func:`parts`."""
        scripts = [self.text, *((top / name).read_text(errors="replace") for name in self.files)]
        words = set(re.findall(r"\w+", "\n".join(scripts)))
        return sorted(key for key in keys if key in words or _COMPILER_KEYS.match(key))

    def joined(self, other: Part | None) -> Part:
        """Return both parts as one."""
        return Part(text=other.text + self.text, files={**other.files, **self.files}) if other else self


def parts(recipe: Path, top: Path | None = None, *, own: bool = True) -> tuple[Part | None, dict[str, Part]]:
    """Split a recipe into its staging output, and its package outputs by their unrendered names.

    Outputs of one name are joined, and so are several stagings. ``top``: the folder with all files that the recipe
    uses, default its own. This repository's ``own`` recipes and scripts name all files that they use. In other
    feedstocks, scripts are not read, and a file that no output names counts for every output.
    """
    folder = recipe.parent
    top = folder if top is None else top
    with reading(recipe, "correct the recipe"):
        document = YAML(typ="safe", pure=True).load(recipe.read_text(encoding="utf-8"))
    context = {str(key): str(value) for key, value in (document.get("context") or {}).items()}
    common = {key: document[key] for key in ("build", "source", "about") if key in document}

    def part_from(section: Mapping[str, Any]) -> Part:
        text = json.dumps(section, sort_keys=True, default=str)
        used: dict[str, str] = {}
        while True:  # context values may use one another
            words = set(re.findall(r"\w+", text + json.dumps(used)))
            more = {key: value for key, value in context.items() if key in words}
            if more == used:
                text += json.dumps(used, sort_keys=True)
                return Part(text=text, files=_files_of(section, folder, top, follow=own))
            used = more

    staging: Part | None = None
    packages: dict[str, Part] = {}
    for output in document.get("outputs") or [document]:
        if "staging" in output:
            untested = {key: value for key, value in output.items() if key != "tests"}
            inherited = {key: common[key] for key in ("source",) if key in common}
            staging = part_from({**inherited, **untested}).joined(staging)
        else:
            name = str(output["package"]["name"])
            packages[name] = part_from({**common, **output}).joined(packages.get(name))
    if own:
        return staging, packages
    named = {name for part in (*packages.values(), staging) if part for name in part.files}
    # a staging's fingerprint already has the patches; without a staging they count here
    left_out = (_LEFT_OUT if staging else _LEFT_OUT - {"patches"}) | _VALUES
    paths = {path.relative_to(top).as_posix(): path for path in _walk(folder, left_out)}
    shared = Part(
        text="", files={name: sha256(path) for name, path in sorted(paths.items()) if name not in named}
    )
    return staging and shared.joined(staging), {name: shared.joined(part) for name, part in packages.items()}


def part_of(name: str, package_parts: Mapping[str, Part]) -> Part | None:
    """Find a package's part; a name with an expression (``pytorch-${{…}}``) matches by its fixed text.

    Several matching parts are joined.
    """
    if name in package_parts:
        return package_parts[name]
    joined: Part | None = None
    for other, part in package_parts.items():
        pattern = ".+".join(map(re.escape, _EXPRESSION.split(other)))
        if "${{" in other and re.fullmatch(pattern, name):
            joined = part.joined(joined)
    return joined


def _files_of(section: Mapping[str, Any], folder: Path, top: Path, *, follow: bool) -> dict[str, str]:
    """Return the sha256 of the files that a section names, and of the files that these run or import."""
    files: set[Path] = set()
    named = [folder / word for text in _strings(section) for word in (*text.split(), *_recipe_files(text))]
    while named:
        for path in _resolve(named.pop(), folder, top):
            if path not in files:
                files.add(path)
                named += _references(path, folder, top) if follow else ()
    return {path.relative_to(top).as_posix(): sha256(path) for path in sorted(files)}


def _recipe_files(text: str) -> list[str]:
    """Return the files below the recipe's folder that a script names outside comments."""
    return [name for line in text.splitlines() for name in _RECIPE_FILE.findall(_COMMENT.sub("", line))]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner)


def _resolve(named: Path, folder: Path, top: Path) -> list[Path]:
    """Return the file of that name, or all files in the folder of that name."""
    path = Path(os.path.normpath(named))
    # most words of a recipe name no file, so this cheap test comes first
    if path in (folder, top) or not os.path.exists(path) or not path.resolve().is_relative_to(top.resolve()):
        return []
    inside = path.relative_to(folder if path.is_relative_to(folder) else top)
    if inside.parts[0] in _LEFT_OUT:
        return []
    return [*_walk(path)] if path.is_dir() else [path] if path.is_file() else []


def _references(path: Path, folder: Path, top: Path) -> list[Path]:
    """Return the other files that a script's code, not its comments, runs or imports.

    Raises ConfigError: A ``.py`` file is not valid Python.
    """
    text = path.read_text(errors="replace")
    if path.suffix == ".sh":  # in a script that recipes share, RECIPE_DIR is the script's folder
        return [base / name for name in _recipe_files(text) for base in (folder, path.parent)]
    if path.suffix != ".py":
        return []
    try:
        modules, files = _names_in(text)
    except (SyntaxError, ValueError) as error:  # the latter for null bytes, up to Python 3.11
        raise ConfigError(
            f"{path}: invalid Python: {error}", "correct the file: the recipe runs it"
        ) from error
    # modules are next to the script, or shared by all recipes
    imported = [base / f"{name}.py" for name in modules for base in (path.parent, top)]
    return imported + [path.parent / name for name in files]


@functools.lru_cache
def _names_in(text: str) -> tuple[list[str], list[str]]:
    """Return the modules that Python code imports, and its string constants that look like file names."""
    modules, files = [], []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import() | ast.ImportFrom(module=None):
                modules += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                modules.append(module)
            case ast.Constant(value=str(value)) if _FILE_NAME.fullmatch(value):
                files.append(value)
    return modules, files


def _walk(folder: Path, left_out: frozenset[str] = _LEFT_OUT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in left_out or path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink() and not (path / "recipe.yaml").is_file():
            yield from _walk(path, left_out)
        elif path.is_file() and path.suffix != ".pyc":
            yield path
