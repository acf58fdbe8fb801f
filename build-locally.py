#!/usr/bin/env python3
"""Builds configs of this repository; see `python3 build-locally.py --help`.

Needs Python 3.10 or newer, no packages. The first start makes a private environment in .venv; later starts use it.
Python 2.7 and later can parse this file, so that an old Python prints an error message and no SyntaxError.
"""

import os
import sys

ROOT = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(ROOT, "src"))

from groundwork.python_version import require  # noqa: E402

require("build-locally.py", "python3.12 build-locally.py")

from groundwork.bootstrap import run_inside  # noqa: E402

if __name__ == "__main__":
    run_inside(ROOT, __file__, "command_line.build")
