"""Named facts that a compile of libtorch depends on: they decide whether it can be reused, and explain why not.

Facts are of three kinds. If only *sources* changed (PyTorch's, a patch, a build script), the CMake tree stays and ninja
compiles what differs, by content or by command line. If a *package* changed, the tree's own record says which objects
read its files (:mod:`megabuild.plan.changes`). If a fact of the *compilers* changed (their place, or a value of the
config), the tree holds objects that no longer fit, which ninja would not notice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from groundwork.errors import IsolationError, PreflightError
from groundwork.files import sha256, walk
from groundwork.keys import Key
from megabuild.configs.overrides import chosen
from megabuild.configs.render import PlannedPackage
from megabuild.isolation.base import Isolation
from megabuild.plan import solving
from megabuild.plan.options import Options
from megabuild.plan.recipe_parts import Part
from megabuild.providers.debian.foreign import unpacked_headers
from megabuild.providers.environment import Environment

#: Keys that no object depends on: the path of the sources, and the Pythons, since staging has its own Python.
_NO_FACTS = frozenset({"torch_source_path", "python", "is_python_min", "further_python"})
#: Keys that name PyTorch's release: staging copies changed sources into the tree, and configures it again.
_KEYS_OF_RELEASE = ("torch_version", "torch_sha256")
#: The fact of the compilers that names where the tree is.
_PLACE = "place"
#: Facts that differ by PyTorch's own files only: what begins so, the recipe's list of patches, a folder of sources.
_PATCH = "patch "
_PATCH_LIST = "list of patches"
_SOURCE_TREE = "source tree"
_DPKG_FIELD = re.compile(r"^(Package|Version|Status|Architecture): *(.*?) *$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Fingerprint(Key):
    """Named facts behind one compile of libtorch."""

    compilers: Mapping[str, str] = field(default_factory=dict)  #: facts that all objects depend on
    pins: Mapping[str, str] = field(default_factory=dict)  #: values of the config that only choose packages
    #: packages by environment and name, ``host libprotobuf``; their objects are known to the tree's record alone
    packages: Mapping[str, str] = field(default_factory=dict)
    #: facts whose changes ninja notices in the tree
    source: Mapping[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()  #: names of the packages that the recipe itself requires

    def moved_to(self, place: str) -> Fingerprint:
        """Return the fingerprint of the same compile in another place."""
        return replace(self, compilers={**self.compilers, _PLACE: place})

    def has_recipe_of(self, other: Fingerprint) -> bool:
        """Return whether both compiles have the same release and build scripts: the sources may differ by patches."""
        return self._recipe == other._recipe

    @property
    def _recipe(self) -> dict[str, str]:
        facts: dict[str, str] = {}
        for key, value in self.source.items():
            if key not in (_SOURCE_TREE, _PATCH_LIST) and not key.startswith(_PATCH):
                facts[key] = value
        return facts

    @property
    def place(self) -> str:
        """The isolation, and the path of the tree in it; empty in a record without them."""
        return self.compilers.get(_PLACE, "")


@dataclass(frozen=True, kw_only=True)
class StagingInputs(Key):
    """Everything that one compile of libtorch depends on; hashes are short."""

    place: str  #: the isolation, and the path of the tree in it: objects contain paths
    cross_from: str  #: platform of the machine that compiles for another one; empty for its own
    variant: Mapping[str, str]  #: values of the config that the staging uses, by key, without those below
    release: Mapping[str, str]  #: those that name PyTorch's source; no compiler sees them
    pins: Mapping[str, str]  #: those that only choose versions of packages
    build: Mapping[str, str]  #: the build environment's packages
    host: Mapping[str, str]  #: the host environment's packages
    system: Mapping[str, str]  #: versions of the packages of a Debian root
    unpacked: Mapping[str, str]  #: of those with headers that the root has only unpacked
    required: tuple[str, ...]  #: names of the packages that the recipe requires in both environments
    recipe: str  #: hash of the staging's part of the recipe, without its list of patches
    patch_list: str  #: hash of that list, empty without one
    scripts: Mapping[str, str]  #: hashes by path
    patches: Mapping[str, str]  #: hashes by file name
    source_tree: str  #: hash over PyTorch's source if it is a folder, or empty

    @property
    def fingerprint(self) -> Fingerprint:
        """The facts by kind, under names for people."""
        compilers = {_PLACE: self.place}
        if self.cross_from:
            compilers["compiling platform"] = self.cross_from
        # their effect on objects is visible to ninja as a command line, or is a package or variant below
        source = {"recipe": self.recipe}
        compilers |= {f"variant {key}": value for key, value in self.variant.items()}
        source |= {f"variant {key}": value for key, value in self.release.items()}
        packages = {}
        environments = {"build": self.build, "host": self.host, "system": self.system}
        for environment, versions in environments.items():
            for name, version in versions.items():
                packages[f"{environment} {name}"] = version
        source |= {f"script {name}": value for name, value in self.scripts.items()}
        source |= {f"{_PATCH}{name}": value for name, value in self.patches.items()}
        # no list of a package's files names them, but the tree's record has their contents
        source |= {f"headers {name}": version for name, version in self.unpacked.items()}
        if self.patch_list:
            source[_PATCH_LIST] = self.patch_list
        if self.source_tree:
            source[_SOURCE_TREE] = self.source_tree
        return Fingerprint(
            compilers=compilers,
            pins={f"variant {key}": value for key, value in self.pins.items()},
            packages=packages,
            source=source,
            required=self.required,
        )


@dataclass(frozen=True, kw_only=True)
class PackageInputs(Key):
    """Everything that one package depends on."""

    text: str  #: its part of the recipe
    files: Mapping[str, str]  #: hashes of the files that this part uses
    planned: Mapping[str, Any]  #: its names and requirements
    staging: str  #: the digest of the staging that it is built from, or empty


@dataclass(frozen=True, kw_only=True)
class OwnTestsInputs(Key):
    """Everything that a package of PyTorch's own tests depends on: it is published if other packages pass them."""

    own: str  #: digest of its :class:`PackageInputs`
    tested: Mapping[str, str]  #: digests of the tested packages' inputs, by file name


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
    values: dict[str, str] = {}
    for key in part.variant_keys(variant, options.recipes):
        if key not in _NO_FACTS:
            values[key] = ", ".join(variant[key])
    release: dict[str, str] = {}
    pins: dict[str, str] = {}
    if options.own:  # another feedstock's script may not look for changed sources, and read any variable
        release = {key: values.pop(key) for key in _KEYS_OF_RELEASE if key in values}
        pins = {key: values.pop(key) for key in sorted(part.pins(values, options.recipes))}

    platforms = options.config.platforms

    def solve(specs: Sequence[str], kind: str) -> Mapping[str, str]:
        platform = platforms.of(kind)
        packages = dict(solving.environment(specs, environment, platform, f"staging: {kind} environment"))
        for name in packages.keys() & environment.of_root.keys():
            version = packages[name].split()[0]
            packages[name] = f"{version} {environment.of_root[name][:16]}"
        return packages

    return StagingInputs(
        place=_place(options, isolation),
        cross_from=platforms.cross_from,
        variant=values,
        release=release,
        pins=pins,
        build=solve(first.staging_build, "build"),
        host=solve(first.staging_host, "host"),
        system=_system_packages(environment.root) if environment.root else {},
        unpacked=unpacked_headers(environment.root) if environment.root else {},
        required=tuple(sorted({spec.split()[0] for spec in (*first.staging_build, *first.staging_host)})),
        recipe=digest(part.text)[:16],
        patch_list=digest(part.patches)[:16] if part.patches else "",
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
    found: dict[str, str] = {}
    for path in filter(Path.is_file, paths):
        name = path.name if path.name not in found else f"{source}/{path.name}"
        found[name] = sha256(path)[:16]
    return found


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
        text=own.text + own.patches,
        files=own.files,
        planned=planned.facts,
        staging=staged.digest if inherits(planned) else "",
    )


