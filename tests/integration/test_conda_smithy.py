"""conda-smithy itself, where it is installed: its linter over every recipe, and a rerender in a clone.

`CONDA_FORGE_PINNING` names a conda_build_config.yaml of conda-forge-pinning, with its migrations in
share/conda-forge/migrations beside it, so that nothing is fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from megabuild.configs import matrix
from megabuild.configs.config import available, load, recipe_of
from megabuild.configs.render import render

ROOT = Path(__file__).resolve().parents[2]
PINNING = os.environ.get("CONDA_FORGE_PINNING", "")
RECIPES = (
    "recipe",
    "recipe/wheel",
    *(f"recipe/pyg/{path.parent.name}" for path in ROOT.glob("recipe/pyg/*/recipe.yaml")),
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("conda-smithy"), reason="conda-smithy is not installed here"),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_linter_has_nothing_to_say(recipe: str) -> None:
    said = run("recipe-lint", recipe, cwd=ROOT)
    assert said.splitlines()[-1] == f"{recipe} is in fine form"


@pytest.mark.skipif(not PINNING, reason="CONDA_FORGE_PINNING names no pinning")
def test_a_rerender_leaves_our_files_and_its_configs_are_built_as_ours(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    run("rerender", "--no-check-uptodate", "-e", PINNING, "--feedstock_directory", str(clone), cwd=clone)
    changed = git(clone, "diff", "--name-only", "--diff-filter=MD", "HEAD").split()
    assert set(changed) == {f".ci_support/{name}.yaml" for name in matrix.generate(clone)}
    theirs = set(available(clone))
    assert any(name.startswith("linux_64_blas_implmklcuda_compiler_version13.") for name in theirs)
    platforms = {load(clone, name).platform for name in theirs}
    assert platforms == set(matrix.PLATFORMS), "and no win-64"
    matrix.write(clone)
    git(clone, "add", "--all")
    assert git(clone, "diff", "--name-only", "--diff-filter=MD", "HEAD") == ""
    assert theirs < set(available(clone))
    for name in theirs:
        config = load(clone, name)
        packages = [one for one in render(config, recipe_of(clone, config)) if not one.skipped]
        assert len(packages) == (9 if config.cuda_version else 7), name


def run(*words: str, cwd: Path) -> str:
    ended = subprocess.run(["conda-smithy", *words], cwd=cwd, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
