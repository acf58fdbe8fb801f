"""conda-build, and rattler-build alone, make megabuild's packages: the names of every config, the files of a rehearsal.

MEGABUILD_TEST_CONDA_BUILD names an environment with conda-build; docs/conda-smithy.md has the versions that were tried.
Recipes in recipe.yaml are read by the functions behind its commands alone: its module ``api`` knows only meta.yaml.

Where conda-smithy is installed: its linter over every recipe, and a rerender in a clone. `CONDA_FORGE_PINNING` names a
conda_build_config.yaml of conda-forge-pinning, with its migrations in share/conda-forge/migrations beside it, so that
nothing is fetched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import plain_engine
import pytest
from package_files import Entry, entries
from rehearsing import rehearse

from cuda_code.elf_file import ElfFile
from megabuild.configs import matrix
from megabuild.configs.config import Config, available, load, recipe_of
from megabuild.configs.render import render
from megabuild.engine.reproducible import normalise

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ.get("MEGABUILD_TEST_CONDA_BUILD", "")
CONFIG = "linux_64_cuda130"
PINNING = os.environ.get("CONDA_FORGE_PINNING", "")
#: The configs for Linux of pytorch-cpu-feedstock at 74dd3d46, by its .ci_support.
LIVE = sorted([
    *(("linux-64", cuda, blas, "sbsa") for cuda in ("CPU", "12.9", "13.0") for blas in ("mkl", "generic")),
    *(("linux-aarch64", cuda, "generic", "sbsa") for cuda in ("CPU", "12.9", "13.0")),
    ("linux-aarch64", "12.9", "generic", "tegra"),
])  # fmt: skip
RECIPES = (
    "recipe",
    "recipe/wheel",
    *(f"recipe/pyg/{path.parent.name}" for path in sorted(ROOT.glob("recipe/pyg/*/recipe.yaml"))),
)
_PACKAGE = re.compile(
    r"^package:\n  name: (\S+)\n  version: (\S+)$.*?^  string: (\S+)$", re.MULTILINE | re.DOTALL
)
_CALL = "import sys; from conda_build.cli.main_{} import execute; sys.exit(execute(sys.argv[1:]))"

pytestmark = pytest.mark.long
with_conda_smithy = pytest.mark.skipif(
    not shutil.which("conda-smithy"), reason="conda-smithy is not installed here"
)
with_conda_build = pytest.mark.skipif(
    not ENVIRONMENT, reason="MEGABUILD_TEST_CONDA_BUILD names no environment with conda-build"
)


@with_conda_build
@pytest.mark.parametrize("name", available(ROOT))
def test_conda_build_renders_the_names_and_hashes_of_the_plan(name: str, tmp_path: Path) -> None:
    config = load(ROOT, name)
    recipe = recipe_of(ROOT, config)
    rendered = conda_build("render", recipe, config.path, tmp_path, CONDA_SUBDIR=config.platform)
    found = {f"{name}-{version}-{build}.conda" for name, version, build in _PACKAGE.findall(rendered)}
    assert found == {one.file_name for one in render(config, recipe)}


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder with a rehearsal's packages, whose state is moved aside: paths are part of what is compiled."""
    output = tmp_path_factory.mktemp("output")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    options = ("--engine", "host", "--python", python)
    done = rehearse(CONFIG, output, *options, TORCH_CCACHE="no-object-cache")
    assert done.returncode == 0, done.stdout[-5000:]
    (output / f"{CONFIG}-rehearsal").rename(output / "driver")
    return output


