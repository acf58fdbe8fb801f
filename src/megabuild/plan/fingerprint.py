"""Named facts that a compile of libtorch depends on: they decide whether it can be reused, and explain why not.

There are two kinds of facts. When only *sources* changed (PyTorch's, a patch, a build script), the CMake tree stays and
ninja compiles what differs, by content or by command line. When a *dependency* changed (a compiler, the prefix, a
version), the tree holds objects that no longer fit, which ninja would not notice.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groundwork.errors import IsolationError, PreflightError
from groundwork.files import sha256
from groundwork.keys import Key
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage
from megabuild.isolation.base import Isolation
from megabuild.plan import solving
from megabuild.plan.options import Options
from megabuild.plan.recipe_parts import Part
from megabuild.providers.environment import Environment

#: Keys that no object depends on: the path of the sources, and the Pythons, since staging has its own Python.
_NO_FACTS = frozenset({"torch_source_path", "python", "is_python_min", "further_python"})
_MOST_REASONS = 6


@dataclass(frozen=True, kw_only=True)
class Fingerprint(Key):
    """Named facts behind one compile of libtorch."""

    dependency: Mapping[str, str] = field(default_factory=dict)  #: facts that all objects depend on
    #: facts whose changes ninja notices in the tree
    source: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StagingInputs(Key):
    """Everything that one compile of libtorch depends on; hashes are short."""

    place: str  #: the isolation, and the path of the tree in it: objects contain paths
    variant: Mapping[str, str]  #: values of the config that the staging uses, by key
    build: Mapping[str, str]  #: the build environment's packages
    host: Mapping[str, str]  #: the host environment's packages
    system_packages: str  #: hash over the packages of a Debian root, or empty
    recipe: str  #: hash of the staging's part of the recipe
    scripts: Mapping[str, str]  #: hashes by path
    patches: Mapping[str, str]  #: hashes by file name
    source_tree: str  #: hash over PyTorch's source if it is a folder, or empty

    @property
    def fingerprint(self) -> Fingerprint:
        """The facts by kind, under names for people."""
        dependency = {"place": self.place}
        dependency |= {f"variant {key}": value for key, value in self.variant.items()}
        dependency |= {f"package {name} (build)": value for name, value in self.build.items()}
        dependency |= {f"package {name}": value for name, value in self.host.items()}
        if self.system_packages:
            dependency["system packages"] = self.system_packages
        # their effect on objects is visible to ninja as a command line, or is a package or variant above
        source = {"recipe": self.recipe}
        source |= {f"script {name}": value for name, value in self.scripts.items()}
        source |= {f"patch {name}": value for name, value in self.patches.items()}
        if self.source_tree:
            source["source tree"] = self.source_tree
        return Fingerprint(dependency=dependency, source=source)


@dataclass(frozen=True, kw_only=True)
class PackageInputs(Key):
    """Everything that one package depends on."""

    text: str  #: its part of the recipe
    files: Mapping[str, str]  #: hashes of the files that this part uses
    planned: Mapping[str, Any]  #: its names and requirements
    staging: str  #: the digest of the staging that it is built from, or empty


def digest(value: object) -> str:
    """sha256 over a content that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def staging(
    part: Part | None,
    options: Options,
    packages: Sequence[PlannedPackage],
    environment: Environment,
    isolation: Isolation | IsolationError,
) -> Fingerprint:
    """Return the facts that libtorch's compile depends on; none if no package is built from it."""
    first = next((package for package in packages if inherits(package)), None)
    if part is None or first is None or not environment.channels:
        return Fingerprint()
    return staging_inputs(part, options, first, environment, isolation).fingerprint


def staging_inputs(
    part: Part,
    options: Options,
    first: PlannedPackage,
    environment: Environment,
    isolation: Isolation | IsolationError,
) -> StagingInputs:
    """Collect the inputs of libtorch's compile; ``first`` is a package that is built from it."""
    variant = chosen(options.config, environment.overrides).variant
    keys = [key for key in part.variant_keys(variant, options.recipes) if key not in _NO_FACTS]

    def solve(specs: Sequence[str], kind: str) -> Mapping[str, str]:
        platform = options.config.platform
        return solving.environment(specs, environment, platform, f"staging: {kind} environment")

    return StagingInputs(
        place=_place(options, isolation),
        variant={key: ", ".join(variant[key]) for key in keys},
        build=solve(first.staging_build, "build"),
        host=solve(first.staging_host, "host"),
        system_packages=_system_packages(environment.root)[:16] if environment.root else "",
        recipe=digest(part.text)[:16],
        scripts={name: value[:16] for name, value in part.files.items()},
        patches=_patches(options.recipe.parent / "patches", next(iter(variant.get("torch_source", ())), "*")),
        source_tree=_source_tree(options, environment)[:16],
    )


