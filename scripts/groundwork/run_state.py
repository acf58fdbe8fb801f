"""Where a run stands: what ``state.json`` keeps, a terminal shows, and `megabuild status` reads from anywhere.

Points in time are seconds since 1970, so that they mean the same to another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """An object that is being compiled."""

    name: str  #: its path below the folder of the build
    since: float


@dataclass(frozen=True, kw_only=True)
class Going:
    """One thing that goes on: a phase of a build, or the test of a package."""

    task: str  #: as events name it; PyTorch's own build is ``pytorch``
    what: str  #: ``libtorch: compile``, ``testing pytorch 2.13.0 py3.12``
    since: float
    #: ninja's steps, or what else is counted; 0 of 0 where nothing is
    done: int = 0
    total: int = 0
    unit: str = ""  #: of these: ``bytes``, ``packages``; nothing for steps
    objects: tuple[InFlight, ...] = ()  #: the oldest first


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """How long a run will still take, in seconds from the moment of ``RunState.updated``."""

    likely: float
    earliest: float
    latest: float
    done: float  #: share of the expected work that is done, 0 to 1
    share: float = 0.0  #: of the machine's cores that this run gets, 0 to 1; 0 while nobody knows


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Where a run stands."""

    config: str  #: the run's name
    #: ``preparing``, ``checking``, ``building``, ``paused``; then ``done``, ``failed`` or ``interrupted``
    status: str
    began: float
    updated: float
    log: str = ""
    going: tuple[Going, ...] = ()  #: in the order in which they began
    #: by label, such as ``pytorch 2.13.0 py3.12``: ``waiting``, ``there`` (before the run began), ``built`` (its test
    #: comes), ``testing``, ``tested`` (what it needs is not published yet), ``published`` or ``failed``
    packages: Mapping[str, str] = field(default_factory=dict)
    left: TimeLeft | None = None
    jobs: int = 0  #: compile jobs at once
    cores: int = 0  #: that this run may use
    #: bytes: taken by everything that this run started, and most that it may take; 0 where nobody knows
    memory: int = 0
    memory_most: int = 0
    #: bytes: taken by the state folder, and free on its file system
    disk: int = 0
    disk_free: int = 0
    #: compiles that the object cache answered, and those that it did not
    cache_hits: int = 0
    cache_misses: int = 0
    #: the driver: its process, when that began (as :func:`groundwork.resources.processes.began` says), on which
    #: machine since which start of it
    pid: int = 0
    process_began: float = 0.0
    host: str = ""
    boot: str = ""
    note: str = ""  #: why it is paused, what it waits for
    error: str = ""  #: what ended it
    exit_code: int | None = None  #: None while it runs

    @property
    def ended(self) -> bool:
        """Whether the run came to an end of its own, and was not killed."""
        return self.status in ("done", "failed", "interrupted")