@pytest.mark.parametrize("tool", ["rattler-build", pytest.param("conda-build", marks=with_conda_build)])
def test_a_rehearsal_without_the_driver_gives_its_files(
    tool: str, rehearsal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = rehearsal / f"{CONFIG}-rehearsal"
    variant = rehearsal / "driver" / "variant.yaml"
    (channel,) = json.loads((rehearsal / "driver" / "job.json").read_text())["channels"]
    recipe, out = ROOT / "recipe" / "recipe.yaml", state / "out"
    monkeypatch.setenv("TORCH_TREE", str(state / "tree"))
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    if tool == "conda-build":
        options = f"--override-channels -c {channel} --output-folder {out} --package-format 2 --no-build-id --no-test"
        conda_build("build", recipe, variant, tmp_path, *options.split())
    else:
        plain_engine.build(
            {
                "recipes": [str(recipe)],
                "variant_config": [str(variant)],
                "channel": [channel],
                "output_dir": str(out),
                "no_build_id": True,
                "test": "skip",
            }
        )
    state.rename(rehearsal / tool)
    view = without_build_folder if tool == "conda-build" else lambda _, content: content
    theirs, ours = (
        contents(folder, tmp_path, view) for folder in (rehearsal / tool / "out", rehearsal / "packages")
    )
    assert len(ours) == 5
    assert sorted(theirs) == sorted(ours)
    for name, files in ours.items():
        assert theirs[name] == files, name


def contents(
    folder: Path, temporary: Path, view: Callable[[str, bytes], bytes]
) -> Mapping[str, Mapping[str, Entry]]:
    """Return the files of each package, with the driver's dates and orders, without the copy of the recipe."""
    found = {}
    for package in sorted(folder.glob("**/linux-64/*.conda")):
        normalise(package, temporary / package.name, 0x6A000000, level=1, local=True)
        files = entries(temporary / package.name, view)
        found[package.name] = {path: files[path] for path in files if not path.startswith("info/recipe/")}
    return found


def without_build_folder(path: str, content: bytes) -> bytes:
    """Return a file as it would be if conda-build built all outputs in one folder, as the other two do.

    The folder is in scripts' first lines, byte code and RPATHs, so in build IDs and in the hashes of all these.
    """
    if content[:4] == b"\x7fELF":
        library = ElfFile(content)
        kept = b"".join(library.content(name) for name in library.sections if name != ".note.gnu.build-id")
        folders = sorted(folder.rstrip("/") for folder in library.rpath())
        return re.sub(
            re.escape(":".join(library.rpath()).encode()) + b"\0+", ":".join(folders).encode(), kept
        )
    if path == "info/paths.json" or path.endswith(".dist-info/RECORD"):
        content = re.sub(rb'sha256(=|": ")[\w-]+', b"", content)
    return re.sub(rb"/[^\0\n]*?_placehold[a-z_]*", b"PREFIX", content)


def conda_build(command: str, recipe: Path, config: Path, folder: Path, *options: str, **environ: str) -> str:
    """Call conda-build's function for a command and return what it printed.

    `-m` after `-e`: conda-build reads the recipe's own conda_build_config.yaml between the two.
    """
    words = [str(recipe.parent), "-e", str(config), "-m", str(config), *options]
    ended = subprocess.run(
        [f"{ENVIRONMENT}/bin/python", "-c", _CALL.format(command), *words],
        env={**os.environ, "CONDA_BLD_PATH": str(folder), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


@with_conda_smithy
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_linter_has_nothing_to_say(recipe: str) -> None:
    said = run("recipe-lint", recipe, cwd=ROOT)
    assert said.splitlines()[-1] == f"{recipe} is in fine form"


@with_conda_smithy
@pytest.mark.parametrize(
    "folder", [path.parent for path in sorted(ROOT.glob("contrib/pyg-feedstocks/*/recipe.yaml"))]
)
def test_the_linter_has_nothing_to_say_of_a_recipe_for_a_feedstock(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "recipe")  # with copies of the files that links name
    (tmp_path / "conda-forge.yml").write_text("conda_build_tool: rattler-build\n")
    said = run("recipe-lint", "recipe", cwd=tmp_path)
    assert said.splitlines()[-1] == "recipe is in fine form"


@with_conda_smithy
@pytest.mark.skipif(not PINNING, reason="CONDA_FORGE_PINNING names no pinning")
def test_a_rerender_leaves_our_files_and_its_configs_are_built_as_ours(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    run("rerender", "--no-check-uptodate", "-e", PINNING, "--feedstock_directory", str(clone), cwd=clone)
    changed = git(clone, "diff", "--name-only", "--diff-filter=MD", "HEAD").split()
    assert set(changed) == {f".ci_support/{name}.yaml" for name in matrix.generate(clone)}
    theirs = set(available(clone))
    assert linux_configs(load(clone, name) for name in theirs) == LIVE, "as the feedstock has"
    workflow = (clone / ".github" / "workflows" / "conda-build.yml").read_text()
    assert "namespace-profile-16cpu-on-linux-64" in workflow
    assert "ubuntu-latest" not in workflow
    platforms = {load(clone, name).platform for name in theirs}
    assert platforms == set(matrix.PLATFORMS), "and no win-64"
    matrix.write(clone)
    git(clone, "add", "--all")
    assert git(clone, "diff", "--name-only", "--diff-filter=MD", "HEAD") == ""
    assert theirs < set(available(clone))
    for name in theirs:
        config = load(clone, name)
        packages = render(config, recipe_of(clone, config))
        assert len(packages) == (9 if config.cuda_version else 7), name


def linux_configs(configs: Iterable[Config]) -> list[tuple[str, ...]]:
    """Return platform, CUDA, BLAS and kind of ARM machine of configs for Linux, sorted."""
    found = []
    for config in configs:
        if config.platform.startswith("linux"):
            machine = config.variant.get("arm_variant_type", ("sbsa",))
            found.append((config.platform, config.cuda_version or "CPU", config.blas, *machine))
    return sorted(found)


def run(*words: str, cwd: Path) -> str:
    ended = subprocess.run(["conda-smithy", *words], cwd=cwd, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
