"""One zip file of the logs that a command's runs have written."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError

#: In a config's state folder: its own logs, and those of its extensions.
_LOGS = ("logs/*.log", "pyg/*/logs/*.log")
#: In an output folder.
_FOLDER = "logs"
#: In an output folder: the program's crash files.
_CRASHES = "logs/crash-*.txt"


class LogArchive:
    """The logs that runs write after this object was made; ``states`` are the runs' folders below ``output``.

    Logs have their secrets masked already.
    """

    def __init__(self, output: Path, states: Iterable[Path]) -> None:
        self._output = output
        self._states = list(states)
        self._before = frozenset(self._logs())

    def write(self, results: Sequence[str]) -> Path | None:
        """Write the new logs and ``results.txt`` to ``output/logs/logs-TIME.zip``; None if there is no new log.

        The file appears complete, by rename. Links are left out: a build may have made them.

        Raises OSError: The disk is full, or the folder cannot be written.
        """
        logs = [path for path in self._logs() if path not in self._before]
        if not logs:
            return None
        folder = self._output / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        target = folder / f"logs-{stamp}.zip"
        scratch = folder / f".logs-{stamp}-{os.getpid()}"
        try:
            with zipfile.ZipFile(
                scratch, "x", compression=zipfile.ZIP_DEFLATED, strict_timestamps=False
            ) as archive:
                archive.writestr("results.txt", "\n".join([*results, ""]))
                for path in logs:
                    with suppress(IntegrityError):  # replaced by a link since it was listed
                        self._add(archive, path)
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
        return target

    def _add(self, archive: zipfile.ZipFile, path: Path) -> None:
        name = str(path.relative_to(self._output))
        with files.open_regular(path, below=self._output) as log, archive.open(name, "w") as entry:
            shutil.copyfileobj(log, entry)

    def _logs(self) -> list[Path]:
        found = list(self._output.glob(_CRASHES))
        for state in self._states:
            for pattern in _LOGS:
                found += state.glob(pattern)
        return sorted(path for path in found if path.is_file() and not path.is_symlink())
