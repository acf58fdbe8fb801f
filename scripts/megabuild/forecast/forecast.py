"""How long a run will still take: follows its events, and learns from what it took so far."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from groundwork import events
from groundwork.run_state import TimeLeft
from megabuild.forecast.known import Known
from megabuild.forecast.outline import START, Outline, Stage, pieces, stages
from megabuild.forecast.pace import Pace
from megabuild.forecast.schedule import Stretch, length
from megabuild.forecast.share import Share
from megabuild.forecast.steps import Steps, is_unheard_of

#: A new figure is made so often at most; in between the last one is counted down.
_SECONDS = 1.0
#: More may be left than there seemed to be. A bar does not go back for less than this; for hours it would be wrong.
_SETBACK = 0.1
#: Calculating may take this share of the time.
_COST = 0.002
#: What is not known is taken to be wrong by this factor at most, when nothing is done yet: of figures shipped with
#: megabuild, and of those measured here.
_DOUBT_SHIPPED, _DOUBT_MEASURED = 0.6, 0.25
#: Of something that takes longer than expected, what has passed times this is still to come.
_OVERDUE = 0.15


class Forecast:
    """To be used from one thread; ``own_clock`` tells what calculating takes."""

    def __init__(
        self,
        outline: Outline,
        known: Known,
        *,
        clock: Callable[[], float] = time.monotonic,
        own_clock: Callable[[], float] = time.perf_counter,
        share: Share | None = None,
    ) -> None:
        self._outline = outline
        self._known = known
        self._clock, self._own_clock = clock, own_clock
        self.share = share
        self._began = self._since = clock()
        self._row = stages(outline, known) if outline.packages else [Stage(key=START)]
        self._script = "staging"
        total = sum(stage.work + stage.test for stage in self._row) + sum(outline.extensions.values())
        doubt = _DOUBT_MEASURED if known.measured else _DOUBT_SHIPPED
        self._doubt, self._done = doubt, 0.0
        self._compiling = Pace(total)
        # where nobody tells what others take of the machine, what compiles take says it of everything
        self._other = Pace(total) if share else self._compiling
        self.steps = Steps(
            known, outline.processors, self._compiling, cached=outline.cached, made=outline.made
        )
        #: by package: seconds of tests that will begin at any moment; since when others run, and their seconds
        self._untested: dict[str, float] = {}
        self._testing: dict[str, tuple[float, float]] = {}
        self._extensions = dict(outline.extensions)
        self._shown: tuple[float, TimeLeft] | None = None
        self._next, self._stale = 0.0, True
        self._ends: deque[tuple[float, float]] = deque()
        #: what was shown: seconds since the start, share done, seconds left (likely, earliest, latest), share of cores
        self.record: list[tuple[float, ...]] = []
        self.took: dict[str, list[float]] = {}  #: what was seen of phases and tests: seconds of one core
        self.finished: set[str] = set()  #: packages that were built, and ``staging``

    # --------------------------------------------------------------------------------------------- events

    def take(self, event: events.Event) -> None:
        """Take one event of the run."""
        self._sample()
        match event:
            case events.Progress():
                self._step(event)
            case events.Measured():
                self.steps.told(event.objects, self._clock() - time.time())
            case events.PhaseStarted():
                self._go_to(f"{self._script} {event.phase}")
            case events.PackageStarted():
                self.finished |= {self._script} if self._outline.staged else set()
                self._script = event.package.name
                self._go_to(f"{self._script} script")
            case events.PackageBuilt():
                self.finished.add(event.package.name)
                self._built(event.package.label)
            case events.TestRun():
                if event.name not in self._untested:
                    self._was_built(event.name)
                expected = self._untested.pop(event.name, 0.0)
                self._testing[event.name] = self._clock(), expected
            case events.TestEnded():
                self._tested(event)
            case events.InTask(event=events.Progress() as progress):
                self._extend(event.task, progress)
            case events.TaskEnded():
                self._done += self._extensions.pop(event.task, 0.0)
            case _:
                return
        self._stale = True

    def _go_to(self, key: str) -> None:
        """Another stage has begun; those before it are over."""
        if self._row and self._row[0].key == key and not self._row[0].label:
            return  # announced by the driver, and then by the engine
        self._close()
        place = next((number for number, stage in enumerate(self._row) if stage.key == key), None)
        labelled = [number for number, stage in enumerate(self._row) if stage.label]
        if place is None or (labelled and place > labelled[0]):
            self._row.insert(0, Stage(key=key))  # of which nothing is known
            return
        self._done += sum(stage.work for stage in self._row[:place])
        del self._row[:place]

    def _close(self) -> None:
        """The stage is over: note what it took."""
        now = self._clock()
        if self._row:
            stage = self._row.pop(0)
            if stage.label:  # what its end makes is not there yet
                self._row.insert(0, Stage(key=stage.key, label=stage.label, test=stage.test))
            if not self.steps.running:
                seconds = (now - self._since) * self._each
                self._other.add(seconds, stage.seconds)
                self.took.setdefault(stage.key, []).append(seconds)
            else:
                self.took[stage.key][-1] += (now - self.steps.at) * self._each
            self._done += stage.work
        self._since = now
        self.steps.end()

    def _built(self, label: str) -> None:
        """A package is there: whatever was left of its stages is over."""
        self._close()
        place = next((number for number, stage in enumerate(self._row) if stage.label == label), None)
        if place is not None:
            self._untested[label] = self._row[place].test
            self._done += sum(stage.work for stage in self._row[: place + 1])
            del self._row[: place + 1]

    def _was_built(self, label: str) -> None:
        """A former run has built a package that is now tested: its own stages do not come."""
        place = next((number for number, stage in enumerate(self._row) if stage.label == label), None)
        if place is None:
            return
        first = place
        while first and not self._row[first - 1].label and self._row[first - 1].script not in ("", "staging"):
            first -= 1
        self._untested[label] = self._row[place].test
        del self._row[first : place + 1]

    def _tested(self, event: events.TestEnded) -> None:
        seconds = event.seconds * self._each
        _, expected = self._testing.pop(event.name, (0.0, 0.0))
        if event.passed:
            self.took.setdefault(f"test {event.name.split()[0]}", []).append(seconds)
            self._other.add(seconds, expected)
        self._done += expected

    def _extend(self, task: str, progress: events.Progress) -> None:
        if task in self._extensions and progress.total:
            left = self._outline.extensions[task] * (1 - progress.done / progress.total)
            self._done += max(0.0, self._extensions[task] - left)
            self._extensions[task] = min(self._extensions[task], left)

    def _step(self, event: events.Progress) -> None:
        """One of ninja's steps has ended."""
        if not self._row:
            return
        stage, first = self._row[0], not self.steps.running
        done = self.steps.started(stage, event, self._clock(), self._since)
        if done is not None and first:
            seconds = max(0.0, self.steps.at - self._since) * self._each
            self.took.setdefault(stage.key, []).append(seconds)
            before = min(stage.seconds, seconds)
            stage.seconds -= before  # the rest comes after ninja
            self._done += before
        self._done += (done or 0.0) + self.steps.ended(stage, event, self._each)

    @property
    def unheard_of(self) -> tuple[str, dict[str, float]]:
        """The stage that ninja was in, and what the steps are taken to need that it left, and no run has known."""
        if not (self._row and self.steps.running):
            return "", {}
        left = self.steps.expected(self._row[0].steps)
        return self._row[0].key, {name: took for name, took in left.items() if is_unheard_of(name)}

    # ----------------------------------------------------------------------------------------- time left

    @property
    def _now(self) -> float:
        """The share of the cores that is this run's; all of it where nobody knows."""
        return self.share.now if self.share else 1.0

    @property
    def _each(self) -> float:
        """The share of a core that each has of what runs."""
        return self._now * min(1.0, self._outline.cores / self._wanted)

    @property
    def _wanted(self) -> int:
        building = max(len(self._row[:1]), len(self.steps.flying), 2 * len(self._extensions))
        return max(1, len(self._testing) + building)

    def _sample(self) -> None:
        if self.share is not None:
            self.share.sample(self._clock(), self._wanted)

    def left(self) -> TimeLeft | None:
        """Return how long it will still take; None where nothing is known of such runs."""
        self._sample()
        now = self._clock()
        if self._shown is None or (
            now >= self._next and (self._stale or now - self._shown[0] > 15 * _SECONDS)
        ):
            began = self._own_clock()
            found = self._calculated(now)
            if found is None:
                return None
            self._shown, self._stale = (now, found), False
            self._next = now + max(_SECONDS, (self._own_clock() - began) / _COST)
            self._note(now, found)
        when, found = self._shown
        passed = now - when
        return replace(
            found,
            likely=max(1.0, found.likely - passed),
            earliest=max(0.0, found.earliest - passed),
            latest=max(1.0, found.latest - passed),
        )

    def _calculated(self, now: float) -> TimeLeft | None:
        work = list(self._work(now))
        left = sum(sum(stretch.pieces) + sum(stretch.beside) for stretch in work)
        beside = [
            self._rest(since, expected * self._other.factor, now)
            for since, expected in self._testing.values()
        ]
        beside += [expected * self._other.factor for expected in self._untested.values()]
        left += sum(beside)
        if not left:
            return None
        idle = length(work, self._outline.processors, beside=beside)
        likely = idle / self._now
        before = self._shown[1].done if self._shown else 0.0
        done = self._done / (self._done + left)
        if done < before < done + _SETBACK:
            done = before
        self._ends.append((now, now + likely))
        while len(self._ends) > 3 and now - self._ends[0][0] > max(60.0, 0.2 * likely):
            self._ends.popleft()
        ends = [end for _, end in self._ends]
        doubt = self._doubt * (1 - done) + (statistics.pstdev(ends) / likely if likely else 0.0)
        return TimeLeft(
            likely=likely,
            earliest=likely / (1 + doubt),
            latest=likely * (1 + doubt),
            done=done,
            share=self.share.now if self.share and self.share.known else 0.0,
        )

    def _work(self, now: float) -> list[Stretch]:
        found: list[Stretch] = []
        for number, stage in enumerate(self._row):
            seconds = stage.seconds * self._other.factor
            flying = {} if number else self.steps.flying
            running = self.steps.running and not number
            if not number:
                since = self.steps.at if running and not stage.steps else self._since
                seconds = seconds if running and stage.steps else self._rest(since, seconds, now)
            steps = [
                self._rest(flying[name], took, now) if name in flying else took
                for name, took in self.steps.expected(stage.steps).items()
            ]
            parts = [Stretch(pieces=[seconds]), Stretch(pieces=steps)]
            found += reversed(parts) if running else parts
            found.append(Stretch(beside=[stage.test * self._other.factor]))
        left = [
            piece for took in self._extensions.values() for piece in pieces(took * self._compiling.factor)
        ]
        return [*found, Stretch(pieces=left)]

    def _rest(self, since: float, expected: float, now: float) -> float:
        """Return the seconds that are left of something that runs."""
        passed = (now - since) * self._each
        return max(expected - passed, _OVERDUE * passed if expected else 0.0)

    def _note(self, now: float, found: TimeLeft) -> None:
        """Keep what is shown, about a hundred times in a run."""
        passed = now - self._began
        if (
            not self.record
            or found.done - self.record[-1][1] >= 0.01
            or passed > 1.2 * self.record[-1][0] + 5
        ):
            self.record.append(
                (
                    round(passed, 1),
                    round(found.done, 3),
                    round(found.likely, 1),
                    round(found.earliest, 1),
                    round(found.latest, 1),
                    round(found.share, 2),
                )
            )
