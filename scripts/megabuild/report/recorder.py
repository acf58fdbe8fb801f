"""Takes the events of a run, and keeps what its page will show."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from groundwork import events
from groundwork.redact import Mask
from groundwork.run_state import RunState
from groundwork.wording import plain
from megabuild.engine.ninja_log import NAME, NinjaLog, logs_below
from megabuild.report.timeline import Began, Ended, Entry, Head, Note, Ran, Sample, Writer

#: PyTorch's own build, whose events come without a task's name.
PYTORCH = "pytorch"
#: Begins the lanes of what is prepared before anything is built.
PREPARATION = "prepare "
#: A sample comes every two seconds at first, later whenever the run has grown by this share: some 1,600 in four hours.
_SECONDS, _SHARE = 2.0, 1 / 400
#: So deep below a folder ninja's logs are looked for when all is over, and in the folders of extensions.
_DEEP = 6
#: While one thing goes on ninja's log is read so often: a real one has a megabyte.
_LOG_SECONDS = 60.0


class Recorder:
    """Notes what goes on in one run, and when; what builds write is masked and bounded."""

    def __init__(
        self, state: Path, head: Head, path: Path, mask: Mask, clock: Callable[[], float] = time.time
    ) -> None:
        self._writer = Writer(path)
        self._mask = mask
        self._clock = clock
        self._state = state
        self._began = head.began
        self._next = self._began
        self._times: tuple[float, float] = (self._began, _busy())
        self._looked = self._began
        self._logs: dict[Path, NinjaLog] = {}
        self._lanes: dict[Path, str] = {}
        self._writer.write([head])

    def take(self, event: events.Event) -> None:
        """Take one event."""
        if isinstance(event, events.Stands):
            self._sample(event.state)
            return
        entries = self._entries(event)
        if entries:
            self._writer.write([*self._steps(), *entries])

    def end(self) -> None:
        """Read everything that ninja has noted, wherever it lies."""
        for path in logs_below(self._state / "tree", depth=_DEEP):
            self._log(path, PYTORCH)
        self._writer.write([*self._steps(), Note(at=self._clock(), text="")])

    def _entries(self, event: events.Event) -> list[Entry]:
        lane, now = PYTORCH, self._clock()
        if isinstance(event, events.InTask):
            lane, event = event.task, event.event
            if isinstance(event, (events.PhaseStarted, events.PackageBuilt)):
                self._look_for_logs_of(lane)
        sentence = event.sentence()
        match event:
            case events.PhaseStarted():
                return [Began(at=now, lane=lane, what=self._text(event.step))]
            case events.TestRun():
                lane = f"test {event.name}" if lane == PYTORCH else lane
                return [Began(at=now, lane=lane, what=self._text(f"testing {event.name}"), kind="test")]
            case events.PackageStarted():
                what = f"{event.package.name} {event.python}".rstrip()
                return [Began(at=now, lane=lane, what=self._text(f"{what}: script"))]
            case events.TaskStarted():
                return [Began(at=now, lane=event.task, what=self._text(f"{event.task}: environment"))]
            case events.TestEnded():
                return [Ended(at=now, lane=f"test {event.name}", failed=not event.passed)]
            case events.TaskEnded():
                return [Ended(at=now, lane=event.task, failed=event.status == "failed")]
            case events.Preparing():
                lane = f"{PREPARATION}{event.what}"
                if event.done and not event.over:
                    return []
                return [
                    Ended(at=now, lane=lane)
                    if event.over
                    else Began(at=now, lane=lane, what=self._text(event.what))
                ]
            case events.Idle():
                return [Ended(at=now, lane=event.task)]
            case events.PackageBuilt():
                return [Ended(at=now, lane=lane), Note(at=now, text=self._text(sentence or ""))]
            case events.LogLine() | events.Progress() | events.RunStarted():
                return []
            case _:
                return [Note(at=now, text=self._text(sentence))] if sentence else []

    def _text(self, text: str) -> str:
        return plain(self._mask(text))[:300]

    def _sample(self, state: RunState) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + max(_SECONDS, (now - self._began) * _SHARE)
        (before, busy), self._times = self._times, (now, _busy())
        passed = now - before
        sample = Sample(
            at=now,
            busy=round((self._times[1] - busy) / passed, 2) if passed > 0 else 0.0,
            ours=round(state.left.share * state.cores, 2) if state.left else 0.0,
            memory=state.memory,
            disk=state.disk,
            disk_free=state.disk_free,
        )
        self._writer.write([*(self._steps() if now - self._looked >= _LOG_SECONDS else ()), sample])

    def _steps(self) -> list[Ran]:
        """Return what ninja has noted since the last time, as far as it ran in this run."""
        self._looked = self._clock()
        with contextlib.suppress(OSError):  # the tree is being replaced: the next look comes
            for path in (self._state / "tree").glob(f"*/{NAME}"):
                self._log(path, PYTORCH)
        found = []
        for path, log in self._logs.items():
            found += [
                Ran(
                    at=round(step.began, 3),
                    seconds=round(step.seconds, 3),
                    output=self._text(_short(step.output)),
                    outputs=step.outputs,
                    lane=self._lanes[path],
                )
                for step in log.new()
                if step.began + step.seconds >= self._began
            ]
        return found

    def _look_for_logs_of(self, task: str) -> None:
        """Find the logs of an extension, whose folders are removed once it is built."""
        for work in self._state.glob(f"*/{task}/out/bld/*/work"):
            for path in logs_below(work, depth=_DEEP):
                self._log(path, task)

    def _log(self, path: Path, lane: str) -> None:
        if path not in self._logs:
            self._logs[path] = NinjaLog(path, self._state)
            self._lanes[path] = lane


def _short(output: str) -> str:
    """Return an output's path below the engine's work folder, where it is in one: extensions name it as a whole."""
    return output.rpartition("/work/")[2] if output.startswith("/") else output


def _busy() -> float:
    """Return the seconds that the machine's cores have worked since it was started, for whomever."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)
