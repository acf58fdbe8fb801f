"""Records the history of the run of this process: every phase, and the use of CPU and memory every few seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from groundwork.machine import Machine, tree_cpu
from megabuild.status import history as history_file
from megabuild.status.history import History, Sample, Span

#: Seconds between two samples of a short run. They double whenever the samples reach their limit.
_SECONDS = 2.0
_MOST_SAMPLES = 1000
_MOST_SPANS = 2000
_LONGEST_TEXT = 200


class HistoryRecorder:
    """Collects a run's history and writes it to the run's folder; its caller holds the lock of the status."""

    def __init__(self, folder: Path, began: float, machine: Machine) -> None:
        self._folder = folder
        self._history = History(began=began, cores=machine.cores, memory=machine.memory)
        self._interval = _SECONDS
        self._last = time.monotonic()
        self._cpu = tree_cpu(os.getpid())
        self._busy = _busy_seconds()
        self._memory = 0

    def add_phase(self, task: str, what: str, began: float) -> None:
        """Add a phase that ends now."""
        history = self._history
        if len(history.spans) == _MOST_SPANS:
            history.spans_left_out += 1
            return
        span = Span(task=task[:_LONGEST_TEXT], what=what[:_LONGEST_TEXT], began=began, ended=time.time())
        history.spans.append(span)

    def tick(self, memory: int) -> None:
        """Note the bytes that the run's processes use now; if it is time, take a sample and write the history."""
        self._memory = max(self._memory, memory)
        if time.monotonic() - self._last >= self._interval:
            self._take_sample()
            self.write()

    def write(self) -> None:
        history_file.write(self._folder, self._history)

    def _take_sample(self) -> None:
        now = time.monotonic()
        seconds = now - self._last
        # a process that ends while the tree is read may be missing once
        cpu = max(self._cpu, tree_cpu(os.getpid()))
        busy = _busy_seconds()
        cores = (cpu - self._cpu) / seconds
        others = 0.0
        if (
            self._history.cores == os.cpu_count()
        ):  # else other programs may run on cores that the run cannot use
            others = max(0.0, (busy - self._busy) / seconds - cores)
        sample = Sample(
            at=time.time(),
            seconds=round(seconds, 2),
            cores=round(cores, 2),
            other_cores=round(others, 2),
            memory=self._memory,
        )
        self._history.samples.append(sample)
        self._last = now
        self._cpu = cpu
        self._busy = busy
        self._memory = 0
        if len(self._history.samples) >= _MOST_SAMPLES:
            self._history.samples = halve(self._history.samples)
            self._interval *= 2


def halve(samples: Sequence[Sample]) -> list[Sample]:
    """Return half as many samples: each of two, with their averages and the larger memory; an odd last one stays."""
    merged: list[Sample] = []
    for first, second in zip(samples[::2], samples[1::2], strict=False):
        seconds = first.seconds + second.seconds
        cores = (first.cores * first.seconds + second.cores * second.seconds) / seconds
        others = (first.other_cores * first.seconds + second.other_cores * second.seconds) / seconds
        sample = Sample(
            at=second.at,
            seconds=round(seconds, 2),
            cores=round(cores, 2),
            other_cores=round(others, 2),
            memory=max(first.memory, second.memory),
        )
        merged.append(sample)
    if len(samples) % 2:
        merged.append(samples[-1])
    return merged


def _busy_seconds() -> float:
    """Return the CPU seconds that all programs of the machine have used."""
    times = psutil.cpu_times()
    # the kernel counts guests' time in user's and nice's, too
    return float(
        times.user + times.nice + times.system + getattr(times, "irq", 0) + getattr(times, "softirq", 0)
    )
