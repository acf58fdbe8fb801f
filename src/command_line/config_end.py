"""The end of one of several configs that a command plans or builds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from command_line.run_command import Ending
from groundwork.errors import Interrupted
from groundwork.text import Sign, duration


@dataclass(frozen=True, kw_only=True)
class ConfigEnd:
    """The end of one of several configs."""

    name: str
    ending: Ending | None = None  #: None if it was not started
    seconds: float = 0.0
    log: Path | None = None

    @property
    def stops_others(self) -> bool:
        """Whether the configs after it are not started."""
        return self.ending is None or self.ending.exit_code == Interrupted.exit_code

    @property
    def result(self) -> str:
        """The result in words."""
        if self.ending is None:
            return "not started"
        if self.ending.exit_code:
            return f"{Sign.failed} exit code {self.ending.exit_code}"
        document = self.ending.document or {}
        if document.get("untested"):
            return f"{Sign.done} not tested"
        return Sign.done

    def document(self) -> dict[str, object]:
        """Return the entry for ``--json``."""
        if self.ending is None:
            return {"config": self.name, "exit_code": None, "log": None}
        entry: dict[str, object] = {"config": self.name, "exit_code": self.ending.exit_code, "log": None}
        if self.log:
            entry["log"] = str(self.log)
        if self.ending.document is not None:
            entry["result"] = self.ending.document
        return entry

    def row(self) -> tuple[str, str, str]:
        """Return the row of the closing table."""
        if self.ending is None:
            return self.name, "", self.result
        return self.name, duration(self.seconds), self.result
