"""What a user asks of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from megabuild.configs.config import Config
from megabuild.isolation.base import Isolation

#: Where builds see folders of ours, but for builds on the host itself.
INSIDE = "/opt/megabuild"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The choices of one run.

    Parameters
    ----------
    config:
        What to build.
    root:
        The repository.
    output:
        Folder for states and packages.
    cache:
        Folder for what configs share.
    rehearse:
        Build the scaled model in place of PyTorch, for the Pythons that exist here.
    pythons:
        Narrow to these (``3.12``); empty for all of the config.
    engine:
        Isolation by name, or None for the one that fits.
    keep_going:
        Go on with other packages where one fails.
    optimization:
        ``0`` or ``2`` in place of the config's.
    cpu_count:
        Compile jobs, or None for what cores and memory allow.
    pyg:
        PyTorch Geometric's extensions: ``auto`` (a wheel where one fits, else compile), ``source``, ``prebuilt``, or
        ``none``.
    pyg_index:
        Where wheels of extensions are looked for: URL or folder; None for the official index.
    pyg_sources:
        Folder or URL with the extensions' source archives, or None for PyPI's.
    extensions:
        Only these extensions, and what they need; empty for all.
    arch_list:
        CUDA architectures in place of the config's.
    memory:
        Most bytes that compilers of extensions may take together, or None for all that is free.
    torch:
        Version of PyTorch in place of the one in the config's file, which ``config`` has already; None for that one.
    torch_source:
        Folder or tarball with PyTorch's source in place of the provider's.
    torch_sha256:
        Of that tarball, or of the official one of that version.
    """

    config: Config
    root: Path
    output: Path
    cache: Path
    rehearse: bool = False
    pythons: tuple[str, ...] = ()
    engine: str | None = None
    keep_going: bool = False
    optimization: str | None = None
    cpu_count: int | None = None
    pyg: str = "auto"
    pyg_index: str | None = None
    pyg_sources: str | None = None
    extensions: tuple[str, ...] = ()
    arch_list: str | None = None
    memory: int | None = None
    torch: str | None = None
    torch_source: Path | None = None
    torch_sha256: str | None = None

    @property
    def run_name(self) -> str:
        """The config's name, marked for another PyTorch or a rehearsal: names the state and the published channel."""
        name = f"{self.config.name}-{self.torch}" if self.torch else self.config.name
        return f"{name}-rehearsal" if self.rehearse else name

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
        return self.root.absolute() / "recipe" / "recipe.yaml"
