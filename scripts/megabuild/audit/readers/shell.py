"""Reader of shell scripts: follows a script with given arguments and looks at what it assigns and calls.

Nothing is executed: see `megabuild.audit.readers.script`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from megabuild.audit.readers.script import Script, Unreadable
from megabuild.audit.readers.state import Assigned, Call, State
from megabuild.audit.readers.value import NotFound, Source, Value, cut, filled


@dataclass(frozen=True, kw_only=True)
class Shell:
    """What a script does when it is started in a certain way; either ``variable`` or ``call`` is given.

    Parameters
    ----------
    arguments:
        Of the script; ``{cuda}`` and the like are replaced.
    variables:
        In its environment, by name; replaced likewise.
    outputs:
        What commands print whose output it uses, by command: ``uname -m``.
    variable:
        Its last value is the value.
    call:
        A command; the value comes from its last call that fits ``pattern``.
    argument:
        Which argument of the call, counted from 1; 0 for all of them, with blanks between.
    pattern:
        Its group ``value`` is the value, in place of the whole text.
    folder:
        Where the script is started, for the files that it prints with ``cat``; its own folder, if empty.
    """

    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    variable: str = ""
    call: str = ""
    argument: int = 0
    pattern: re.Pattern[str] | None = None
    folder: str = ""

    def __post_init__(self) -> None:
        if bool(self.variable) == bool(self.call):
            raise ValueError("the reader shell needs either 'variable' or 'call'")

    def read(self, source: Source) -> Sequence[Value]:
        """Return one value."""
        given = source.given
        here = self.folder or posixpath.dirname(source.path)
        try:
            state = Script(
                source.text,
                arguments=[filled(text, given) for text in self.arguments],
                variables={name: filled(text, given) for name, text in self.variables.items()},
                outputs={command: filled(text, given) for command, text in self.outputs.items()},
                printed=lambda path: source.other(posixpath.normpath(posixpath.join(here, path))),
            ).state
        except Unreadable as error:
            raise NotFound(f"cannot be followed ({error})") from error
        if state.status not in (None, "0"):
            raise NotFound(f"ends with status {state.status}")
        value = (
            self._assigned(state.variables.get(self.variable), here) if self.variable else self._called(state)
        )
        if value is None:
            raise NotFound(f"does not set {self.variable}" if self.variable else f"does not call {self.call}")
        return (value,)

    def _assigned(self, assigned: Assigned | None, here: str) -> Value | None:
        if assigned is None or not assigned.text:
            if assigned is not None and assigned.text is None:
                raise NotFound(
                    f"computes {self.variable} in a way that cannot be followed (line {assigned.line})"
                )
            return None
        found = cut(self.pattern, assigned.text.strip())
        if found is None:
            return None
        file = posixpath.normpath(posixpath.join(here, assigned.file)) if assigned.file else ""
        return Value(text=found[0], line=1 if file else assigned.line, groups=found[1], file=file)

    def _called(self, state: State) -> Value | None:
        for call in reversed(state.calls):
            if call.name != self.call or (text := self._argument(call)) is None:
                continue
            if found := cut(self.pattern, text):
                return Value(text=found[0], line=call.line, groups=found[1])
        return None

    def _argument(self, call: Call) -> str | None:
        if self.argument == 0:
            return " ".join(argument or "?" for argument in call.arguments)
        return call.arguments[self.argument - 1] if len(call.arguments) >= self.argument else None
