"""Job file and outcome file: the messages between driver and worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import msgspec
from msgspec import structs

from groundwork import files
from groundwork.errors import IntegrityError


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of a run that its worker reads, under the names they have among the run's options."""

    keep_going: bool = False  #: after a failure, build the other packages


def worker_options(options: object) -> WorkerOptions:
    """Return the part of a run's options that its worker reads."""
    return msgspec.convert(options, WorkerOptions, from_attributes=True)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of rattler-build. Paths are as the worker sees them, inside its isolation."""

    recipe: str
    output_dir: str  #: must keep its path between runs that share a staging
    platform: str  #: of the packages
    build_platform: str  #: of the machine that compiles them
    variant_file: str = ""
    channels: Sequence[str] = ()  #: URLs in order of priority
    named: bool = False  #: the variant file lists the channels too; rattler-build refuses them twice
    test: bool = True  #: test the packages built now or left by an earlier run
    tests: Sequence[str] = ()  #: package files to test; nothing is built
    env: Mapping[str, str] = field(default_factory=dict)  #: the recipe chooses which ones scripts see
    planned: Sequence[str] = ()  #: file names of the packages to build
    options: WorkerOptions = WorkerOptions()


class OutcomeKind(str, Enum):
    """The failed part of a job."""

    OK = ""
    BUILD = "build"
    TEST = "test"
    SOLVE = "solve"
    OTHER = "other"
    KILLED = "killed"  #: the worker left no outcome


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended."""

    ok: bool
    kind: OutcomeKind
    message: str  #: rattler-build's own text
    returncode: int = 0  #: of the worker process; negative for a signal
    passed: tuple[str, ...] = ()  #: names of package files that are built and passed their tests

    @classmethod
    def read(cls, path: Path, returncode: int) -> Outcome:
        """Read an outcome file; if it is missing, the worker was killed.

        Raises IntegrityError: The content is invalid; builds can write to the file's folder too.
        """
        try:
            with files.open_regular(path) as file:
                outcome = structs.replace(_OUTCOMES.decode(file.read()), returncode=returncode)
        except FileNotFoundError:
            message = f"rattler-build exited with code {returncode}"
            return cls(ok=False, kind=OutcomeKind.KILLED, message=message, returncode=returncode)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise IntegrityError(
                f"{path.name}: invalid outcome of rattler-build: {error}",
                "run again; if it recurs, remove the build script's code that writes to $TMPDIR/outcome-*.json",
            ) from error
        if outcome.ok and returncode:  # it ended after its last word, or a build script wrote the file
            message = f"rattler-build exited with code {returncode}"
            return structs.replace(outcome, ok=False, kind=OutcomeKind.KILLED, message=message)
        return outcome


_OUTCOMES = msgspec.json.Decoder(Outcome)
