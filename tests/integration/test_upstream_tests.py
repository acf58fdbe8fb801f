"""The package pytorch-tests: what it packs, what it runs, and what makes it fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from upstream_tests.selection import Build, Part, read_selection

GOOD = """\
import os
import unittest
from helpers import two
assert os.path.exists(os.path.join(os.path.dirname(__file__), "failures_dict.json"))
class TestSum(unittest.TestCase):
    def test_right(self):
        self.assertEqual(two() + two(), 4)
    def test_slow(self):
        self.fail("was not skipped")
"""
SELECTION = """\
[each Python]
test_sum.py =
test_part.py = right
[one Python]
deep/test_kernel.py =
[may be empty <2.7]
deep/test_kernel.py = has no kernel
[skip]
test_sum.py::*::test_slow = takes hours
[skip <2.7]
test_part.py::TestPart::test_right_old = mended in 2.7
[skip cuda]
test_part.py::TestPart::test_right_gpu = needs a larger GPU
"""
PART = """\
class TestPart:
    def test_right(self): pass
    def test_right_gpu(self): pass
    def test_right_old(self): assert torch.__version__ != "2.6.0+debian"
    def test_wrong(self): assert False, "was not selected"
import torch
"""
KERNEL = """\
import pytest
import torch
@pytest.mark.skipif(torch.__version__ != "2.8.0", reason="no kernel")
def test_kernel(): pass
"""
TORCH = """\
from types import SimpleNamespace
__version__ = "{version}"
version = SimpleNamespace(cuda={cuda!r})
__config__ = SimpleNamespace(show=lambda: "BLAS_INFO=open")
"""


@pytest.fixture
def packed(repository: Path, tmp_path: Path) -> Path:
    """A package of a few tests, and a torch that has nothing but a description."""
    tests = tmp_path / "tree" / "test"
    (tests / "typing").mkdir(parents=True)
    (tests / "typing" / "other.py").touch()
    (tests / "unused.py").touch()
    (tests / "expect").mkdir()
    (tests / "deep").mkdir()
    (tests / "selection.ini").write_text(SELECTION)
    (tests / "failures_dict.json").write_text("{}")
    (tests / "helpers.py").write_text("import typing\ndef two(): return 2\n")
    (tests / "test_sum.py").write_text("import typing\n" + GOOD)
    (tests / "test_part.py").write_text(PART)
    (tests / "deep" / "test_kernel.py").write_text(KERNEL)
    run(repository / "recipe", "gather", str(tests.parent), str(tmp_path / "packed"))
    install_torch(tmp_path / "packed", "2.6.0+debian")
    return tmp_path / "packed"


def install_torch(packed: Path, version: str, cuda: str | None = None) -> None:
    (packed / "test" / "torch.py").write_text(TORCH.format(version=version, cuda=cuda))


def run(folder: Path, *arguments: str, expect: int = 0) -> str:
    command = [sys.executable, str(folder / "upstream_tests"), *arguments]
    # Python takes byte code for current where second and size of the source are the same: those of two descriptions.
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder / "test"), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environ)
    assert ended.returncode == expect, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def rows(text: str) -> dict[str, list[str]]:
    """Return the last table: what passed, failed, was skipped."""
    table: dict[str, list[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[3].isdigit():
            table[words[0]] = words[1:4]
    return table


def test_what_is_selected_is_packed_with_its_imports_and_passes_or_is_skipped_for_its_build(
    packed: Path,
) -> None:
    names = {path.name for path in (packed / "test").iterdir()}
    needed = {"failures_dict.json", "helpers.py", "expect"}
    assert names == {"test_sum.py", "test_part.py", "deep", "torch.py", *needed}
    told = run(packed, "run", "--jobs", "1")
    expected = {
        "test_sum.py": ["1", "0", "1"],
        "test_part.py": ["2", "0", "1"],
        "deep/test_kernel.py": ["0", "0", "1"],
    }
    assert rows(told) == expected
    assert told.rstrip().endswith("all passed")
    assert rows(run(packed, "run", "--each-python", "-n", "2")).keys() == {"test_sum.py", "test_part.py"}
    install_torch(packed, "2.7.1")
    assert rows(run(packed, "run", "test_part.py", "-n", "1")) == {"test_part.py": ["3", "0", "0"]}
    install_torch(packed, "2.7.1", cuda="13.0")
    assert rows(run(packed, "run", "test_part.py", "-n", "1")) == {"test_part.py": ["2", "0", "1"]}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("def two(): return 3\n", "failed test: test_sum.py::TestSum::test_right\n"),
        ("import no_such_module\n", "failed test: test_sum.py\n"),
        ("import os\ndef two(): os._exit(0)\n", "crashed test: test_sum.py::TestSum::test_right\n"),
        ("import os\ndef two(): os.abort()\n", "crashed test: test_sum.py::TestSum::test_right\n"),
        ("import pytest\npytest.skip('no such hardware', allow_module_level=True)\n", "0 tests passed"),
    ],
)
def test_a_fault_makes_it_fail_and_is_named(packed: Path, fault: str, says: str) -> None:
    (packed / "test" / "helpers.py").write_text(fault)
    told = run(packed, "run", "--each-python", "-n", "1", expect=1)
    assert says in told
    assert rows(told)["test_part.py"] == ["2", "0", "1"]
    named = re.search(r"(?m)^1 of \d+ failed; to repeat one alone: pytorch-tests '(\S+)'$", told)
    assert named is not None
    # the name that it prints is one that it takes
    assert rows(run(packed, "run", named[1], expect=1))[named[1]][1] == "1"


def test_a_file_without_tests_is_right_only_where_the_selection_says_so(packed: Path) -> None:
    install_torch(packed, "2.7.1")
    told = run(packed, "run", "deep/test_kernel.py", "-n", "1", expect=1)
    assert "0 tests passed" in told
    install_torch(packed, "2.8.0")
    assert rows(run(packed, "run", "-n", "1"))["deep/test_kernel.py"] == ["1", "0", "0"]


@pytest.mark.parametrize(
    ("end", "code"), [("os._exit(0)", 0), ("os._exit(5)", 5), ("os.kill(os.getpid(), 9)", -9)]
)
def test_a_file_that_may_be_empty_fails_without_a_report(packed: Path, end: str, code: int) -> None:
    """pytest itself ends, not one of its workers."""
    (packed / "test/conftest.py").write_text(
        f"import os\nif 'PYTEST_XDIST_WORKER' not in os.environ: {end}\n"
    )
    told = run(packed, "run", "deep/test_kernel.py", "-n", "1", expect=1)
    assert f"deep/test_kernel.py: pytest ended with exit code {code}, without a report\n" in told
    kind = "crashed" if code < 0 else "failed"
    assert f"{kind} test: deep/test_kernel.py\n" in told
    assert rows(told) == {"deep/test_kernel.py": ["0", "1", "0"]}


#: As in test_modules.py: the slow tests of a file come one after the other.
UNEVEN = """\
import os
import time
from pathlib import Path
import pytest
@pytest.mark.parametrize("number", range(400))
def test_right(number):
    if number < 50:
        time.sleep(0.1)
        with Path({log!r}).open("a") as log:
            log.write(os.environ["PYTEST_XDIST_WORKER"] + "\\n")
