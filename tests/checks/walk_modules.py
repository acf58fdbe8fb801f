"""Counts how a command walks through the product's modules: `walk_modules.py CHECKOUT ARGUMENT...`.

The arguments are those of build-locally.py, best with `--plan`. A move is a call from one module into another. It
climbs if the callee's module is in a higher layer of imports, and returns if that module has been entered before. A
reader of the code makes the same moves, so fewer are better. Moves between the same two functions count once.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import NoReturn


@dataclass
class Walk:
    """The moves of a run, each once, in order."""

    root: Path
    layers: dict[str, int]  #: by the module's name up to its package; higher layers import lower ones
    moves: dict[tuple[CodeType, CodeType], None] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take an event of the interpreter, as ``sys.setprofile`` gives it."""
        if event != "call" or frame.f_back is None:
            return
        caller = frame.f_back.f_code
        callee = frame.f_code
        if caller.co_filename != callee.co_filename and self.is_own(caller) and self.is_own(callee):
            self.moves.setdefault((caller, callee))

    def is_own(self, code: CodeType) -> bool:
        """Return whether code belongs to the product."""
        return code.co_filename.startswith(str(self.root)) and code.co_name != "<module>"

    def layer(self, code: CodeType) -> int:
        """Return the layer of the code's package."""
        parts = Path(code.co_filename).relative_to(self.root).with_suffix("").parts
        for length in (2, 1):
            name = ".".join(parts[:length])
            if name in self.layers:
                return self.layers[name]
        return 0

    def report(self) -> str:
        """Return the counts."""
        entered: set[str] = set()
        climbs = 0
        returns = 0
        for caller, callee in self.moves:
            entered.add(caller.co_filename)
            climbs += self.layer(callee) > self.layer(caller)
            returns += callee.co_filename in entered
            entered.add(callee.co_filename)
        return f"{len(self.moves)} moves, {len(entered)} modules, {climbs} climbs, {returns} returns"


def read_layers(checkout: Path) -> dict[str, int]:
    """Return the layers of pyproject.toml's import contracts: those of the driver lie between the packages'."""
    text = (checkout / "pyproject.toml").read_text(encoding="utf-8")
    layers: dict[str, int] = {}
    for containers, listed in re.findall(
        r'type = "layers"\n(?:containers = \["(\w+)"\]\n)?(?:exhaustive[^\n]*\n)?layers = \[(.*?)\]',
        text,
        re.DOTALL,
    ):
        lines = re.findall(r'"([^"]+)"', listed)
        for number, line in enumerate(reversed(lines)):
            for name in line.split("|"):
                if containers:
                    layers[f"{containers}.{name.strip()}"] = number + layers[containers] * 100
                else:
                    layers[name.strip()] = number
    for name in (
        "command_line",
        "pin_audit",
        "conda_wheels",
        "pyg_extensions",
        "gpu_tools",
        "groundwork",
        "cuda_code",
    ):
        layers[name] *= 100
    return layers


def main(words: list[str]) -> None:
    """Run the command, then print its walk."""
    checkout = Path(words[0]).resolve()
    root = checkout / "src"
    if not root.is_dir():
        root = checkout / "scripts"
    sys.path[:0] = [str(root), str(checkout / "recipe" / "pyg" / "common")]
    sys.argv = ["build-locally.py", *words[1:]]
    from command_line.build import main as build

    walk = Walk(root=root, layers=read_layers(checkout))
    leave = os._exit

    def report_and_leave(status: int) -> NoReturn:  # the command ends so, without finally clauses
        sys.setprofile(None)
        print(walk.report(), flush=True)
        leave(status)

    os._exit = report_and_leave
    sys.setprofile(walk.note)
    build()


if __name__ == "__main__":
    main(sys.argv[1:])
