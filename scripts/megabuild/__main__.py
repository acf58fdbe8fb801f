"""Start of `python3 scripts/megabuild COMMAND` and, in the private environment, `python -m megabuild COMMAND`."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent


def main() -> None:
    from command_line.main import main as command_line

    command_line()


if __name__ == "__main__":
    if __package__:
        main()
    else:  # started as a folder, by any Python: continue in the private environment
        sys.path[0] = str(SCRIPTS)  # Python put this folder first, but its modules are not top-level ones
        from groundwork.bootstrap import run_inside

        run_inside(str(SCRIPTS.parent), str(SCRIPTS / "megabuild"), "command_line.main")
