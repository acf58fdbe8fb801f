"""Copies of a run's new packages: the build adds them, tests and extensions use them, a failed test rejects one."""

from __future__ import annotations

import threading
from pathlib import Path

from groundwork import channel_folder, files
from megabuild.engine.supervisor import TESTS
from megabuild.run.attempt import BROKEN
from megabuild.run.graph import Inbox, PackageAvailable


class Shelf:
    """The packages that PyTorch's build has finished so far; all methods may be called from any thread."""

    def __init__(self, state: Path, inbox: Inbox) -> None:
        self.folder = state / TESTS / "built"  #: builds cannot write it
        self._inbox = inbox
        self._out = state / "out"
        self._broken = state / TESTS / BROKEN
        self._lock = threading.Lock()
        self._seconds: dict[Path, float] = {}  # by copy; only complete ones
        self._rejected: set[str] = set()

    def add(self, package: Path, seconds: float) -> None:
        """Copy a package and announce it to the graph; ``seconds``: duration of its build script."""
        copy = self.folder / package.parent.name / package.name
        files.copy(package, copy)
        with self._lock:
            self._seconds[copy] = seconds
        self._inbox.put(PackageAvailable(name=package.name))

    def copies(self) -> dict[Path, float]:
        """Return the complete copies, with the durations of their build scripts."""
        with self._lock:
            return dict(self._seconds)

    def reject(self, copy: Path) -> None:
        """Put a package aside that failed its test; :meth:`drop_rejected` has the next run rebuild it."""
        files.link(copy, self._broken / copy.parent.name / copy.name)  # not moved: other tests use it
        with self._lock:
            self._rejected.add(copy.name)

    def index_rejected(self, platform: str) -> None:
        """Make a channel of the rejected packages, from which users install one."""
        with self._lock:
            channel_folder.write_index(self._broken, platform)

    def drop_rejected(self) -> None:
        """Remove rejected packages from the build's folder, once no package being built may need them."""
        for path in channel_folder.package_files(self._out):
            if path.name in self._rejected:
                files.remove(path)
