"""What becomes of a private environment that is not whole."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from megabuild import bootstrap
from megabuild.errors import IntegrityError


@pytest.mark.parametrize(
    "content", ["def main(:\n", "raise ValueError('torn')\n", "\0\0", "import nothing_of_that_name"]
)
def test_a_damaged_module_has_the_environment_set_up_anew(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "torn_module.py").write_text(content)
    (tmp_path / bootstrap.STAMP).write_text("the lock's digest")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    with pytest.raises(IntegrityError, match=r"missing from \.venv or damaged"):
        bootstrap._imported("torn_module")
    assert not (tmp_path / bootstrap.STAMP).exists()


def test_a_fault_of_ours_is_not_the_environment_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_module.py").write_text("def main(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SyntaxError):
        bootstrap._imported("our_module")
