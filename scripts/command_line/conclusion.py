"""What every build ends with, whatever became of it: a manifest, a zip of logs, and a word to whoever wants it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from command_line.run_command import Invocation, as_told
from groundwork.errors import ConfigError, Interrupted, MegabuildError, UsageError
from groundwork.redact import Mask
from groundwork.result import Result
from groundwork.text import UNICODE, display, plain_lines
from megabuild.run.manifest import Left, leave
from megabuild.run.notify import notify


def concluded(
    action: Callable[[], Result],
    configs: Sequence[str],
    output: Path,
    invocation: Invocation,
    command: str | None,
) -> Result:
    """Run a build of some configs, and conclude it; the user's ``command`` is run in the end.

    Not where the command line was wrong: nothing has been built then.
    """
    began = time.time()
    try:
        result = action()
    except (UsageError, ConfigError, click.ClickException):
        raise
    except BaseException as error:
        left = _left(output, invocation, began, did=True)
        invocation.beside.update(_names(left))
        _say(_lines(left))
        code, message, document = as_told(error, invocation)
        _notify(command, code, configs, message.partition("\n")[0], document, left)
        raise
    left = _left(output, invocation, began, did=result.exit_code != 0 or _did(result.document))
    lines = [*result.lines, *_lines(left)]
    result = replace(result, document={**result.document, **_names(left)}, lines=lines)
    _notify(command, result.exit_code, configs, _in_a_line(result), result.to_json(), left)
    return result


def _left(output: Path, invocation: Invocation, began: float, *, did: bool) -> Left | None:
    """Write manifest and logs; a disk that is full, or not ours to write to, costs these and nothing else."""
    if not invocation.plans:
        return None  # nothing has begun
    try:
        return leave(output, invocation.plans, began, Mask(os.environ), logs=did)
    except (OSError, MegabuildError) as error:
        _say([f"{UNICODE.warning} no manifest and no zip of logs: {error}"])
        return None


def _did(document: Mapping[str, object]) -> bool:
    """Return whether anything was built: runs that find everything there leave no logs worth a zip."""
    found = [document]
    configs = document.get("configs")
    if isinstance(configs, list):
        found = [one["result"] for one in configs if isinstance(one.get("result"), dict)]
    rows = [row for one in found for row in _list(one.get("packages"))]
    return any(row.get("status") != "skipped" for row in rows)


def _list(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def _names(left: Left | None) -> dict[str, object]:
    manifest = str(left.manifest) if left else None
    return {"manifest": manifest, "log_archive": str(left.logs) if left and left.logs else None}


def _lines(left: Left | None) -> list[str]:
    if left is None:
        return []
    found = [f"artifacts and their hashes: {display(left.manifest)}"]
    return [*found, f"logs, records and plans: {display(left.logs)}"] if left.logs else found


def _in_a_line(result: Result) -> str:
    configs = result.document.get("configs")
    if not isinstance(configs, list):
        error = str(result.document.get("error") or "")
        return error.partition("\n")[0] or ("done" if result.exit_code == 0 else "not everything was built")
    well = sum(one["exit_code"] == 0 for one in configs)
    failed = (f"{one['config']}: {one['reason']}" for one in configs if one["exit_code"])
    return "; ".join([f"{well} of {len(configs)} configs done", *failed])


def _notify(
    command: str | None,
    code: int,
    configs: Sequence[str],
    summary: str,
    document: Mapping[str, object],
    left: Left | None,
) -> None:
    if not command:
        return
    status = {0: "done", Interrupted.exit_code: "interrupted"}.get(code, "failed")
    told = {
        "MEGABUILD_STATUS": status,
        "MEGABUILD_EXIT_CODE": str(code),
        "MEGABUILD_CONFIGS": " ".join(configs),
        "MEGABUILD_SUMMARY": plain_lines(summary),
        "MEGABUILD_MANIFEST": str(left.manifest) if left else "",
        "MEGABUILD_LOGS": str(left.logs) if left and left.logs else "",
    }
    if why := notify(command, document, told, os.environ):
        _say([f"{UNICODE.warning} --notify: {why}"])


def _say(lines: Sequence[str]) -> None:
    click.echo(plain_lines("\n".join(lines)), err=True)
