"""What the last run of a config took on this machine: kept in the cache for the next plan and the time left."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from groundwork import files
from megabuild.plan.options import Options


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole run took; zeros where there was none."""

    seconds: float = 0.0
    passed: Mapping[str, float] = {}  #: seconds until each point of it (:mod:`megabuild.status.status`)
    pythons: int = 0  #: for how many it was


_LAST_RUNS = msgspec.json.Decoder(LastRun)


def read(options: Options) -> LastRun:
    """Return what is known."""
    with suppress(OSError, msgspec.MsgspecError):
        return _LAST_RUNS.decode((options.cache / "last-run" / f"{options.key}.json").read_bytes())
    return LastRun()


def keep(options: Options, run: LastRun) -> None:
    """Remember a run."""
    files.write(options.cache / "last-run" / f"{options.key}.json", msgspec.json.encode(run))
