"""What PyTorch's part of earlier runs on this machine took: a better estimate of the next than anybody's table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from groundwork import files
from megabuild.plan.estimate import Estimate
from megabuild.plan.options import Options

_FILE = "estimates.json"
#: What is measured is the least that it takes: disk is looked at now and then, memory after the fact.
_MARGIN = 1.2


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a whole run took, from the start to the last of PyTorch's packages."""

    jobs: int  #: compile jobs at once
    pythons: int  #: number of Pythons
    #: seconds: of libtorch, of one Python's side, and of everything else (environments, tests, packing)
    staging: float
    python: float
    rest: float
    cores: float = 0.0  #: CPU seconds for every second, 0 where nobody knows (in a container)
    #: bytes of the largest process, 0 where nobody knows; of the state folder at its peak
    memory: int = 0
    disk: int = 0


def read(options: Options, report: Callable[[str], None]) -> Taken | None:
    """Return what the last complete run with the same options took; a damaged file is reported, and ignored."""
    try:
        return _all(options.cache).get(key(options))
    except msgspec.MsgspecError:
        report(f"! {options.cache / _FILE} is damaged: what earlier runs took is not known")
        return None


def keep(options: Options, taken: Taken) -> None:
    """Remember it for the next plan."""
    known: dict[str, Taken] = {}
    with suppress(msgspec.MsgspecError):  # has been reported by read()
        known = _all(options.cache)
    content = msgspec.json.encode({**known, key(options): taken})
    files.write(options.cache / _FILE, msgspec.json.format(content, indent=1).decode() + "\n")


def better(guess: Estimate, taken: Taken | None, *, staging: bool, pythons: int, jobs: int) -> Estimate:
    """Return an estimate that goes by what a run took.

    `staging`, `pythons`, `jobs`: what is still to be done, and with how many compile jobs at once.
    """
    if taken is None or not (staging or pythons):
        return guess
    seconds = (staging * taken.staging + pythons * taken.python) * taken.jobs / max(1, jobs) + taken.rest
    cores = taken.cores * jobs / taken.jobs
    largest = int(taken.memory * _MARGIN) or guess.memory_per_job
    return replace(
        guess,
        disk=int(taken.disk * _MARGIN) if taken.disk and pythons <= taken.pythons else guess.disk,
        memory_per_job=largest,
        # where no object is known to be heavy, any may be the largest
        memory_of_ordinary=guess.memory_of_ordinary if guess.memory_of_cuda else largest,
        hours=seconds / 3600,
        cpu_hours=seconds * cores / 3600 if cores else guess.cpu_hours,
        basis="the last run here",
    )


def _all(cache: Path) -> dict[str, Taken]:
    try:
        return msgspec.json.decode((cache / _FILE).read_bytes(), type=dict[str, Taken])
    except OSError:
        return {}


def key(options: Options) -> str:
    """Name what changes how long it takes; state folders of two checkouts share a cache."""
    how = [options.optimization, options.arch_list, str(options.torch_source or ""), options.engine]
    return f"{options.cache_name} {hashlib.sha256(json.dumps(how).encode()).hexdigest()[:8]}"
