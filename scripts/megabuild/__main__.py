"""Start of `python3 scripts/megabuild COMMAND` and, in the private environment, `python -m megabuild COMMAND`.

Needs Python 3.10 or newer. Python 2.7 and later can parse this file, so that an old Python prints an error message.
"""

import os
import sys

if __name__ == "__main__":
    if __package__:
        from command_line.main import main

        main()
    else:  # started as a folder, by any Python: continue in the private environment
        SCRIPTS = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        sys.path[0] = SCRIPTS  # Python put this folder first, but its modules are not top-level ones
        from groundwork.python_version import require

        require("scripts/megabuild", "python3.12 scripts/megabuild")
        from groundwork.bootstrap import run_inside

        run_inside(os.path.dirname(SCRIPTS), os.path.join(SCRIPTS, "megabuild"), "command_line.main")
