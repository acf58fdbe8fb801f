"""Job file and outcome file: the messages between driver and worker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of rattler-build. Paths are as the worker sees them, inside its isolation."""

    recipe: str
    output_dir: str  #: must keep its path between runs that share a staging
    target_platform: str
    build_platform: str
    variant_config: Sequence[str] = ()  #: variant files, later ones win
    channels: Sequence[str] = ()  #: URLs in order of priority
    named: bool = False  #: the variant files list the channels too; rattler-build refuses them twice
    test: bool = True  #: test the packages built now or left by an earlier run
    tests: Sequence[str] = ()  #: package files to test; nothing is built
    env: Mapping[str, str] = field(default_factory=dict)  #: the recipe chooses which ones scripts see
    planned: Sequence[str] = ()  #: file names of the packages to build
    keep_going: bool = False  #: after a failure, build the other packages

    def write(self, path: Path) -> None:
        """Write the job file."""
        files.write(path, json.dumps(asdict(self), indent=1))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a worker ended."""

    ok: bool
    #: failed part: ``build``, ``test``, ``solve`` or ``other``; ``killed`` if the worker left no outcome; empty if ok
    kind: str
    message: str  #: rattler-build's own text
    returncode: int  #: of the worker process; negative for a signal
    passed: tuple[str, ...] = ()  #: names of package files that are built and passed their tests

    @classmethod
    def read(cls, path: Path, returncode: int) -> Outcome:
        """Read an outcome file; if it is missing, the worker was killed.

        Raises IntegrityError: The content is invalid; builds can write to the file's folder too.
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
            message = f"rattler-build exited with code {returncode}"
            return cls(ok=False, kind="killed", message=message, returncode=returncode)
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                f"{path.name}: invalid outcome of rattler-build: {error}",
                "run again; if it recurs, remove the build script's code that writes to $TMPDIR/outcome-*.json",
            ) from error
