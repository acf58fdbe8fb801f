"""Refuses an old Python. Python 2.7 and later can parse this file, as each file that imports it first."""

import sys


# without annotations, which are a syntax error in Python 2.7
def require(program, command):  # type: (str, str) -> None
    """End the process with exit code 4 if this Python is too old.

    ``program`` begins the message. ``command`` is a command that starts it with a newer Python.
    """
    if sys.version_info < (3, 10):
        found = "%d.%d" % sys.version_info[:2]
        sys.stderr.write("error: %s needs Python 3.10 or newer; this is Python %s\n" % (program, found))
        sys.stderr.write("hint: run: %s\n" % command)
        sys.exit(4)