def tree(folder: Path) -> str:
    """Return a sha256 over names, modes and contents below a folder, without version control and caches.

    Of a link it has the target, also of one to a folder.

    Raises PreflightError: The folder contains, for example, a pipe: reading it would never end.
    Raises OSError: A folder in it cannot be read.
    """
    found = {}
    for here, folders, files in walk(folder):
        folders[:] = set(folders) - {".git", "__pycache__"}
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        for name in (*files, *links):
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


def _system_packages(root: Path) -> dict[str, str]:
    """Return the versions of the packages installed in a Debian root, by name; several of one name are joined.

    Raises PreflightError: dpkg's list of them cannot be read.
    """
    status = root / "var" / "lib" / "dpkg" / "status"
    try:
        paragraphs = status.read_text(errors="replace").split("\n\n")
    except OSError as error:
        raise PreflightError(
            f"{status}: cannot be read: {error.strerror}",
            "delete the root folder: the next build makes it again",
        ) from error
    versions: dict[str, str] = {}
    for paragraph in paragraphs:
        fields = dict(_DPKG_FIELD.findall(paragraph))
        name = fields.get("Package", "")
        if name and "deinstall" not in fields.get("Status", ""):
            version = f"{fields.get('Version', '')} {fields.get('Architecture', '')}".strip()
            versions[name] = " ".join(filter(None, (versions.get(name), version)))
    return versions
