"""Tells somebody that a run has ended, by a command of theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from groundwork import process
from groundwork.redact import Mask

_SECONDS = 60.0


def notify(
    command: str, document: Mapping[str, object], told: Mapping[str, str], environ: Mapping[str, str]
) -> str:
    """Run a user's command in a shell, with variables, and a document as JSON on its standard input, secrets masked.

    Returns why that failed, or nothing: it is no part of a build.
    """
    mask = Mask(environ)
    done = process.run(
        ["/bin/sh", "-c", command],
        timeout=_SECONDS,
        environ={**environ, **{name: mask(value) for name, value in told.items()}},
        stdin=mask(json.dumps(document)),
    )
    last = (f"{done.stdout}\n{done.stderr}".strip().splitlines() or ["it printed nothing"])[-1]
    return f"exit code {done.returncode}: {last}" if done.returncode else ""
