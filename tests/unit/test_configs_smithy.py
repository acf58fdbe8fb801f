"""Config files that conda-smithy makes, of this recipe and of others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_files import write
from test_configs_matrix import SMITHY

from groundwork.errors import ConfigError
from megabuild.configs import config_file
from megabuild.configs.config import Config, available, list_configs, load
from megabuild.configs.overrides import chosen
from megabuild.configs.render import render

RECIPE = """\
schema_version: 1
package:
  name: taken
  version: "1"
build:
  number: 0
  string: h${{ hash }}_0
requirements:
  host:
    - python
  run:
    - if: is_rc
      then: candidate
    - own ==${{ own_version }}
about:
  license: MIT
"""


@pytest.fixture
def feedstock(tmp_path: Path) -> Path:
    (tmp_path / ".ci_support").mkdir()
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def config(feedstock: Path, text: str, name: str = "linux_64_a") -> Config:
    (feedstock / ".ci_support" / f"{name}.yaml").write_text(text)
    return load(feedstock, name)


def test_what_conda_smithy_writes_is_a_config(feedstock: Path) -> None:
    made = config(feedstock, SMITHY, "linux_64_blas_implmklcuda_compiler_version13.0is_rcFalse")
    assert (made.platform, made.accelerator, made.blas) == ("linux-64", "cuda130", "mkl")
    assert (made.provider, made.torch_version, made.pythons) == ("conda-forge", "2.13.0", ("3.12", "3.13"))
    assert made.zip_keys == (("cuda_compiler_version", "blas_impl"),)
    assert "pin_run_as_build" not in made.variant


def test_a_config_that_knows_nothing_of_pytorch_is_one_too(feedstock: Path) -> None:
    noarch = config(feedstock, "python_min:\n- '3.10'\nprovider:\n- nompi\n", "linux_64_")
    assert (noarch.platform, noarch.accelerator, noarch.provider) == ("linux-64", "cpu", "conda-forge")
    assert (noarch.torch_version, noarch.blas, noarch.pythons) == ("", "", ())
    assert [line.split()[0] for line in list_configs(feedstock, available(feedstock)).lines] == [
        "config",
        "linux_64_",
    ]


def test_a_platform_is_needed_and_numbers_stay(feedstock: Path) -> None:
    with pytest.raises(ConfigError, match="platform") as caught:
        config(feedstock, "python_min:\n- '3.10'\n", "whatever")
    assert "conda-smithy" in caught.value.remedy
    made = config(feedstock, "c_stdlib_version:\n- 2.10\npython_min: [3.10]\ntarget_platform: [osx-64]\n")
    numbers = (made.variant["c_stdlib_version"], made.variant["python_min"])
    assert numbers == (("2.10",), ("3.10",)), "as they are written"


def test_true_is_no_text_to_the_engine(feedstock: Path) -> None:
    recipe = feedstock / "recipe" / "recipe.yaml"
    found = {
        value: render(config(feedstock, SMITHY.replace("false", value) + "own_version: ['1']\n"), recipe)
        for value in ("false", "true", "'false'", "'true'")
    }
    assert "candidate" not in found["false"][0].run
    assert "candidate" in found["true"][0].run
    assert "candidate" in found["'false'"][0].run, "a text that is not empty is true"
    assert len({packages[0].build_string for packages in found.values()}) == 4


def test_what_it_left_out_is_taken_from_beside_the_recipe(feedstock: Path) -> None:
    """conda-smithy drops keys that it thinks unused; rattler-build reads both files, and so a plan has to."""
    (feedstock / "recipe" / "conda_build_config.yaml").write_text(
        "own_version:\n  - '1'  # [linux]\n  - '2'  # [osx]\nis_rc:\n  - true\nblas_impl:\n  - mkl\n  - generic\n"
    )
    made = config(feedstock, SMITHY)
    assert (made.variant["own_version"], made.variant["is_rc"]) == (("1",), ("false",))
    assert made.variant["blas_impl"] == ("mkl",)
    assert made.unquoted == {"is_rc"}
    assert [one.run for one in render(made, feedstock / "recipe" / "recipe.yaml")] == [("own ==1",)] * 2
    narrowed = chosen(made, {"python": ("3.12.* *_cpython",)})
    assert len(render(narrowed, feedstock / "recipe" / "recipe.yaml")) == 1


def test_a_recipe_may_have_an_empty_context(feedstock: Path) -> None:
    recipe = write(feedstock / "recipe/recipe.yaml", "context: {}\npackage: {name: x, version: '1'}\n")
    assert [package.name for package in render(config(feedstock, SMITHY), recipe)] == ["x"]


@pytest.mark.parametrize(
    "content",
    [b"a: [unclosed\n", b"context: {date: 2026-99-99}\n", b"context: {a: \x00}\n", b"\xff", None],
    ids=["YAML", "a date", "a null byte", "bytes", "missing"],
)
def test_a_recipe_that_cannot_be_read_is_named(feedstock: Path, content: bytes | None) -> None:
    recipe = feedstock / "recipe" / "recipe.yaml"
    recipe.unlink()
    if content is not None:
        recipe.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(f"{recipe}: cannot be rendered")):
        render(config(feedstock, SMITHY), recipe)


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with a file beside the recipe"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: ['1']\nzip_keys: {a: b}\n", "a list is expected"),
        ("a: ['1', '2']\nb: ['2']\nzip_keys:\n- [a, b]\n", "a has 2, b has 1"),
    ],
)
def test_broken_zips_are_told_by_the_configs_file(
    text: str, told: str, beside: bool, feedstock: Path
) -> None:
    if beside:
        (feedstock / "recipe" / "variants.yaml").write_text("own_version: ['1']\n")
    with pytest.raises(ConfigError, match=told) as caught:
        config(feedstock, f"{text}target_platform: [linux-64]\n")
    assert "linux_64_a.yaml" in str(caught.value)


@pytest.mark.parametrize(("test", "needs"), [("", ("pip",)), (", pip_check: false", ())])
def test_a_test_of_python_needs_pip_unless_it_says_otherwise(
    test: str, needs: tuple[str, ...], feedstock: Path
) -> None:
    recipe = feedstock / "recipe" / "recipe.yaml"
    recipe.write_text(f"{RECIPE}tests:\n  - python: {{imports: [taken]{test}}}\n")
    made = config(feedstock, SMITHY + "own_version: ['1']\n")
    assert render(made, recipe)[0].test == needs


@pytest.mark.parametrize("beside", ["", *config_file.BESIDE_RECIPE])
@pytest.mark.parametrize("is_generated", [True, False])
def test_a_config_of_conda_smithy_has_the_keys_next_to_the_recipe(
    beside: str, is_generated: bool, tmp_path: Path
) -> None:
    text = "a:\n- '1'\n"
    path = write(tmp_path / "linux_64_.yaml", config_file.stamped(text) if is_generated else text)
    if beside:
        write(tmp_path / "recipe" / beside, "a:\n- '2'\nb:\n- '3'\n")
    found = config_file.read(path, tmp_path / "recipe")
    wanted = {"a": ("1",)}
    if beside and not is_generated:
        wanted["b"] = ("3",)
    assert {key: found.variant[key] for key in found.variant.keys() & {"a", "b"}} == wanted


def test_a_config_of_an_impossible_size_is_not_read(feedstock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"a:\n- '1'\n# {'-' * 100}\n"
    assert config(feedstock, text).variant["a"] == ("1",)
    monkeypatch.setattr(config_file, "_LARGEST", 100)
    with pytest.raises(ConfigError, match=r"linux_64_a\.yaml: cannot be read: "):
        config(feedstock, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("3", 3),
        ("-3", -3),
        ("3.10", "3.10"),
        ("True", "True"),
        ("1e3", "1e3"),
        ("", ""),
    ],
)
def test_only_booleans_and_whole_numbers_are_no_text_to_the_engine(text: str, value: object) -> None:
    found = config_file.scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_instructions_of_conda_build_are_no_variants(feedstock: Path) -> None:
    text = "a: ['1']\nextend_keys: [a]\nignore_version: [numpy]\nignore_build_only_deps: [python]\n"
    made = config(feedstock, f"{text}target_platform: [linux-64]\n")
    assert set(made.variant) == {"a", "target_platform"}


@pytest.mark.parametrize("text", ["a: [", "b: ['1', '2']\nc: ['2']\nzip_keys:\n- [b, c]\n"])
@pytest.mark.parametrize("is_generated", [True, False])
def test_a_generated_file_that_is_broken_is_generated_again(
    is_generated: bool, text: str, feedstock: Path
) -> None:
    with pytest.raises(ConfigError) as broken:
        config(feedstock, config_file.stamped(text) if is_generated else text)
    assert (broken.value.remedy == config_file.REGENERATE) == is_generated
    assert is_generated or broken.value.remedy.startswith("correct the file")
