"""What the driver tells the worker, and what the worker answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from megabuild import files


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of the engine. Paths are as the worker sees them, inside its isolation.

    Parameters
    ----------
    recipe:
        Path of the recipe file.
    variant_config:
        Variant files, later ones win.
    channels:
        URLs of channels in order of priority.
    output_dir:
        The engine's output folder; must keep its path between runs that share a staging.
    target_platform, build_platform:
        conda's platform names.
    test:
        ``native`` or ``skip``.
    env:
        Environment of the engine; scripts see those that the recipe passes on.
    planned:
        Names of all package files that the job is about.
    leftovers:
        Package files below ``output_dir`` that exist but were never tested.
    published:
        Names of package files in ``output_dir`` that are finished and only serve as dependencies.
    keep_going:
        Go on with other packages where one fails.
    keep_build:
        Leave the work folders of finished packages, to look into them.
    """

    recipe: str
    output_dir: str
    target_platform: str
    build_platform: str
    variant_config: Sequence[str] = ()
    channels: Sequence[str] = ()
    test: str = "native"
    env: Mapping[str, str] = field(default_factory=dict)
    planned: Sequence[str] = ()
    leftovers: Sequence[str] = ()
    published: Sequence[str] = ()
    keep_going: bool = False
    keep_build: bool = False

    def write(self, path: Path) -> None:
        """Write the job file that the worker reads."""
        files.write(path, json.dumps(asdict(self), indent=1))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended.

    Parameters
    ----------
    ok:
        Whether everything was built and tested.
    kind:
        ``build``, ``test``, ``solve`` or ``other``; ``killed`` where the worker left no outcome; empty if all is well.
    message:
        The engine's own words.
    returncode:
        The worker process's exit code; negative for a signal.
    passed:
        Names of package files that are built and passed their tests.
    """

    ok: bool
    kind: str
    message: str
    returncode: int
    passed: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, returncode: int) -> Outcome:
        """Read an outcome file; a missing one means that the worker was killed."""
        try:
            data = json.loads(path.read_text())
        except FileNotFoundError:
            return cls(
                ok=False,
                kind="killed",
                message=f"the engine ended with code {returncode}",
                returncode=returncode,
            )
        return cls(
            ok=bool(data["ok"]),
            kind=str(data["kind"]),
            message=str(data["message"]),
            returncode=returncode,
            passed=tuple(str(name) for name in data["passed"]),
        )
