"""``assert_never`` of Python 3.11, for the last case of a ``match`` over a state: mypy finds a missing one."""

from __future__ import annotations

import sys
from typing import NoReturn

if sys.version_info >= (3, 11):
    from typing import assert_never as assert_never
else:

    def assert_never(value: NoReturn, /) -> NoReturn:
        """Raise AssertionError: a state has no case."""
        raise AssertionError(f"unexpected: {value!r}")
