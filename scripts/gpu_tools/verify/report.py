"""What `megabuild verify` and `verify-gpu` found, for people and as a document; tables fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_tools.verify.check import LibraryVerdict, Verdict
from gpu_tools.verify.gpu import GpuReport
from groundwork.errors import UnknownError, VerdictError
from groundwork.result import Result
from groundwork.text import UNICODE, table, wrapped

_NAME_WIDTH = 27
_CODE_WIDTH = 22


def verdict_result(verdicts: Sequence[Verdict]) -> Result:
    """Return verdicts about several subjects; the exit code is that of the worst."""
    lines = [line for verdict in verdicts for line in ("", *verdict_lines(verdict))]
    code = 0
    if not all(verdict.ok or verdict.unknown for verdict in verdicts):
        code = VerdictError.exit_code
    elif any(verdict.unknown for verdict in verdicts):
        code = UnknownError.exit_code
    document = {"subjects": [verdict.to_json() for verdict in verdicts]}
    return Result(format="verify", document=document, lines=lines[1:], exit_code=code)


def gpu_result(report: GpuReport) -> Result:
    """Return what was tried on the GPUs here, or why nothing was."""
    lines = gpu_lines(report)
    code = 0 if report.ok else VerdictError.exit_code
    if not report.present:
        code = UnknownError.exit_code
        lines += ["", *wrapped(f"{UNICODE.failed} no GPU was tried: {report.no_gpu}")]
    return Result(format="verify-gpu", document=report.to_json(), lines=lines, exit_code=code)


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return a verdict; libraries of torch's that are well and carry no device code are counted, not listed."""
    shown = [
        library
        for library in verdict.libraries
        if not library.ok or library.archs or library.ptx or library.module != "torch"
    ]
    rows = [
        (
            _short(library.path),
            _torch(library),
            library.cuda or UNICODE.dash,
            library.python or UNICODE.dash,
            code_in_short(library.archs, library.ptx) or UNICODE.dash,
            f"{UNICODE.done} ok"
            if library.ok
            else "? unknown"
            if library.unknown
            else f"{UNICODE.failed} no",
        )
        for library in shown
    ]
    lines = [verdict.subject, ""]
    lines += table(("library", "torch", "CUDA", "Python", "device code", "verdict"), rows) if rows else []
    if len(verdict.libraries) > len(shown):
        count = len(verdict.libraries) - len(shown)
        lines.append(f"{'and ' * bool(shown)}{count} of torch's libraries without device code")
    lines += _reasons(shown)
    if not verdict.libraries:
        lines.append(f"{UNICODE.failed} there is no library in it: nothing to verify")
    for note in verdict.notes:
        lines += ["", *wrapped(f"{UNICODE.warning} {note}")]
    return lines


def _reasons(libraries: Sequence[LibraryVerdict]) -> list[str]:
    """Give each reason once, with the libraries that it holds for."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for library in libraries:
        if library.reason:
            mark = UNICODE.warning if library.ok else "?" if library.unknown else UNICODE.failed
            groups.setdefault((mark, library.reason, library.remedy), []).append(
                library.path.rpartition("/")[2]
            )
    lines: list[str] = []
    for (mark, reason, remedy), names in groups.items():
        lines += ["", *wrapped(f"{mark} {', '.join(names)}: {reason}")]
        lines += wrapped(f"  {remedy}") if remedy else []
    return lines


def gpu_lines(report: GpuReport) -> list[str]:
    """Return versions, GPUs, how each library runs on them, operations, and what is wrong."""
    unknown_version = "of unknown version" if report.driver_cuda else "none"
    lines = [
        f"environment: {report.environment}",
        f"driver: {report.driver or unknown_version} (CUDA {report.driver_cuda or 'none'})",
        f"torch: {report.torch or 'none'} (CUDA {report.torch_cuda or 'none'})",
    ]
    unused = f"GPU: {report.present}, which torch cannot use" if report.present else "GPU: none"
    lines += [f"GPU: {device['name']}, {device['arch']}" for device in report.devices] or [unused]
    if report.libraries:
        rows = [
            (_short(entry.path), entry.device, code_in_short(entry.archs, entry.ptx), entry.runs)
            for entry in report.libraries
        ]
        lines += ["", *table(("library", "GPU", "device code", "runs"), rows)]
    if report.operations:
        tried = [
            (item["name"], f"{UNICODE.done} as on the CPU" if item["ok"] else f"{UNICODE.failed} no")
            for item in report.operations
        ]
        lines += ["", *table(("operation on the GPU", "result"), tried)]
        for item in report.operations:
            lines += [] if item["ok"] else wrapped(f"{UNICODE.failed} {item['name']}: {item['error']}")
    for fault in report.faults:
        lines += ["", *wrapped(f"{UNICODE.failed} {fault}")]
    return lines


def code_in_short(archs: Sequence[str], ptx: Sequence[str]) -> str:
    """Return device code in short: ``9.0 12.0 +PTX``, or ``7.5 to 12.0 (7) +PTX`` where that is too long."""
    numbers = [_dotted(name) for name in archs]
    tail = " +PTX" if ptx else ""
    text = " ".join(numbers)
    if len(text) > _CODE_WIDTH - len(tail):
        text = f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
    return f"{text}{tail}".strip()


def _torch(library: LibraryVerdict) -> str:
    version = (library.torch or "").partition("+")[0]
    if library.stable_abi:
        return f">={version}" if version else "stable ABI"
    return version or UNICODE.dash


def _dotted(name: str) -> str:
    digits = name.partition("_")[2]
    letter = digits[-1] if digits[-1].isalpha() else ""
    digits = digits.removesuffix(letter)
    return f"{digits[:-1]}.{digits[-1]}{letter}"


def _short(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 2]}.."
