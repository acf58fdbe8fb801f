"""Commands that still look here find :mod:`megabuild.text`."""

from megabuild.text import *  # noqa: F403
