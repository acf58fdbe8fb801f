"""Keeps ninja's log and the launcher's notes of a config whose tree is removed."""

from __future__ import annotations

import contextlib
from pathlib import Path

from groundwork import files
from megabuild.engine.compile_notes import NOTES
from megabuild.timeline.ninja_log import LOG

#: In a config's state folder, in place of that folder.
FOLDER = "steps"


def keep_steps(state: Path) -> None:
    """Copy the files that a tree's removal would delete; on a full disk they are lost."""
    for name in (LOG, NOTES):
        content = files.read_untrusted(state / name, below=state)
        if content is not None:
            with contextlib.suppress(OSError):
                files.write(state / FOLDER / name, content)


def steps_folder(state: Path) -> Path:
    """Return the folder that has the files: the state folder, or the copies if the tree was removed."""
    if (state / LOG).exists() or not (state / FOLDER).is_dir():
        return state
    return state / FOLDER
