"""What verify and verify-gpu show: one table per subject, and below it why something is not as it should be."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from megabuild.cli.text import Signs, table
from megabuild.verify.gpu import GpuReport
from megabuild.verify.verdict import LibraryVerdict, Verdict

_WIDTH = 80
_NAME_WIDTH = 27
_CODE_WIDTH = 22


def verdict_lines(verdict: Verdict, signs: Signs) -> list[str]:
    """Return a verdict for people; the table in it fits 80 columns.

    Libraries of torch's that are well and carry no device code are counted, not listed.
    """
    shown = [
        library
        for library in verdict.libraries
        if not library.ok or library.archs or library.ptx or library.module != "torch"
    ]
    rows = [
        (
            _short(library.path.rpartition("/")[2], _NAME_WIDTH),
            (library.torch or signs.dash).partition("+")[0],
            library.cuda or signs.dash,
            library.python or signs.dash,
            code(library.archs, library.ptx) or signs.dash,
            f"{signs.done} ok" if library.ok else f"{signs.failed} no",
        )
        for library in shown
    ]
    lines = [f"{verdict.subject}", ""]
    lines += table(("library", "torch", "CUDA", "Python", "device code", "verdict"), rows) if rows else []
    if len(verdict.libraries) > len(shown):
        lines.append(f"and {len(verdict.libraries) - len(shown)} libraries of torch without device code")
    lines += _reasons(shown, signs)
    if not verdict.libraries:
        lines.append(f"{signs.failed} there is no library in it: nothing to verify")
    return lines


def _reasons(libraries: Sequence[LibraryVerdict], signs: Signs) -> list[str]:
    """Give each reason once, with the libraries that it holds for."""
    groups: dict[tuple[bool, str, str], list[str]] = {}
    for library in libraries:
        if library.reason:
            groups.setdefault((library.ok, library.reason, library.remedy), []).append(
                library.path.rpartition("/")[2]
            )
    lines: list[str] = []
    for (ok, reason, remedy), names in groups.items():
        mark = signs.warning if ok else signs.failed
        lines += ["", *_wrapped(f"{mark} {', '.join(names)}: {reason}", "  ")]
        lines += _wrapped(f"  {remedy}", "  ") if remedy else []
    return lines


def gpu_lines(report: GpuReport, signs: Signs) -> list[str]:
    """Return what verify-gpu found, for people."""
    lines = [
        f"environment: {report.environment}",
        f"driver: {report.driver or 'none'} (CUDA {report.driver_cuda or 'none'})",
        f"torch: {report.torch or 'none'} (CUDA {report.torch_cuda or 'none'})",
    ]
    unused = f"GPU: {report.present}, which torch cannot use" if report.present else "GPU: none"
    lines += [f"GPU: {device.name}, {device.arch}" for device in report.devices] or [unused]
    if report.libraries:
        rows = [
            (_short(one.path.rpartition("/")[2], _NAME_WIDTH), one.device, code(one.archs, one.ptx), one.runs)
            for one in report.libraries
        ]
        lines += ["", *table(("library", "GPU", "device code", "runs"), rows)]
    if report.operations:
        rows4 = [
            (one.name, f"{signs.done} as on the CPU" if one.ok else f"{signs.failed} no")
            for one in report.operations
        ]
        lines += ["", *table(("operation on the GPU", "result"), rows4)]
        for one in report.operations:
            lines += _wrapped(f"{signs.failed} {one.name}: {one.error}", "  ") if not one.ok else []
    for fault in report.faults:
        lines += ["", *_wrapped(f"{signs.failed} {fault}", "  ")]
    return lines


def code(archs: Sequence[str], ptx: Sequence[str]) -> str:
    """Return device code in short: ``9.0 12.0 +PTX``, or ``7.5 to 12.0 (7) +PTX`` where that is too long."""
    numbers = [_dotted(name) for name in archs]
    tail = " +PTX" if ptx else ""
    text = " ".join(numbers)
    if len(text) > _CODE_WIDTH - len(tail):
        text = f"{numbers[0]} to {numbers[-1]} ({len(numbers)})"
    return f"{text}{tail}".strip()


def _dotted(name: str) -> str:
    digits = name.partition("_")[2]
    letter = digits[-1] if digits[-1].isalpha() else ""
    digits = digits.removesuffix(letter)
    return f"{digits[:-1]}.{digits[-1]}{letter}"


def _short(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 2]}.."


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