def _place(options: Options, isolation: Isolation | IsolationError) -> str:
    if isinstance(isolation, IsolationError):
        return "unknown"
    return isolation.place(options.state_inside(isolation))


def _patches(folder: Path, source: str) -> dict[str, str]:
    """Return the hashes of the patches for all sources, and for one."""
    paths = [*sorted(folder.glob("*.patch")), *sorted(folder.glob(f"{source}/*"))]
    return {path.name: sha256(path)[:16] for path in paths if path.is_file()}


def _source_tree(options: Options, environment: Environment) -> str:
    """Return a hash over PyTorch's source; empty if the variant has a tarball's hash."""
    if options.rehearse and options.torch_source is None:
        return tree(options.root / "rehearsal" / "model")
    if environment.staging_source is not None:
        return tree_of(environment.staging_source)
    return tree(environment.source) if environment.source is not None else ""


def inherits(planned: PlannedPackage) -> bool:
    """Return whether a package is built from the staging output."""
    return bool(planned.staging_build or planned.staging_host)


def package(planned: PlannedPackage, part: Part | None, staged: Fingerprint) -> PackageInputs:
    """Return a package's inputs: its part of the recipe, its requirements, the staging."""
    own = part or Part(text="", files={})
    return PackageInputs(
        text=own.text,
        files=own.files,
        planned=planned.facts,
        staging=staged.digest if inherits(planned) else "",
    )


def tree(folder: Path) -> str:
    """Return a sha256 over names, modes and contents below a folder, without version control and caches.

    Raises PreflightError: The folder contains, for example, a pipe: reading it would never end.
    """
    found = {}
    for here, folders, files in os.walk(folder):
        folders[:] = set(folders) - {".git", "__pycache__"}
        for name in files:
            path = Path(here, name)
            found[str(path.relative_to(folder))] = _mode_and_content(path)
    return digest(found)


def _mode_and_content(path: Path) -> tuple[bool, str]:
    """Return whether a file is executable, and its sha256 or a link's target."""
    status = path.lstat()
    executable = bool(status.st_mode & stat.S_IXUSR)
    if stat.S_ISLNK(status.st_mode):
        return executable, os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        raise PreflightError(f"{path}: not a file, folder or link", "remove it from the sources")
    return executable, sha256(path)


def tree_of(files: Mapping[str, str]) -> str:
    """Return :func:`tree` of a folder with these plain files, by name and sha256."""
    return digest({name: (False, content) for name, content in files.items()})


def _system_packages(root: Path) -> str:
    """Return a sha256 over the packages installed in a Debian root.

    Raises PreflightError: dpkg's list of them cannot be read.
    """
    status = root / "var" / "lib" / "dpkg" / "status"
    try:
        lines = status.read_text(errors="replace").splitlines()
    except OSError as error:
        raise PreflightError(
            f"{status}: cannot be read: {error.strerror}",
            "delete the root folder: the next build makes it again",
        ) from error
    return digest([line for line in lines if line.startswith(("Package:", "Version:", "Status:"))])


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return phrases on the first six differences of two sets of facts, and on how many more there are."""
    reasons: dict[str, None] = {}
    for key in dict.fromkeys((*new, *old)):
        if old.get(key) != new.get(key):
            reasons[_difference(key, old.get(key), new.get(key))] = None
    phrases = list(reasons)
    more = len(phrases) - _MOST_REASONS
    if more > 0:
        return [*phrases[:_MOST_REASONS], f"{more} more"]
    return phrases


def _difference(key: str, old: str | None, new: str | None) -> str:
    kind, _, name = key.partition(" ")
    before = _short(old)
    after = _short(new)
    if kind in ("package", "variant", "place") and before != after:
        return f"{name.removesuffix(' (build)') or kind} {before} -> {after}"
    return f"{key} changed"


def _short(value: str | None) -> str:
    return value.split()[0] if value else "none"
