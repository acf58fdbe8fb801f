"""The packages as PyTorch 2.14 and later are built: scikit-build-core in the place of setup.py.

The release is one that the user brings, as most who build it first will: the model's tree.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from rattler.package_streaming import extract

from groundwork.errors import ProviderError, UsageError
from groundwork.user_folders import cache_folder
from megabuild.configs.config import load
from megabuild.engine import archive
from megabuild.engine.archive import check_owners
from megabuild.isolation.engine import Engine
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan
from megabuild.plan.torch_version import with_torch
from megabuild.run.outlook import look_ahead
from megabuild.run.progress import Progress
from megabuild.run.session import execute
from megabuild.status.status import Status

CONFIG = "linux_64_cpu"
VERSION = "2.14.0"
PYTHONS = ("3.12", "3.13")
MARK = "# brought by the user\n"


@pytest.fixture
def tree(repository: Path, tmp_path: Path) -> Path:
    """The model with the back end of PyTorch 2.14, marked."""
    tree, ignore = tmp_path / "pytorch", shutil.ignore_patterns("build", "__pycache__")
    shutil.copytree(repository / "rehearsal" / "model", tree, ignore=ignore)
    (tree / "pyproject.scikit-build.toml").rename(tree / "pyproject.toml")
    (tree / "setup.py").write_text('raise SystemExit("setup.py builds nothing any more")\n')
    (tree / "version.txt").write_text(f"{VERSION}\n")
    with (tree / "torch" / "__config__.py").open("a") as stream:
        stream.write(MARK)
    return tree


def options(repository: Path, tree: Path, torch: str | None) -> Options:
    return Options(
        config=with_torch(load(repository, CONFIG), torch, tree),
        root=repository,
        output=tree.parent / "output",
        cache=cache_folder(os.environ),
        rehearse=True,
        optimization="0",  # quicker, and the recipe changes the cache between configuring and compiling
        engine=Engine.HOST,
        pythons=PYTHONS,
        cpu_count=len(os.sched_getaffinity(0)),
        torch=torch,
        torch_source=tree,
    )


@pytest.mark.long  # a minute
def test_libtorch_is_compiled_once_and_none_of_its_files_is_in_a_wheel(
    repository: Path, tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=re.escape(VERSION)):
        make_plan(options(repository, tree, None), print)
    asked = options(repository, tree, VERSION)
    try:
        outlook = look_ahead(make_plan(asked, print), {}, print)
    except ProviderError as error:
        pytest.skip(error.message)
    summary = execute(outlook, Status(asked.run_name, asked.state))
    assert summary.ok
    assert {row.package.version for row in summary.packages} == {VERSION}
    names = sorted(row.package.name for row in summary.packages)
    assert names == ["libtorch", *["pytorch"] * len(PYTHONS), "pytorch-cpu"]
    assert asked.packages.name == f"{CONFIG}-{VERSION}-rehearsal"
    assert not Progress.read(make_plan(asked, print)).missing

    assert set(summary.swaps) == set(PYTHONS)
    assert [swap["core"] for swap in summary.swaps.values()] == [0, 0]
    # Every compile of every phase is in the log, whoever started it.
    log = summary.log.read_text()
    compiled = re.findall(r"\] Building C(?:XX)? object (?!CMakeFiles/torch_user)(\S+)", log)
    side = [name for name in compiled if re.search(r"/(torch_python|functorch|nnapi_backend|_C)\.dir/", name)]
    core = [name for name in compiled if name not in side]
    assert len(core) >= 15
    assert len(set(core)) == len(core), "an object of libtorch was compiled twice"
    assert len(side) == len(PYTHONS) * len(set(side)), "staging's own Python was compiled twice"

    check_owners(archive.read(Path(row.path)) for row in summary.packages)
    for row in summary.packages:
        if row.package.name == "pytorch":
            site = tmp_path / row.package.build_string
            extract(Path(row.path), site)
            (record,) = site.glob("lib/python*/site-packages/torch-*.dist-info/RECORD")
            files = [line.split(",")[0] for line in record.read_text().splitlines()]
            shared = [name for name in files if re.match(r"torch/(bin|include|lib|share)/", name)]
            assert shared == ["torch/lib/libtorch_python.so"]
            assert not [name for name in files if name.startswith("torch/csrc/")], (
                "pyproject.toml keeps them out"
            )
            assert (record.parents[1] / "torch" / "lib" / "libtorch_cpu.so").is_symlink()
            assert MARK in (record.parents[1] / "torch" / "__config__.py").read_text()
