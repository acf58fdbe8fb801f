"""Which folders of tests go: not those that something leads to."""

from __future__ import annotations

from pathlib import Path

import pytest
from slim_packages import SITE, install, venv

from gpu_tools.slim.environment import list_environment
from gpu_tools.slim.own_tests import find_own_tests

TESTS = {"pk/tests/__init__.py": "", "pk/tests/test_it.py": "def test_it(): ...\n", "pk/tests/data.bin": "1"}
EMPTY = {"pk/__init__.py": "", "pk/sub/__init__.py": ""}


def gone(root: Path) -> set[str]:
    return {path.removeprefix(f"{SITE}/") for path in find_own_tests(list_environment(root))}


def test_tests_that_nothing_leads_to_go(tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    more = {
        "pk/more.py": "import unittest.test\nfrom other import tests\n# from pk import testing\ntests = 1\n"
    }
    install(env, "pk", {**EMPTY, **TESTS, **more, "pk/testing/__init__.py": ""})
    compiled = env / SITE / "pk/tests/__pycache__/test_it.cpython-312.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"compiled")
    assert gone(env) == {*TESTS, "pk/tests/__pycache__/test_it.cpython-312.pyc"}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("pk/__init__.py", "from . import tests\n"),
        ("pk/__init__.py", "from . import (\n    a,  # one (of\n    tests,\n)\n"),
        ("pk/__init__.py", "from .tests import *\n"),
        ("pk/__init__.py", "import os; from pk import a, tests as checks\n"),
        ("pk/__init__.py", "from pk import a, \\\n    tests\n"),
        ("pk/__init__.py", "def __getattr__(name):\n    from . import tests\n    return tests\n"),
        ("pk/__init__.py", '__all__ = ["a", "tests"]\n'),
        ("pk/__init__.pyi", "from . import tests as tests\n"),
        ("pk/data.py", "import os\nROWS = os.path.join(os.path.dirname(__file__), 'tests', 'data.bin')\n"),
        ("pk/data.py", 'ROWS = open("tests/data.bin")\n'),
        ("pk/sub/__init__.py", "from .. import tests\n"),
        ("pk/sub/deep.py", "from ..tests.test_it import test_it\n"),
        ("other/__init__.py", "import json, pk.tests.test_it\n"),
        ("other/lazy.py", 'import importlib\nimportlib.import_module("pk.tests.test_it")\n'),
        ("other/docs.py", '"""Try your own class: ``from pk.tests.test_it import test_it``."""\n'),
        ("pk.pth", "import pk.tests\n"),
    ],
)
def test_what_something_leads_to_stays(where: str, text: str, tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    install(env, "pk", {**EMPTY, **TESTS, where: text})
    assert gone(env) == set()


def test_what_an_entry_point_names_stays(tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    install(
        env, "pk", {**EMPTY, **TESTS}, entry_points="[console_scripts]\npk-check = pk.tests.test_it:test_it\n"
    )
    assert gone(env) == set()


def test_modules_that_are_no_tests_stay_with_their_data(tmp_path: Path) -> None:
    """gensim.test.utils, which all of gensim's tutorials import."""
    env = venv(tmp_path / "env")
    utilities = {"pk/tests/utils.py": "def datapath(name):\n    return name\n"}
    install(env, "pk", {**EMPTY, **TESTS, **utilities})
    assert gone(env) == {"pk/tests/test_it.py"}
    install(env, "needy", {"needy/__init__.py": "", "needy/tests/__init__.py": "", "needy/tests/test_a.py": "",
                           "needy/tests/base.py": "from .test_a import x\nclass Base: ...\n"})  # fmt: skip
    assert gone(env) == {"pk/tests/test_it.py"}


def test_a_folder_without_an_init_can_be_imported_from(tmp_path: Path) -> None:
    """fsspec.tests.abstract, which authors of file systems are to use, lies in such a one."""
    env = venv(tmp_path / "env")
    abstract = {"pk/tests/abstract/__init__.py": "class AbstractTests: ...\n", "pk/tests/test_it.py": ""}
    install(env, "pk", {**EMPTY, **abstract})
    assert gone(env) == {"pk/tests/test_it.py"}


@pytest.mark.parametrize(
    "helper",
    [
        {"pk/tests/_private.py": "def helper(): ...\n"},
        {"pk/tests/data/cases.py": "def helper(): ...\n"},  # no package
        {"pk/tests/conftest.py": "def fixture(): ...\n"},
        {"pk/tests/names.py": "NAMES = 1\ndef _own(): ...\nclass TestThat: ...\n"},
        {"pk/tests/broken.py": "def (:\n"},
    ],
)
def test_what_nobody_could_mean_for_others_goes(helper: dict[str, str], tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    install(env, "pk", {**EMPTY, **TESTS, **helper})
    assert gone(env) == {*TESTS, *helper}


def test_a_folder_that_holds_no_tests_is_data(tmp_path: Path) -> None:
    env = venv(tmp_path / "env")
    data = {
        "pk/data/test/rows.csv": "1",
        "pk/data/train/rows.csv": "1",
        "pk/test/config.json": "{}",
        "pk/test/__init__.py": "",
        "pk-1.dist-info/licenses/json/test/LICENSE": "all rights",
    }
    install(env, "pk", {"pk/__init__.py": "", **data})
    assert gone(env) == set()


@pytest.mark.parametrize(
    "folder", ["pk/templates/project", "pk/project_template", "pk/{{ name }}", "pk/static"]
)
def test_what_is_copied_for_users_is_no_test_of_the_package(folder: str, tmp_path: Path) -> None:
    """As kedro and Django do with a new project's files."""
    env = venv(tmp_path / "env")
    install(env, "pk", {"pk/__init__.py": "", f"{folder}/tests/test_run.py": "def test_run(): ...\n"})
    assert gone(env) == set()


@pytest.mark.parametrize(
    "files",
    [
        ("pk-stubs/__init__.pyi", "pk-stubs/test/__init__.pyi", "pk-stubs/test/test_client.pyi"),
        ("jedi/stubs/pk/test/__init__.pyi", "jedi/stubs/pk/test/client.pyi", "jedi/__init__.py"),
        ("pk/__init__.py", "pk/test/__init__.py", "pk/test/client.py", "pk/test/client.pyi"),
    ],
)
def test_stubs_are_for_others(files: tuple[str, ...], tmp_path: Path) -> None:
    """Type checkers read django-stubs for `from django.test import TestCase`."""
    env = venv(tmp_path / "env")
    install(env, "stubs", dict.fromkeys(files, "class Client: ...\n"))
    assert gone(env) == set()


def test_test_programs_go_with_their_folder(tmp_path: Path) -> None:
    """PyTorch's wheels for CPUs have 86 MB of them, in torch/test."""
    env = venv(tmp_path / "env")
    programs = {"pk/test/Dict_test": b"\x7fELF\2\1\1", "pk/test/basic": b"\x7fELF\2\1\1"}
    install(env, "pk", {"pk/__init__.py": "", **programs, "pk/data/test/cases_test": "no program"})
    assert gone(env) == set(programs)
