"""The output of `megabuild verify` and `verify-gpu`: tables of 80 columns, and JSON documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gpu_tools.verify.check import LibraryVerdict, Verdict
from gpu_tools.verify.subject import TORCH
from groundwork.errors import UnknownError, VerdictError
from groundwork.result import Result
from groundwork.text import Sign, table

_NAME_WIDTH = 27
_CODE_WIDTH = 22
_UNKNOWN = "?"
_HEADS = ("library", "torch", "CUDA", "Python", "device code", "verdict")


def verdict_result(verdicts: Sequence[Verdict]) -> Result:
    """Return the command's result for several subjects; the worst verdict sets the exit code."""
    lines: list[str] = []
    for verdict in verdicts:
        lines += ("", *_verdict_lines(verdict))
    code = 0
    if not all(verdict.ok or verdict.unknown for verdict in verdicts):
        code = VerdictError.exit_code
    elif any(verdict.unknown for verdict in verdicts):
        code = UnknownError.exit_code
    document = {"subjects": [verdict.to_json() for verdict in verdicts]}
    return Result(format="verify", document=document, lines=lines[1:], exit_code=code)


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Return a verdict's lines; torch libraries that are ok and have no device code are only counted."""
    shown = [library for library in verdict.libraries if not _is_plain_part(library)]
    yield verdict.subject
    yield ""
    if shown:
        yield from table(_HEADS, [_row(library) for library in shown])
    count = len(verdict.libraries) - len(shown)
    if count:
        line = f"{count} of torch's libraries, without device code"
        yield f"and {line}" if shown else line
    for remark, names in _group_remarks(shown).items():
        yield ""
        yield f"{remark.sign} {', '.join(names)}: {remark.reason}"
        if remark.remedy:
            yield f"  {remark.remedy}"
    if not verdict.libraries:
        yield f"{Sign.failed} no libraries: nothing to verify"
    for note in verdict.notes:
        yield ""
        yield f"{Sign.warning} {note}"


def _is_plain_part(library: LibraryVerdict) -> bool:
    """Return whether a library of torch is ok and has no device code."""
    return library.module == TORCH and library.ok and not library.archs and not library.ptx


def _row(library: LibraryVerdict) -> tuple[str, ...]:
    cells = (_torch(library), library.cuda, library.python, shorten_code(library.archs, library.ptx))
    if library.ok:
        mark = f"{Sign.done} ok"
    elif library.unknown:
        mark = f"{_UNKNOWN} unknown"
    else:
        mark = f"{Sign.failed} no"
    return (_shorten(library.path), *(cell or Sign.dash for cell in cells), mark)


class _Remark(NamedTuple):
    sign: str
    reason: str
    remedy: str


def _group_remarks(libraries: Iterable[LibraryVerdict]) -> dict[_Remark, list[str]]:
    """Return what is to say about libraries, with the file names of those it applies to."""
    names: dict[_Remark, list[str]] = {}
    for library in libraries:
        if not library.reason:
            continue
        sign = Sign.failed
        if library.ok:
            sign = Sign.warning
        elif library.unknown:
            sign = _UNKNOWN
        remark = _Remark(sign, library.reason, library.remedy)
        names.setdefault(remark, []).append(library.path.rpartition("/")[2])
    return names


def gpu_result(report: dict[str, Any]) -> Result:
    """Return verify-gpu's result; without a GPU and without a fault, the exit code is that of UnknownError."""
    code = 0
    if not report["present"] and not report["faults"]:
        code = UnknownError.exit_code
    elif not report["ok"]:
        code = VerdictError.exit_code
    lines = list(gpu_lines(report))
    return Result(format="verify-gpu", format_version=2, document=report, lines=lines, exit_code=code)


def gpu_lines(report: dict[str, Any]) -> Iterator[str]:
    """Return the lines about versions, GPUs, libraries, operations and faults."""
    driver = "none"
    if report["driver_cuda"]:
        driver = f"CUDA {report['driver_cuda']}"
    yield f"environment: {report['environment']}"
    yield f"driver: {driver}"
    yield f"torch: {report['torch'] or 'none'} (CUDA {report['torch_cuda'] or 'none'})"
    yield from _device_lines(report)
    if report["libraries"]:
        rows = []
        for item in report["libraries"]:
            code = shorten_code(item["archs"], item["ptx"])
            rows.append((_shorten(item["path"]), item["device"], code, item["runs"]))
        yield ""
        yield from table(("library", "GPU", "device code", "runs"), rows)
    if report["operations"]:
        yield ""
        yield from table(("operation on the GPU", "result"), list(map(_operation_row, report["operations"])))
    for text in _list_faults(report):
        yield ""
        yield f"{Sign.failed} {text}"


def _device_lines(report: dict[str, Any]) -> Iterator[str]:
    for device in report["devices"]:
        yield f"GPU: {device['name']}, {device['arch']}"
    if not report["devices"]:
        if report["present"]:
            yield f"GPU: {report['present']}, not usable by torch"
        else:
            yield "GPU: none"


def _operation_row(operation: dict[str, Any]) -> tuple[str, str]:
    if operation["ok"]:
        return operation["name"], f"{Sign.done} same as on the CPU"
    return operation["name"], f"{Sign.failed} no"


def _list_faults(report: dict[str, Any]) -> list[str]:
    faults = []
    for operation in report["operations"]:
        if not operation["ok"]:
            faults.append(f"{operation['name']}: {operation['error']}")
    faults += report["faults"]
    if not report["present"] and report["no_gpu"] not in faults:
        faults.append(f"no GPU tested: {report['no_gpu']}")
    return faults


def shorten_code(archs: Sequence[str], ptx: Sequence[str]) -> str:
    """Return device code in short: ``9.0 12.0 +PTX``, or ``7.5 to 12.0 (7) +PTX`` if that is too long."""
    numbers = [re.sub(r"^\w+_(\d+)(\d[af]?)$", r"\1.\2", name) for name in archs]
    tail = ""
    if ptx:
        tail = " +PTX"
    text = " ".join(numbers)
    if len(text) > _CODE_WIDTH - len(tail):
        text = f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
    return f"{text}{tail}".strip()


def _torch(library: LibraryVerdict) -> str:
    version = (library.torch or "").partition("+")[0]
    if not library.stable_abi:
        return version
    if not version:
        return "stable ABI"
    return f">={version}"


def _shorten(path: str) -> str:
    name = path.rpartition("/")[2]
    if len(name) <= _NAME_WIDTH:
        return name
    return f"{name[: _NAME_WIDTH - 2]}.."
