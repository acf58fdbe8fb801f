"""The packages as PyTorch 2.14 and later are built, from the model: scikit-build-core in the place of setup.py."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from rattler.package_streaming import extract
from ruamel.yaml import YAML

from groundwork import events
from groundwork.errors import ProviderError
from groundwork.files import cache_folder
from megabuild.configs.config import load
from megabuild.engine import archive
from megabuild.engine.archive import owners
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan
from megabuild.run.session import execute
from megabuild.run.summary import Summary

CONFIG = "linux_64_cpu"
VERSION = "2.14.0"
PYTHONS = ("3.12", "3.13")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe, a model with the back end of PyTorch 2.14, and a config that asks for that version."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("recipe", "rehearsal", ".ci_support"):
        shutil.copytree(repository / name, root / name)
    model = root / "rehearsal" / "model"
    (model / "pyproject.scikit-build.toml").rename(model / "pyproject.toml")
    (model / "setup.py").write_text('raise SystemExit("setup.py builds nothing any more")\n')
    config = root / ".ci_support" / f"{CONFIG}.yaml"
    variant = YAML().load(config)
    variant["torch_version"] = [VERSION]
    chosen = [number for number, pin in enumerate(variant["python"]) if pin.startswith(PYTHONS)]
    for name in ("python", "is_python_min"):  # zipped
        variant[name] = [variant[name][number] for number in chosen]
    YAML().dump(variant, config)
    return root


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, list[events.Event]]:
    """Everything built and tested for two Pythons."""
    options = Options(
        config=load(root, CONFIG),
        root=root,
        output=tmp_path_factory.mktemp("output"),
        cache=cache_folder(os.environ),
        rehearse=True,
        optimization="0",  # quicker, and the recipe changes the cache between configuring and compiling
        engine="host",
        cpu_count=len(os.sched_getaffinity(0)),
    )
    try:
        made = make_plan(options, print)
    except ProviderError as error:
        pytest.skip(error.message)
    seen: list[events.Event] = []
    return execute(made, seen.append), seen


def test_every_package_is_built_and_tested(built: tuple[Summary, list[events.Event]]) -> None:
    summary, seen = built
    assert summary.ok
    assert {row.package.version for row in summary.packages} == {VERSION}
    assert sorted(row.package.name for row in summary.packages) == [
        "libtorch",
        *["pytorch"] * len(PYTHONS),
        "pytorch-cpu",
    ]
    assert {event.name for event in seen if isinstance(event, events.TestRun)} == {
        "libtorch",
        "pytorch",
        "pytorch-cpu",
    }


def test_libtorch_is_compiled_once(built: tuple[Summary, list[events.Event]]) -> None:
    summary, _ = built
    assert set(summary.swaps) == set(PYTHONS)
    assert [swap["core"] for swap in summary.swaps.values()] == [0, 0]
    # Every compile of every phase is in the log, whoever started it.
    compiled = re.findall(
        r"\] Building C(?:XX)? object (?!CMakeFiles/torch_user)(\S+)", summary.log.read_text()
    )
    core = [
        name for name in compiled if not re.search(r"/(torch_python|functorch|nnapi_backend|_C)\.dir/", name)
    ]
    assert len(core) >= 15
    assert len(set(core)) == len(core), "an object of libtorch was compiled twice"
    python_side = [name for name in compiled if name not in core]
    assert len(python_side) == len(PYTHONS) * len(set(python_side)), "staging's own Python was compiled twice"


def test_libtorchs_files_are_not_in_the_wheel(
    built: tuple[Summary, list[events.Event]], tmp_path: Path
) -> None:
    summary, _ = built
    rows = [row for row in summary.packages if row.package.name == "pytorch"]
    assert not owners(archive.read(Path(row.path)) for row in summary.packages)
    for number, row in enumerate(rows):
        extract(Path(row.path), tmp_path / str(number))
        (record,) = (tmp_path / str(number)).glob("lib/python*/site-packages/torch-*.dist-info/RECORD")
        names = [line.split(",")[0] for line in record.read_text().splitlines()]
        shared = [name for name in names if re.match(r"torch/(bin|include|lib|share)/", name)]
        assert shared == ["torch/lib/libtorch_python.so"]
        # what pyproject.toml itself keeps out
        assert not [name for name in names if name.startswith("torch/csrc/")]
        assert (record.parents[1] / "torch" / "lib" / "libtorch_cpu.so").is_symlink()