"""


def test_slow_tests_beside_each_other_are_shared_by_all_processes(packed: Path, tmp_path: Path) -> None:
    log = tmp_path / "slow"
    (packed / "test" / "test_part.py").write_text(UNEVEN.format(log=str(log)))
    assert rows(run(packed, "run", "test_part.py", "-n", "2"))["test_part.py"] == ["400", "0", "0"]
    assert set(log.read_text().split()) == {"gw0", "gw1"}


#: Two tests crash, one of them in a block of slow ones.
CRASHING = """\
import os
import time
import pytest
@pytest.mark.parametrize("number", range(60))
def test_right(number):
    if number < 20:
        time.sleep(0.02)
    if number in (10, 50):
        os.abort()
"""


def test_all_other_tests_of_a_file_run_if_some_crash(packed: Path) -> None:
    (packed / "test" / "test_part.py").write_text(CRASHING)
    told = run(packed, "run", "test_part.py", "-n", "2", expect=1)
    assert rows(told)["test_part.py"] == ["58", "2", "0"]
    crashed = {line for line in told.splitlines() if line.startswith("crashed test: ")}
    assert crashed == {f"crashed test: test_part.py::test_right[{number}]" for number in (10, 50)}


def test_a_test_that_is_skipped_can_be_run_by_its_name(packed: Path) -> None:
    told = run(packed, "run", "test_sum.py::TestSum::test_slow", expect=1)
    assert "was not skipped" in told


def test_a_file_that_upstream_has_no_more_is_named(repository: Path, tmp_path: Path) -> None:
    own = repository / "recipe"
    (tmp_path / "tree" / "test").mkdir(parents=True)
    told = run(own, "gather", str(tmp_path / "tree"), str(tmp_path / "packed"), expect=1)
    assert ("test_linalg.py" in told, "selection.ini" in told) == (True, True)
    told = run(own, "run", "test_x.py", expect=2)
    assert ("test_x.py" in told, "selection.ini" in told) == (True, True)


def test_the_selection_has_the_files_of_conda_forge_s_feedstock() -> None:
    """recipe/meta.yaml of pytorch-cpu-feedstock (74dd3d46, 2026-08-13)."""
    selection = read_selection()
    names = ("autograd", "autograd_fallback", "custom_ops", "linalg", "mkldnn", "modules", "nn", "torch")
    feedstocks = {f"test_{name}.py" for name in (*names, "xnnpack_integration")}
    each = selection.files([Part.EACH_PYTHON])
    assert feedstocks <= {*each}
    assert not any(selection.keywords(name) for name in feedstocks), "whole files"
    assert "inductor/test_torchinductor.py" in selection.files([Part.ONE_PYTHON])


def test_every_section_of_the_selection_can_hold_and_names_files_of_it() -> None:
    selection = read_selection()
    parts = {part.value for part in Part}
    known = re.compile(r"cpu|cuda|mkl|generic|aarch64|x86_64|python3\.\d+|[<>=!~]+[\d.]+")
    for name, section in selection.sections.items():
        if name in parts:
            continue
        kind = "may be empty" if name.startswith("may be empty") else "skip"
        assert name.startswith(kind), name
        for word in name.removeprefix(kind).split():
            assert known.fullmatch(word), (name, word)
        for pattern, reason in section.items():
            file = pattern.partition("::")[0]
            assert file == "*" or file in selection.files(), pattern
            assert len(reason) > 8, pattern


def test_skips_depend_on_the_build() -> None:
    selection = read_selection()

    def skipped(version: str, *words: str) -> set[str]:
        return {pattern for pattern, _ in selection.skips(Build(version=version, words=frozenset(words)))}

    plain = skipped("2.13.0", "cpu", "mkl", "x86_64", "python3.13")
    debian = skipped("2.6.0+debian", "cpu", "generic", "x86_64", "python3.13")
    gpu = skipped("2.13.0", "cuda", "generic", "x86_64", "python3.12")
    assert plain < debian
    assert plain < gpu
    assert any("test_linalg_lstsq" in pattern for pattern in debian - plain)
    assert any("test_index_put2_cpu" in pattern for pattern in gpu - plain)
    assert any("literal_backward" in pattern for pattern in gpu - plain)
