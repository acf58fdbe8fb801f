"""An output, or the staging it inherits from, as a recipe of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megabuild.engine.debug_session import standing_alone

RENDERED: dict[str, Any] = {
    "package": {"name": "pytorch", "version": "2.6.0"},
    "build": {
        "number": 100,
        "string": "py312_0",
        "script": {"file": "build_pytorch.sh"},
        "files": ["lib/**"],
    },
    "requirements": {
        "build": ["ninja"],
        "host": [{"pin_subpackage": {"name": "libtorch", "exact": True}}, "python"],
        "run": ["python"],
    },
    "staging_caches": [
        {
            "name": "staging",
            "build": {"script": {"file": "build_staging.sh", "env": {"A": "1"}}},
            "requirements": {"build": ["cmake"], "host": ["python 3.12.*"]},
            "source": [{"path": "../model"}, {"url": "https://example.org/a.tar.gz", "sha256": "0" * 64}],
        }
    ],
}
PINS = {"libtorch": "libtorch ==2.6.0 h1_0"}


def test_a_package_keeps_its_script_and_gets_exact_siblings() -> None:
    assert standing_alone(RENDERED, "pytorch", PINS, Path("/repository/recipe")) == {
        "package": {"name": "pytorch", "version": "2.6.0"},
        "build": {"number": 100, "script": {"file": "build_pytorch.sh"}},
        "requirements": {"build": ["ninja"], "host": ["libtorch ==2.6.0 h1_0", "python"]},
    }


def test_staging_comes_with_its_sources() -> None:
    assert standing_alone(RENDERED, "staging", PINS, Path("/repository/recipe")) == {
        "package": {"name": "staging", "version": "2.6.0"},
        "build": {"number": 100, "script": {"file": "build_staging.sh", "env": {"A": "1"}}},
        "requirements": {"build": ["cmake"], "host": ["python 3.12.*"]},
        "source": [
            {"path": "/repository/model"},
            {"url": "https://example.org/a.tar.gz", "sha256": "0" * 64},
        ],
    }


def test_another_name_is_nothing() -> None:
    assert standing_alone(RENDERED, "torchvision", PINS, Path("/repository/recipe")) is None
