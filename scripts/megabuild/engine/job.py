"""The messages between driver and worker: job file and outcome file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of the engine. Paths are as the worker sees them, inside its isolation."""

    recipe: str
    output_dir: str  #: must keep its path between runs that share a staging
    target_platform: str
    build_platform: str
    variant_config: Sequence[str] = ()  #: variant files, later ones win
    channels: Sequence[str] = ()  #: URLs in order of priority
    named: bool = (
        False  #: the variant files name these channels as well, and the engine refuses to be told twice
    )
    test: bool = True  #: test what was built, or is left over from a former run
    tests: Sequence[str] = ()  #: package files to be tested; nothing is built then
    env: Mapping[str, str] = field(default_factory=dict)  #: scripts see those that the recipe passes on
    planned: Sequence[str] = ()  #: names of the package files that the job is about
    keep_going: bool = False  #: build other packages where one fails

    def write(self, path: Path) -> None:
        """Write the job file that the worker reads."""
        files.write(path, json.dumps(asdict(self), indent=1))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended."""

    ok: bool
    #: ``build``, ``test``, ``solve`` or ``other``; ``killed`` where the worker left no outcome; empty if all is well
    kind: str
    message: str  #: in the engine's own words
    returncode: int  #: of the worker process; negative for a signal
    passed: tuple[str, ...] = ()  #: names of package files that are built and passed their tests

    @classmethod
    def read(cls, path: Path, returncode: int) -> Outcome:
        """Read an outcome file; a missing one means that the worker was killed.

        Raises IntegrityError: It is not what a worker writes: it lies where builds write as well.
        """
        try:
            with files.open_regular(path) as file:
                data = json.load(file)
            return cls(
                ok=bool(data["ok"]),
                kind=str(data["kind"]),
                message=str(data["message"]),
                returncode=returncode,
                passed=tuple(str(name) for name in data["passed"]),
            )
        except FileNotFoundError:
            message = f"the engine ended with code {returncode}"
            return cls(ok=False, kind="killed", message=message, returncode=returncode)
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                f"the engine's outcome {path.name} cannot be read: {error}",
                "run again; if it stays so, a build script writes into its TMPDIR's outcome file",
            ) from error
