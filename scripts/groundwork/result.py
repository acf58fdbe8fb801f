"""What a command returns: one place prints it, as a document for scripts or as lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a command that came to its end, well or not."""

    format: str = ""  #: Names the document: ``slim``; empty where a command has no ``--json``.
    format_version: int = 1  #: Counted up when a key changes its meaning or goes.
    document: Mapping[str, object] = field(default_factory=dict)  #: What ``--json`` prints.
    lines: Sequence[str] = ()  #: What people read, with Unicode signs; standard output may get others.
    exit_code: int = 0  #: See docs/json.md.

    def to_json(self) -> dict[str, object]:
        """Return the document with the name and version of its format in front."""
        return {
            "format": f"megabuild/{self.format}",
            "format_version": self.format_version,
            **self.document,
        }
