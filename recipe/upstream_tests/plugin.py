"""pytest's plugin: skips the tests that selection.ini names, with their reasons."""

from __future__ import annotations

import fnmatch
from typing import Any

from upstream_tests.selection import installed_build, read_selection


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip tests."""
    import pytest

    skips = read_selection().skips(installed_build())
    for item in items:
        for pattern, reason in skips:
            if fnmatch.fnmatchcase(item.nodeid, pattern):
                item.add_marker(pytest.mark.skip(reason=f"selection.ini: {reason}"))
