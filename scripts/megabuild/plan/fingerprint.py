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
from dataclasses import asdict, dataclass, field
from pathlib import Path

from groundwork.errors import IsolationError, PreflightError
from groundwork.files import sha256
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
class Fingerprint:
    """Named facts behind one compile of libtorch."""

    dependency: Mapping[str, str] = field(default_factory=dict)  #: facts that all objects depend on
    #: facts whose changes ninja notices in the tree
    source: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """sha256 over all facts."""
        return digest(asdict(self))


def digest(value: object) -> str:
    """sha256 over a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def staging(
    part: Part | None,
    options: Options,
    packages: Sequence[PlannedPackage],
    environment: Environment,
    isolation: Isolation | IsolationError,
) -> Fingerprint:
    """Collect the facts that libtorch's compile depends on; none if no package is built from it."""
    first = next((package for package in packages if inherits(package)), None)
    if part is None or first is None or not environment.channels:
        return Fingerprint()
    variant, dependency = chosen(options.config, environment.overrides).variant, {"place": "unknown"}
    if not isinstance(isolation, IsolationError):  # objects contain paths
        dependency["place"] = isolation.place(options.state_inside(isolation))
    for key in part.variant_keys(variant, options.recipes):
        if key not in _NO_FACTS:
            dependency[f"variant {key}"] = ", ".join(variant[key])
    for kind, suffix, specs in (("build", " (build)", first.staging_build), ("host", "", first.staging_host)):
        solved = solving.environment(
            specs, environment, options.config.platform, f"staging: {kind} environment"
        )
        dependency |= {f"package {name}{suffix}": value for name, value in solved.items()}
    if environment.root is not None:
        dependency["system packages"] = _system_packages(environment.root)[:16]
    patches = options.recipe.parent / "patches"
    kind = next(iter(variant.get("torch_source", ())), "*")
    # their effect on objects is visible to ninja as a command line, or is a package or variant above
    facts = {"recipe": digest(part.text)[:16]}
    facts |= {f"script {name}": value[:16] for name, value in part.files.items()}
    facts |= {
        f"patch {path.name}": sha256(path)[:16]
        for path in sorted(patches.glob("*.patch")) + sorted(patches.glob(f"{kind}/*"))
        if path.is_file()
    }
    source = environment.staging_source or environment.source  # none if the variant has a tarball's hash
    if options.rehearse and options.torch_source is None:
        source = options.root / "rehearsal" / "model"
    if source is not None:
        facts["source tree"] = (tree(source) if isinstance(source, Path) else tree_of(source))[:16]
    return Fingerprint(dependency=dependency, source=facts)


def inherits(planned: PlannedPackage) -> bool:
    """Return whether a package is built from the staging output."""
    return bool(planned.staging_build or planned.staging_host)


def package(planned: PlannedPackage, part: Part | None, staged: Fingerprint) -> str:
    """Return a sha256 over a package's inputs: its part of the recipe, its requirements, the staging."""
    return digest(
        {
            "text": part.text if part else "",
            "files": dict(part.files) if part else {},
            "planned": planned.facts,
            "staging": staged.digest if inherits(planned) else "",
        }
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
            status = path.lstat()
            if not stat.S_ISLNK(status.st_mode) and not stat.S_ISREG(status.st_mode):
                raise PreflightError(f"{path}: not a file, folder or link", "remove it from the sources")
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else sha256(path)
            executable = bool(status.st_mode & stat.S_IXUSR)
            found[str(path.relative_to(folder))] = (executable, content)
    return digest(found)


def tree_of(files: Mapping[str, str]) -> str:
    """Return :func:`tree` of a folder with these plain files, by name and sha256."""
    return digest({name: (False, content) for name, content in files.items()})


def _system_packages(root: Path) -> str:
    """Return a sha256 over the packages installed in a Debian root."""
    try:
        lines = (root / "var" / "lib" / "dpkg" / "status").read_text(errors="replace").splitlines()
    except OSError:
        return digest(str(root))
    return digest([line for line in lines if line.startswith(("Package:", "Version:", "Status:"))])


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return phrases on the first six differences of two sets of facts, and on how many more there are."""
    keys = [key for key in dict.fromkeys((*new, *old)) if old.get(key) != new.get(key)]
    reasons = list(dict.fromkeys(_difference(key, old.get(key), new.get(key)) for key in keys))
    more = len(reasons) - _MOST_REASONS
    return [*reasons[:_MOST_REASONS], *([f"{more} more"] if more > 0 else [])]


def _difference(key: str, old: str | None, new: str | None) -> str:
    kind, _, name = key.partition(" ")
    before, after = (value.split()[0] if value else "none" for value in (old, new))
    if kind in ("package", "variant", "place") and before != after:
        return f"{name.removesuffix(' (build)') or kind} {before} -> {after}"
    return f"{key} changed"
