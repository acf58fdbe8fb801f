"""A plugin of pytest that removes the folders of a file's fixtures after its last test, unless one of its tests failed.

pytest removes all of them at the end of the session, one after the other, which takes more than a minute.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

#: The folders of fixtures that last for the whole session; a fixture of a file may ask for one while it is made.
_LASTING: set[Path] = set()


# conftest.py would not be asked: pytest asks it about fixtures of its folder, and those of the session have none
@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the folders that a fixture makes, and remove those of a file's fixture."""
    if fixturedef.scope not in ("module", "session"):
        return (yield)
    factory: pytest.TempPathFactory = request.config._tmp_path_factory  # type: ignore[attr-defined]
    base = factory.getbasetemp()
    before = set(base.iterdir())
    made: set[Path] = set()
    failed = request.session.testsfailed

    def remove() -> None:
        if request.session.testsfailed == failed:
            for folder in made - _LASTING:
                shutil.rmtree(folder, ignore_errors=True)

    if fixturedef.scope == "module":
        fixturedef.addfinalizer(remove)  # it runs after the fixture's own, which is added later
    try:
        return (yield)
    finally:
        made |= set(base.iterdir()) - before
        if fixturedef.scope == "session":
            _LASTING.update(made)
