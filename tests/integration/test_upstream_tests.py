"""The package pytorch-tests: what it packs, what it runs, and what makes it fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """\
import unittest
from helpers import two
class TestSum(unittest.TestCase):
    def test_right(self):
        self.assertEqual(two() + two(), 4)
    def test_slow(self):
        self.fail("was not skipped")
"""
SELECTION = """\
[files]
test_sum.py =
test_part.py = right
[skip]
test_sum.py::*::test_slow = takes hours
[skip <2.7]
test_part.py::TestPart::test_right_old = mended in 2.7
"""
PART = """\
class TestPart:
    def test_right(self): pass
    def test_right_old(self): assert torch.__version__ != "2.6.0+debian"
    def test_wrong(self): assert False, "was not selected"
import torch
"""


@pytest.fixture
def packed(repository: Path, tmp_path: Path) -> Path:
    """A package of a few tests, and a torch that has nothing but a version."""
    own = tmp_path / "own"
    shutil.copytree(repository / "recipe" / "upstream_tests", own)
    (own / "selection.ini").write_text(SELECTION)
    tests = tmp_path / "tree" / "test"
    (tests / "typing").mkdir(parents=True)
    (tests / "typing" / "other.py").touch()
    (tests / "unused.py").touch()
    (tests / "expect").mkdir()
    (tests / "helpers.py").write_text("import typing\ndef two(): return 2\n")
    (tests / "test_sum.py").write_text("import typing\n" + GOOD)
    (tests / "test_part.py").write_text(PART)
    run(own, "gather", str(tests.parent), str(tmp_path / "packed"))
    (tmp_path / "packed" / "test" / "torch.py").write_text("__version__ = '2.6.0+debian'\n")
    return tmp_path / "packed"


def run(folder: Path, *arguments: str, expect: int = 0) -> str:
    command = [sys.executable, str(folder / "pytorch_tests.py"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == expect, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def rows(text: str) -> dict[str, list[str]]:
    """Return the last table: what passed, failed, was skipped."""
    return {words[0]: words[1:4] for line in text.splitlines() if (words := line.split()) and len(words) == 5}


def test_what_is_selected_is_packed_with_its_imports_and_passes_or_is_skipped_for_its_version(
    packed: Path,
) -> None:
    names = {path.name for path in (packed / "test").iterdir()}
    assert names == {"test_sum.py", "test_part.py", "helpers.py", "expect", "torch.py"}
    told = run(packed, "run", "--jobs", "1")
    assert rows(told) == {"test_sum.py": ["1", "0", "1"], "test_part.py": ["1", "0", "1"]}
    assert told.rstrip().endswith("all passed")
    (packed / "test" / "torch.py").write_text("__version__ = '2.7.1'\n")
    assert rows(run(packed, "run", "test_part.py", "-n", "1")) == {"test_part.py": ["2", "0", "0"]}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("def two(): return 3\n", "1 failed"),
        ("import no_such_module\n", "1 failed"),
        ("import os\ndef two(): os._exit(0)\n", "pytest ended with exit code 0; 0 tests passed"),
        ("import pytest\npytest.skip('no such hardware', allow_module_level=True)\n", "0 tests passed"),
    ],
)
def test_a_fault_makes_it_fail(packed: Path, fault: str, says: str) -> None:
    (packed / "test" / "helpers.py").write_text(fault)
    told = run(packed, "run", "-n", "1", expect=1)
    assert says in told
    assert rows(told)["test_part.py"] == ["1", "0", "1"]
    assert "failed" in told.splitlines()[-1]


def test_a_file_that_upstream_has_no_more_is_named(repository: Path, tmp_path: Path) -> None:
    own = repository / "recipe" / "upstream_tests"
    (tmp_path / "tree" / "test").mkdir(parents=True)
    told = run(own, "gather", str(tmp_path / "tree"), str(tmp_path / "packed"), expect=1)
    assert ("test_linalg.py" in told, "selection.ini" in told) == (True, True)
    told = run(own, "run", "test_x.py", expect=2)
    assert ("test_x.py" in told, "selection.ini" in told) == (True, True)
