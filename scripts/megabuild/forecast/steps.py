"""Ninja's steps: which are left, which run, and at which pace they go."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Iterable, Mapping

from groundwork import events
from groundwork.run_state import InFlight
from megabuild.forecast.known import Known
from megabuild.forecast.outline import HIT_SECONDS, Stage, is_object, steps_of
from megabuild.forecast.pace import Hits, Pace

#: Begins the name that is given to a step of which no run has known anything.
_UNHEARD_OF = "?"


class Steps:
    """Follows one ninja after the other."""

    def __init__(
        self, known: Known, processors: int, pace: Pace, *, cached: bool, made: Collection[str] = ()
    ) -> None:
        self._known = known
        self._made = made
        self._processors = processors
        self._pace = pace
        self._hits = Hits(likely=cached)
        self._ninja: float | None = None  # when it was started
        self._total = 0  # of its steps
        self._all: dict[str, float] = {}  # those that were expected of it, and have not ended
        self._told = False  # somebody says what compilers are at
        self._began: dict[str, float] = {}
        self.at = 0.0  #: when the last step ended
        self.flying: dict[str, float] = {}  #: steps that run, or are likely to: since when
        #: seconds of the last steps of which no run has known anything: what is left of such is taken to be alike
        self._unheard_of: deque[float] = deque(maxlen=100)
        #: what was seen, by phase: when steps ended in seconds since ninja's start, and what they took
        self.ran: dict[str, dict[str, tuple[float, float]]] = {}
        self.whole: set[str] = set()  #: phases of which ninja did everything that is known

    @property
    def running(self) -> bool:
        """Whether ninja was started in this phase."""
        return self._ninja is not None

    def end(self) -> None:
        """The phase is over."""
        self._ninja = None
        self.flying.clear()
        self._began.clear()

    def told(self, objects: Iterable[InFlight], offset: float) -> None:
        """Take what compilers are at, from where that is known; ``offset`` is from its clock to ours."""
        now = {one.name: one.since + offset for one in objects}
        self._told = self._told or bool(now)
        self.flying = now if self._told else self.flying
        self._began |= now  # an object may be said to have ended before ninja says so

    def started(self, stage: Stage, event: events.Progress, now: float, earliest: float) -> float | None:
        """Return the seconds of steps that need not be done, if ninja was started or counts anew since the last step.

        It does the latter once it has brought its own graph up to date, with PyTorch's code generators in it.
        """
        begins = self._ninja is None or self._ninja + event.seconds < self.at
        if not begins and event.total == self._total:
            return None
        if begins:
            self._ninja = self.at = max(earliest, now - event.seconds)
            self._all = dict(stage.steps)
        known, left = steps_of(stage.key, self._known), event.total - event.done + 1
        if not is_object(event.step_name) and left < len(self._all) / 2:
            return 0.0  # that may be its own graph; an object will tell
        self._total = event.total
        made = self._made if stage.script == "staging" else ()
        if not made and left >= len(known):
            self.whole.add(stage.key)
        before = sum(stage.steps.values())
        # those that a run before this one has done came first
        stage.steps = dict(list(self._all.items())[max(0, len(self._all) - left) :])
        done = before - sum(stage.steps.values())
        if not stage.steps:
            # a Python whose objects were thought to be there, or a phase that was not expected
            unmade = {name: took for name, took in known.items() if name not in made}
            stage.steps = dict(list(unmade.items())[max(0, len(unmade) - left) :])
        if left > len(stage.steps) + 2:
            self._add(stage, left - len(stage.steps))
        self._fly(stage)
        return done

    def _add(self, stage: Stage, more: int) -> None:
        """Add steps of which nothing is known; those that are shipped are then as much work in other pieces."""
        before, shipped = sum(stage.steps.values()), bool(stage.steps) and not self._known.measured
        known = [took for took in self._known.steps.values() if took > HIT_SECONDS]
        usual = statistics.fmean(known) if known else HIT_SECONDS
        mark = "" if shipped else _UNHEARD_OF
        stage.steps |= {f"{mark}#{number}.o": usual for number in range(more)}
        if shipped:
            scale = before / sum(stage.steps.values())
            stage.steps = {name: scale * took for name, took in stage.steps.items()}

    def ended(self, stage: Stage, event: events.Progress, each: float) -> float:
        """Take a step that has ended, ``each`` being what it had of a core; return the seconds that were expected."""
        now, name = (self._ninja or 0.0) + event.seconds, event.step_name
        noted = name in self._began
        since = self._began.pop(name, self.flying.get(name))
        if since is not None:
            self.flying.pop(name, None)
        elif self.flying and not self._told:
            # another one was taken to run: the longest, so that the time of all comes out right
            since = self.flying.pop(next(iter(self.flying)))
        took = max(0.0, now - (self.at if since is None else since)) * each
        key = _key(stage.steps, name, spare=event.total - event.done < len(stage.steps))
        usual = stage.steps.pop(key, None)
        self._all.pop(key, None)
        # what a compiler has begun did not come out of the cache, however quick it was
        least = usual * self._pace.factor if usual and noted else took
        if usual and is_unheard_of(key):
            self._unheard_of.append(took)
            usual = took
        elif usual:
            usual_now = usual * self._pace.factor
            if not (is_object(name) and self._hits.was_one(max(took, least), usual_now)):
                self._pace.add(took, usual)
        self.ran.setdefault(stage.key, {})[name] = event.seconds, took
        self.at = now
        self._fly(stage)
        return usual or 0.0

    def expected(self, steps: Mapping[str, float]) -> dict[str, float]:
        """Return the seconds of one core that steps will take, those that run first."""
        order = [
            *(name for name in self.flying if name in steps),
            *(name for name in steps if name not in self.flying),
        ]
        return {name: self._usual(name, steps[name]) for name in order}

    def _usual(self, name: str, took: float) -> float:
        if self._unheard_of and is_unheard_of(name):
            return statistics.fmean(self._unheard_of)
        usual = took * self._pace.factor
        return self._hits.expected(usual) if is_object(name) and name not in self._began else usual

    def _fly(self, stage: Stage) -> None:
        """Take those steps to run that come first, where nobody says which do."""
        for name in stage.steps if not self._told else ():
            if len(self.flying) >= self._processors:
                return
            self.flying.setdefault(name, self.at)


def _key(steps: Mapping[str, float], name: str, *, spare: bool) -> str:
    """Return the name by which a step is expected; where it is not, and there are ``spare`` ones, that of another.

    Those that are shipped with megabuild are known by their folders.
    """
    if name in steps or not steps or not spare:
        return name
    alike = [one for one in steps if is_object(one) == is_object(name)]
    beside = [one for one in alike if "#" in one and name.startswith(_folder(one))]
    return max(beside, key=lambda one: len(_folder(one)), default=next(iter(alike), name))


def _folder(expected: str) -> str:
    return expected.partition("#")[0].removeprefix(_UNHEARD_OF)


def is_unheard_of(name: str) -> bool:
    """Return whether a step stands for one of which no run has known anything: its guess says nothing of the pace."""
    return name.startswith(_UNHEARD_OF)
