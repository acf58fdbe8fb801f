"""A release that the user brings is what is compiled: the model's tree, as a tarball, with a mark in it."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from rattler.package_streaming import extract

from groundwork.errors import UsageError
from groundwork.files import cache_folder
from megabuild.configs.config import load
from megabuild.plan.options import Options
from megabuild.plan.other_torch import with_torch
from megabuild.plan.planning import make_plan
from megabuild.run.session import execute

CONFIG = "linux_64_cpu"
MARK = "# brought by the user\n"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tarball(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's tree, marked, as its version's tarball."""
    folder = tmp_path_factory.mktemp("brought")
    tree = folder / "pytorch"
    shutil.copytree(
        repository / "rehearsal" / "model", tree, ignore=shutil.ignore_patterns("build", "__pycache__")
    )
    with (tree / "torch" / "__config__.py").open("a") as stream:
        stream.write(MARK)
    path = folder / "pytorch.tar.xz"
    with tarfile.open(path, "w:xz") as made:
        made.add(tree, "pytorch")
    return path


def options(repository: Path, tarball: Path, output: Path, torch: str | None) -> Options:
    return Options(
        config=with_torch(load(repository, CONFIG), torch, tarball, None, rehearse=True),
        root=repository,
        output=output,
        cache=cache_folder(os.environ),
        rehearse=True,
        optimization="0",  # quicker
        engine="host",
        pythons=("3.12",),
        cpu_count=len(os.sched_getaffinity(0)),
        torch=torch,
        torch_source=tarball,
        torch_sha256=hashlib.sha256(tarball.read_bytes()).hexdigest(),
    )


def test_another_version_than_the_config_s_is_not_packed(
    repository: Path, tarball: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"is PyTorch 2\.6\.0"):
        make_plan(options(repository, tarball, tmp_path, None), print)


def test_what_the_tarball_has_is_compiled_and_packed(repository: Path, tarball: Path, tmp_path: Path) -> None:
    asked = options(repository, tarball, tmp_path, "2.6.0")
    made = make_plan(asked, print)
    summary = execute(made, lambda event: None)
    assert summary.ok
    assert asked.packages.name == f"{CONFIG}-2.6.0-rehearsal"
    assert {row.package.version for row in summary.packages} == {"2.6.0"}
    assert [row.package.build_string for row in summary.packages] == [
        item.package.build_string for item in made.items
    ]
    (pytorch,) = (Path(row.path) for row in summary.packages if row.package.name == "pytorch")
    extract(pytorch, tmp_path / "content")
    config = tmp_path / "content" / "lib" / "python3.12" / "site-packages" / "torch" / "__config__.py"
    assert MARK in config.read_text()
    assert not make_plan(asked, print).missing
