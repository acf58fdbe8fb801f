"""The packages as PyTorch 2.14 and later are built: scikit-build-core in the place of setup.py.

The release is one that the user brings, as most who build it first will: the model's tree, as a tarball.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from rattler.package_streaming import extract
from tiny import kept_sentences

from groundwork.errors import ProviderError, UsageError
from groundwork.files import cache_folder
from megabuild.configs.config import load
from megabuild.engine import archive
from megabuild.engine.archive import owners
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan
from megabuild.plan.torch_version import with_torch
from megabuild.run.session import execute
from megabuild.run.summary import Summary

CONFIG = "linux_64_cpu"
VERSION = "2.14.0"
PYTHONS = ("3.12", "3.13")
MARK = "# brought by the user\n"


@pytest.fixture(scope="module")
def tarball(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with the back end of PyTorch 2.14, marked, as that version's tarball."""
    folder = tmp_path_factory.mktemp("brought")
    tree = folder / "pytorch"
    shutil.copytree(
        repository / "rehearsal" / "model", tree, ignore=shutil.ignore_patterns("build", "__pycache__")
    )
    (tree / "pyproject.scikit-build.toml").rename(tree / "pyproject.toml")
    (tree / "setup.py").write_text('raise SystemExit("setup.py builds nothing any more")\n')
    (tree / "version.txt").write_text(f"{VERSION}\n")
    with (tree / "torch" / "__config__.py").open("a") as stream:
        stream.write(MARK)
    path = folder / "pytorch.tar.xz"
    with tarfile.open(path, "w:xz") as made:
        made.add(tree, "pytorch")
    return path


def options(repository: Path, tarball: Path, output: Path, torch: str | None) -> Options:
    return Options(
        config=with_torch(load(repository, CONFIG), torch, tarball),
        root=repository,
        output=output,
        cache=cache_folder(os.environ),
        rehearse=True,
        optimization="0",  # quicker, and the recipe changes the cache between configuring and compiling
        engine="host",
        pythons=PYTHONS,
        cpu_count=len(os.sched_getaffinity(0)),
        torch=torch,
        torch_source=tarball,
    )


@pytest.fixture(scope="module")
def asked(repository: Path, tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Options:
    """What is asked of the driver."""
    return options(repository, tarball, tmp_path_factory.mktemp("output"), VERSION)


@pytest.fixture(scope="module")
def built(asked: Options) -> tuple[Summary, list[str]]:
    """Everything built and tested for two Pythons."""
    try:
        made = make_plan(asked, print)
    except ProviderError as error:
        pytest.skip(error.message)
    with kept_sentences() as seen:
        return execute(made), [record.getMessage() for record in seen]


def test_another_version_than_the_config_s_is_not_packed(
    repository: Path, tarball: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=re.escape(f"is PyTorch {VERSION}")):
        make_plan(options(repository, tarball, tmp_path, None), print)


def test_every_package_is_built_and_tested(built: tuple[Summary, list[str]]) -> None:
    summary, seen = built
    assert summary.ok
    assert {row.package.version for row in summary.packages} == {VERSION}
    assert sorted(row.package.name for row in summary.packages) == [
        "libtorch",
        *["pytorch"] * len(PYTHONS),
        "pytorch-cpu",
    ]
    assert {text.split()[1] for text in seen if ": tested in" in text} == {
        "libtorch",
        "pytorch",
        "pytorch-cpu",
    }


def test_libtorch_is_compiled_once(built: tuple[Summary, list[str]]) -> None:
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


def test_libtorchs_files_are_not_in_the_wheel(built: tuple[Summary, list[str]], tmp_path: Path) -> None:
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


def test_what_the_tarball_has_is_what_was_built(
    asked: Options, built: tuple[Summary, list[str]], tmp_path: Path
) -> None:
    summary, _ = built
    again = make_plan(asked, print)
    assert not again.missing
    assert asked.packages.name == f"{CONFIG}-{VERSION}-rehearsal"
    assert [row.package for row in summary.packages] == [item.package.id for item in again.items]
    pytorch = next(Path(row.path) for row in summary.packages if row.package.name == "pytorch")
    extract(pytorch, tmp_path)
    (config,) = tmp_path.glob("lib/python*/site-packages/torch/__config__.py")
    assert MARK in config.read_text()
