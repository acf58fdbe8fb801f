"""The output of `megabuild verify` and `verify-gpu`: tables of 80 columns, and JSON documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpu_tools.verify.check import LibraryVerdict, Verdict
from groundwork.errors import UnknownError, VerdictError
from groundwork.result import Result
from groundwork.text import Sign, table

_NAME_WIDTH = 27
_CODE_WIDTH = 22
_HEADS = ("library", "torch", "CUDA", "Python", "device code", "verdict")


def verdict_result(verdicts: Sequence[Verdict]) -> Result:
    """Return the command's result for several subjects; the worst verdict sets the exit code."""
    lines = [line for verdict in verdicts for line in ("", *_verdict_lines(verdict))]
    code = 0
    if not all(verdict.ok or verdict.unknown for verdict in verdicts):
        code = VerdictError.exit_code
    elif any(verdict.unknown for verdict in verdicts):
        code = UnknownError.exit_code
    document = {"subjects": [verdict.to_json() for verdict in verdicts]}
    return Result(format="verify", document=document, lines=lines[1:], exit_code=code)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Return a verdict's lines; torch libraries that are ok and have no device code are only counted."""
    shown = [
        library
        for library in verdict.libraries
        if not library.ok or library.archs or library.ptx or library.module != "torch"
    ]
    rows = []
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for library in shown:
        mark = f"{Sign.done} ok" if library.ok else "? unknown" if library.unknown else f"{Sign.failed} no"
        code = shorten_code(library.archs, library.ptx)
        cells = (_torch(library), library.cuda, library.python, code)
        rows.append((_shorten(library.path), *(cell or Sign.dash for cell in cells), mark))
        if library.reason:
            sign = Sign.warning if library.ok else mark[0]
            names = reasons.setdefault((sign, library.reason, library.remedy), [])
            names.append(library.path.rpartition("/")[2])
    yield from (verdict.subject, "")
    yield from table(_HEADS, rows) if rows else ()
    if count := len(verdict.libraries) - len(shown):
        yield f"{'and ' * bool(shown)}{count} of torch's libraries, without device code"
    for (sign, reason, remedy), names in reasons.items():
        yield from ("", f"{sign} {', '.join(names)}: {reason}")
        yield from [f"  {remedy}"] if remedy else ()
    if not verdict.libraries:
        yield f"{Sign.failed} no libraries: nothing to verify"
    for note in verdict.notes:
        yield from ("", f"{Sign.warning} {note}")


def gpu_result(report: dict[str, Any]) -> Result:
    """Return verify-gpu's result; without a GPU and without a fault, the exit code is that of UnknownError."""
    code = 0 if report["ok"] else VerdictError.exit_code
    if not report["present"] and not report["faults"]:
        code = UnknownError.exit_code
    return Result(
        format="verify-gpu", format_version=2, document=report, lines=[*gpu_lines(report)], exit_code=code
    )


def gpu_lines(report: dict[str, Any]) -> Iterator[str]:
    """Return the lines about versions, GPUs, libraries, operations and faults."""
    yield f"environment: {report['environment']}"
    yield f"driver: {'CUDA ' + report['driver_cuda'] if report['driver_cuda'] else 'none'}"
    yield f"torch: {report['torch'] or 'none'} (CUDA {report['torch_cuda'] or 'none'})"
    unused = f"GPU: {report['present']}, not usable by torch" if report["present"] else "GPU: none"
    yield from [f"GPU: {device['name']}, {device['arch']}" for device in report["devices"]] or [unused]
    if report["libraries"]:
        rows = [
            (_shorten(item["path"]), item["device"], shorten_code(item["archs"], item["ptx"]), item["runs"])
            for item in report["libraries"]
        ]
        yield from ("", *table(("library", "GPU", "device code", "runs"), rows))
    if report["operations"]:
        results = [
            (item["name"], f"{Sign.done} same as on the CPU" if item["ok"] else f"{Sign.failed} no")
            for item in report["operations"]
        ]
        yield from ("", *table(("operation on the GPU", "result"), results))
    wrong = [f"{item['name']}: {item['error']}" for item in report["operations"] if not item["ok"]]
    wrong += report["faults"]
    if not report["present"] and report["no_gpu"] not in wrong:
        wrong.append(f"no GPU tested: {report['no_gpu']}")
    for text in wrong:
        yield from ("", f"{Sign.failed} {text}")


def shorten_code(archs: Sequence[str], ptx: Sequence[str]) -> str:
    """Return device code in short: ``9.0 12.0 +PTX``, or ``7.5 to 12.0 (7) +PTX`` if that is too long."""
    numbers = [re.sub(r"^\w+_(\d+)(\d[af]?)$", r"\1.\2", name) for name in archs]
    tail = " +PTX" if ptx else ""
    text = " ".join(numbers)
    if len(text) > _CODE_WIDTH - len(tail):
        text = f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
    return f"{text}{tail}".strip()


def _torch(library: LibraryVerdict) -> str:
    version = (library.torch or "").partition("+")[0]
    if library.stable_abi:
        return f">={version}" if version else "stable ABI"
    return version


def _shorten(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 2]}.."
