"""The options of a run."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import PreflightError
from groundwork.interrupts import Deadline
from megabuild.configs.config import RECIPES, Config, recipe_of
from megabuild.isolation.base import Isolation

#: Where builds see folders of ours, but for builds on the host itself.
INSIDE = "/opt/megabuild"
#: The engine makes prefixes of 255 characters out of a state's path, and work folders go deeper than it does.
_LONGEST_PATH = 160
_SAFE_PATH = re.compile(r"[A-Za-z0-9_./+@=-]+")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices of one run."""

    config: Config  #: what to build
    root: Path  #: the repository, or another feedstock
    output: Path  #: folder for states and packages
    cache: Path  #: folder for what configs share
    own: bool = True  #: the feedstock is the repository that the driver belongs to
    rehearse: bool = False  #: build the scaled model in place of PyTorch, for the Pythons that exist here
    pythons: tuple[str, ...] = ()  #: narrow to these (``3.12``); empty for all of the config
    engine: str | None = None  #: isolation by name, or None for the one that fits
    keep_going: bool = False  #: go on with other packages where one fails
    optimization: str | None = None  #: ``0`` or ``2`` in place of the config's
    upstream_tests: bool = False  #: the package with PyTorch's own tests, too
    cpu_count: int | None = None  #: compile jobs, or None for what cores and memory allow
    #: PyTorch Geometric's extensions: ``auto`` (a wheel where one fits, else compile), ``source``, ``prebuilt``, or
    #: ``none``
    pyg: str = "auto"
    #: where wheels of extensions are looked for: URL or folder; None for the official index
    pyg_index: str | None = None
    pyg_sources: str | None = None  #: folder or URL with the extensions' source archives, or None for PyPI's
    extensions: tuple[str, ...] = ()  #: only these extensions, and what they need; empty for all
    arch_list: str | None = None  #: CUDA architectures in place of the config's
    #: most bytes that compilers may take together, or None for all that is free
    memory: int | None = None
    #: version of PyTorch in place of the one in the config's file, which ``config`` has already; None for that one
    torch: str | None = None
    torch_source: Path | None = None  #: folder or tarball with PyTorch's source in place of the provider's
    deadline: Deadline | None = None  #: when the run has to have ended

    @property
    def run_name(self) -> str:
        """The config's name, marked for another PyTorch or a rehearsal: names the state and the published channel."""
        name = f"{self.config.name}-{self.torch}" if self.torch else self.config.name
        return f"{name}-rehearsal" if self.rehearse else name

    @property
    def cache_name(self) -> str:
        """The run's name, with its feedstock's where that is another one, for caches that no other build may write to.

        Every feedstock may have a config of the same name.
        """
        if self.own:
            return self.run_name
        root = self.root.resolve()
        return f"{root.name}-{hashlib.sha256(bytes(root)).hexdigest()[:8]}/{self.run_name}"

    @property
    def key(self) -> str:
        """What changes how long it takes, and how much memory, as the name of a file that several checkouts share."""
        how = [self.optimization, self.arch_list, str(self.torch_source or ""), self.engine]
        return f"{self.cache_name}-{hashlib.sha256(json.dumps(how).encode()).hexdigest()[:8]}"

    @property
    def state(self) -> Path:
        """Folder of everything that a later run continues from."""
        return self.output.absolute() / self.run_name

    def state_inside(self, isolation: Isolation) -> str:
        """Return the state folder's path as builds see it: it becomes part of objects."""
        return isolation.path(f"{INSIDE}/state", self.state)

    @property
    def packages(self) -> Path:
        """The published channel."""
        return self.output.absolute() / "packages" / self.run_name

    @property
    def recipe(self) -> Path:
        """The recipe file."""
        return recipe_of(self.root, self.config)

    @property
    def recipes(self) -> Path:
        """The folder below which all recipes lie, and what they share."""
        return self.root.absolute() / RECIPES


def check_path(path: str) -> None:
    """Check the path of a state folder, which compilers and build scripts have to handle.

    Raises PreflightError: It is too long, or holds a character that they cannot handle, a space for one.
    """
    if len(path) > _LONGEST_PATH or not _SAFE_PATH.fullmatch(path):
        raise PreflightError(
            f"compilers and build scripts cannot handle the output folder's path {path}",
            f"choose one of at most {_LONGEST_PATH} letters, digits and _./+@=- with --output",
        )
