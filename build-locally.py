#!/usr/bin/env python3
"""The front door: builds a config of this repository. `python build-locally.py --help` says how.

Needs nothing but Python 3.10 or newer. The first start makes a private environment in .venv; later ones enter it.
This file keeps to syntax that every Python since 2.7 parses, so that an old one gets a sentence, not a SyntaxError.
"""

import os
import sys

if sys.version_info < (3, 10):
    sys.stderr.write(
        "build-locally.py needs Python 3.10 or newer, and this is Python %d.%d; start it with a newer one, "
        "for example: python3.12 build-locally.py\n" % sys.version_info[:2]
    )
    sys.exit(4)

ROOT = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from groundwork.bootstrap import run_inside  # noqa: E402

if __name__ == "__main__":
    run_inside(ROOT, __file__, "command_line.build")
