"""The result of a command, which command_line.run_command prints as lines or as a JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a command that finished, successfully or not."""

    format: str = ""  #: name of the document: ``slim``; empty if the command has no ``--json``
    format_version: int = 1  #: increased when a key is removed or changes its meaning
    document: Mapping[str, object] = field(default_factory=dict)  #: printed with ``--json``
    lines: Sequence[str] = ()  #: printed without ``--json``; Unicode signs become ASCII on other streams
    exit_code: int = 0  #: see docs/json.md

    def to_json(self) -> dict[str, object]:
        """Return the document, with the name and version of its format first."""
        return {"format": f"megabuild/{self.format}", "format_version": self.format_version, **self.document}
