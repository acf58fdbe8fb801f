"""Parts of recipes that are written twice, because a recipe has no way to share them, differ only as listed here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pyg_extensions.table import EXTENSIONS, Extension, recipes

SDISTS = tuple(extension for extension in EXTENSIONS if extension.has_sdist)
MODEL = SDISTS[0]
#: Lines of an extension's recipe that each writes for itself.
OWN = re.compile(r"# .+, compiled against one pytorch package|  build: \$\{\{ |  summary: ")


@pytest.fixture
def outputs(repository: Path) -> list[dict[str, Any]]:
    recipe = YAML(typ="safe", pure=True).load(repository / "recipe" / "recipe.yaml")
    return list(recipe["outputs"])


def flat(items: Iterable[Any], condition: str = "") -> Iterator[str]:
    """Yield each requirement after the conditions that it depends on."""
    for item in items:
        if isinstance(item, str):
            yield f"{condition}{item}"
            continue
        inside = f"{condition}{item['if']}: "
        for key, start in (("then", inside), ("else", f"not {inside}")):
            value = item.get(key, [])
            yield from flat([value] if isinstance(value, str) else value, start)


def test_outputs_that_run_ninja_have_the_same_environment(outputs: list[dict[str, Any]]) -> None:
    """Without a header of staging's environment, ninja would recompile libtorch for each Python."""
    staging = next(output["requirements"] for output in outputs if "staging" in output)
    (pytorch,) = (
        output["requirements"] for output in outputs if output.get("package", {}).get("name") == "pytorch"
    )
    base = "python ${{ torch_python_base }}.*"
    cross = "build_platform != target_platform: "
    assert set(flat(staging["build"])) ^ set(flat(pytorch["build"])) == {f"{cross}{base}", f"{cross}python"}
    only_staging = set(flat(staging["host"])) - set(flat(pytorch["host"]))
    only_pytorch = set(flat(pytorch["host"])) - set(flat(staging["host"]))
    assert only_pytorch == {'${{ pin_subpackage("libtorch", exact=True) }}', "python"}
    assert only_staging == {base}


def test_the_two_flavours_of_linear_algebra_differ_in_magma_only(outputs: list[dict[str, Any]]) -> None:
    plain, magma = (
        output for output in outputs if output.get("package", {}).get("name") == "libtorch-cuda-linalg"
    )
    assert magma["requirements"]["host"].pop() == "libmagma-devel"
    assert magma["requirements"].pop("ignore_run_exports") == {"by_name": ["libmagma_sparse"]}
    text = repr(plain).replace("nomagma", "magma")
    assert text.split(", 'tests'")[0] == repr(magma).split(", 'tests'")[0]


def lines(extension: Extension, recipe: Path) -> list[str]:
    """Return the lines of a recipe with neutral names; the keys of a list in one line are lines, too."""
    text = recipe.read_text()
    for name, neutral in ((extension.conda, "CONDA"), (extension.name, "NAME"), (extension.key, "KEY")):
        text = re.sub(rf"(?<![a-z]){name}(?![a-z])", neutral, text)
    found: list[str] = []
    for line in text.splitlines():
        found += re.findall(r"\w+", line) if "_keys: [" in line else [line]
    return found


@pytest.mark.parametrize("extension", SDISTS[1:], ids=lambda extension: extension.name)
def test_recipes_of_extensions_with_an_archive_are_the_same(extension: Extension, repository: Path) -> None:
    """Each may have further lines, such as METIS's, but none of the first one's may be missing or changed."""
    paths = recipes(repository)
    model = lines(MODEL, paths[MODEL.conda])
    own = lines(extension, paths[extension.conda])
    lacking = [line[2:] for line in difflib.ndiff(model, own) if line.startswith("- ")]
    assert [line for line in lacking if not OWN.match(line)] == []
