"""What the driver makes of a feedstock that is not this repository."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from small_files import write
from tiny import provider

from command_line import root as command_root
from command_line.build_options import BuildOptions
from command_line.run_command import Invocation
from command_line.running import ConfigRequest
from groundwork.channel import Channel
from groundwork.errors import ConfigError, IsolationError, ProviderError, UsageError
from groundwork.machine import machine_platform
from megabuild.configs.config import (
    CONFIG_FOLDER,
    available,
    check_feedstock,
    list_command,
    list_configs,
    load,
    of_provider,
    python_version,
    recipe_of,
    select,
)
from megabuild.configs.overrides import use_provider
from megabuild.configs.provider_name import ProviderName
from megabuild.configs.render import render
from megabuild.isolation.base import Host
from megabuild.isolation.engine import Engine
from megabuild.plan import object_cache, planning, tree_reuse
from megabuild.plan.choose_isolation import choose_isolation
from megabuild.plan.options import Options
from megabuild.plan.recipe_parts import part_of, parts
from megabuild.plan.run_choices import RunChoices
from megabuild.plan.torch_version import with_torch
from megabuild.plan.tree_reuse import TreeUse
from megabuild.providers.environment import Environment
from megabuild.run import pytorch
from megabuild.run.outlook import look_ahead
from megabuild.run.plan_report import plan_lines, plan_result

MACHINE = machine_platform()
SINGLE = f"{MACHINE.replace('-', '_')}_"
RECIPE = """\
schema_version: 1
context: {name: small, version: "1"}
package: {name: "${{ name }}", version: "${{ version }}"}
build: {noarch: generic}
"""
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a feedstock of these files."""

    def make(recipe: str = RECIPE, **files: str) -> Path:
        root = tmp_path / "small-feedstock"
        for name, text in {"recipe/recipe.yaml": recipe, **files}.items():
            write(root / name, text)
        return root

    return make


def options(root: Path, name: str = SINGLE, **given: Any) -> Options:
    return Options(
        config=load(root, name), root=root, output=root / "output", cache=root / "cache", own=False, **given
    )


# ------------------------------------------------------------------------------------------------ the recipe


def test_a_recipe_for_conda_build_is_named_with_what_converts_it(make: Make) -> None:
    root = make(**{"recipe/meta.yaml": "package:\n"})
    check_feedstock(root)  # it has both
    (root / "recipe" / "recipe.yaml").unlink()
    with pytest.raises(ConfigError, match="conda-build") as old:
        check_feedstock(root)
    assert "conda-recipe-manager" in old.value.remedy
    answer = call(Invocation(log_folder=root), "build", "--root", str(root), "--plan")
    assert answer.exit_code == ConfigError.exit_code


def test_only_this_projects_recipe_depends_on_the_provider(make: Make) -> None:
    root = make(**{"recipe/local/recipe.yaml": RECIPE})
    config = replace(load(root, SINGLE), provider=ProviderName.LOCAL)
    assert recipe_of(root, config) == root / "recipe" / "recipe.yaml"
    assert (
        recipe_of(root, replace(config, torch_version="2.13.0")) == root / "recipe" / "local" / "recipe.yaml"
    )


def test_a_folder_without_a_recipe_is_no_feedstock(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        command_root.feedstock(tmp_path)
    write(tmp_path / "recipe" / "recipe.yaml", "")
    assert command_root.feedstock(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a: ['1']\nzip_keys:\n  - if: linux\n    then: [a]\n", "line 3, column 7", "a sequence is expected"),
        ("a:\n  if: linux\n  then: 3\n", "line 2, column 5", "must be a list"),
        ("a: [1\nb: {", "2:", "illegal placement"),
    ],
)
def test_an_error_in_variants_names_line_and_reason(make: Make, text: str, place: str, reason: str) -> None:
    root = make(**{"recipe/variants.yaml": text})
    with pytest.raises(ConfigError) as error:
        load(root, SINGLE)
    assert place in error.value.message
    assert reason in error.value.message
    assert "Span" not in error.value.message, "Rust's debug form"


# ------------------------------------------------------------------------------------------------ its configs


def test_without_conda_smithys_files_the_values_beside_the_recipe_make_one_config(make: Make) -> None:
    root = make(**{"recipe/conda_build_config.yaml": "lib:\n  - '1'  # [linux or osx]\n  - '2'  # [win]\n"})
    assert available(root) == (SINGLE,)
    config = load(root, SINGLE)
    assert (config.platform, config.provider, config.variant["lib"]) == (MACHINE, "conda-forge", ("1",))
    write(root / "recipe" / "variants.yaml", "lib: ['3']\n")  # the engine's own name comes first
    assert load(root, SINGLE).variant["lib"] == ("3",)


def test_the_command_that_lists_configs_has_their_folder_as_one_word(tmp_path: Path) -> None:
    root = tmp_path / "my feedstock"
    assert shlex.split(list_command(root)) == ["ls", str(root / CONFIG_FOLDER)]


def test_a_name_that_leads_elsewhere_is_no_config(make: Make) -> None:
    names = ("linux_64_", "..", ".hidden", "\x1b[31mred", "a b")
    root = make(**{f"{CONFIG_FOLDER}/{name}.yaml": "a: ['1']\n" for name in names})
    assert available(root) == ("linux_64_",)


def test_a_config_may_be_named_by_its_file(make: Make) -> None:
    names = ("linux_64_a", "linux_64_b", "linux_aarch64_a")
    root = make(**{f"{CONFIG_FOLDER}/{name}.yaml": "a: ['1']\n" for name in names})
    assert load(root, "linux_64_a.yaml").name == "linux_64_a"
    assert select(names, "linux_64_*") == select(names, "linux_64_*.yaml") == names[:2]
    assert select(names, "*_a.yaml") == (names[0], names[2])
    with pytest.raises(UsageError, match=r"'linux_64\.yaml': no config matches"):
        select(names, "linux_64.yaml")
    with pytest.raises(UsageError):
        select(names, "LINUX_64_A")


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("linux_64_c", "did you mean linux_64_b or linux_64_a? List all: ls "),
        ("other", "list all configs: ls "),
    ],
)
def test_the_configs_that_an_unknown_name_is_like_are_named(name: str, guess: str, make: Make) -> None:
    files = {f"{CONFIG_FOLDER}/{known}.yaml": "a: ['1']\n" for known in ("linux_64_b", "linux_64_a")}
    with pytest.raises(ConfigError, match=f"^{name}: unknown config$") as raised:
        load(make(**files), name)
    assert raised.value.remedy.startswith(guess)


@pytest.mark.parametrize(
    ("pin", "version"),
    [
        ("3.13.* *_cp313", "3.13"),
        ("3.14.* *_cp314t", "3.14t"),
        ("3.12.* *_cpython", "3.12"),
        ("3.13", "3.13"),
    ],
)
def test_a_free_threaded_python_is_another_one(pin: str, version: str) -> None:
    assert python_version(pin) == version


def test_a_key_that_is_repeated_for_a_zip_does_not_hide_the_other_configs(make: Make) -> None:
    two = "cuda_compiler_version: ['12.9', '12.9']\nvariant: [a, b]\nzip_keys: [[cuda_compiler_version, variant]]\n"
    root = make(
        **{f"{CONFIG_FOLDER}/linux_aarch64_two.yaml": two, f"{CONFIG_FOLDER}/linux_64_.yaml": "a: ['1']\n"}
    )
    found = list_configs(root, available(root))
    document: Any = found.document
    assert [row["cuda_version"] for row in document["configs"]] == [None, "12.9"]
    assert "Pythons" not in found.lines[0].split()  # a column that no config has something for


def test_a_property_that_only_some_configs_have_is_a_column(make: Make) -> None:
    python = "python: ['3.12.* *_cpython']\n"
    root = make(
        **{f"{CONFIG_FOLDER}/linux_64_a.yaml": "a: ['1']\n", f"{CONFIG_FOLDER}/linux_64_b.yaml": python}
    )
    heads, *rows = list_configs(root, available(root)).lines
    assert heads.split() == ["config", "CUDA", "Pythons", "provider"]
    assert ["3.12" in row.split() for row in rows] == [False, True]


# ------------------------------------------------------------------------------------------------ what is asked of it


def test_what_only_pytorchs_recipe_can_do_is_refused_for_another(make: Make) -> None:
    root = make()
    given: dict[str, Any] = {
        "rehearse": True, "optimization": "0", "arch-list": "9.0", "python": ("3.12",), "upstream-tests": True,
    }  # fmt: skip
    for name, value in given.items():
        field = "pythons" if name == "python" else name.replace("-", "_")
        with pytest.raises(UsageError, match=r"no variant key \w+") as raised:
            planning.overrides_from_options(options(root, **{field: value}))
        assert raised.value.remedy == f"omit --{name}"
    with pytest.raises(UsageError, match="torch_version"):
        with_torch(load(root, SINGLE), "2.14.1", None)
    assert planning.overrides_from_options(options(root)) == {}


def test_the_local_provider_is_for_configs_that_name_none(make: Make, repository: Path) -> None:
    root = make(**{f"{CONFIG_FOLDER}/linux_64_.yaml": "channel_sources: [conda-forge]\nb: ['1']\nc: ['2']\n"
                   "zip_keys: [[channel_sources, b], [channel_sources, b, c]]\n"})  # fmt: skip
    config = use_provider(load(root, "linux_64_"), ProviderName.LOCAL, {})
    assert config.provider == ProviderName.LOCAL
    assert "channel_sources" not in config.variant  # which the engine would hash
    assert config.zip_keys == (("b", "c"),)
    asked = BuildOptions(run=RunChoices(), provider=ProviderName.LOCAL)
    request = ConfigRequest(
        file=load(root, "linux_64_"), build_options=asked, root=root, output=root, earlier=()
    )
    assert request.options().config == config
    assert of_provider(root, ["linux_64_"], ProviderName.LOCAL) == ("linux_64_",)
    with pytest.raises(UsageError, match="conda-forge"):
        use_provider(load(repository, "linux_64_cpu"), ProviderName.LOCAL, {})
    made = Environment(channels=(Channel.of_folder(root),), pythons=())
    assert choose_isolation(None, config, made).name == "bubblewrap"


def test_the_caches_of_two_feedstocks_are_not_shared(make: Make, repository: Path) -> None:
    one = options(make())
    other = replace(one, root=one.root.with_name("other-feedstock"))
    own = replace(one, root=repository, own=True)
    assert len({one.cache_name, other.cache_name, own.cache_name}) == 3
    assert own.cache_name == own.run_name == one.run_name == SINGLE


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("has_dates", [True, False])
def test_no_program_of_another_feedstock_runs_outside_its_isolation(
    own: bool, has_dates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytorch, "staging_sentence", lambda _: "")
    monkeypatch.setattr(tree_reuse, "prepare_tree", lambda *_: None)
    monkeypatch.setattr(object_cache, "identify", lambda *_: "")
    ran = tmp_path / "ran"
    if has_dates:
        lines = ["import pathlib, types", "def mend(_):", f"    pathlib.Path({str(ran)!r}).touch()"]
        text = "\n".join([*lines, "    return types.SimpleNamespace(seconds=0)"])
        write(tmp_path / "recipe/tree_dates.py", text)
    options = SimpleNamespace(state=tmp_path, recipes=tmp_path / "recipe", own=own)
    progress = SimpleNamespace(plan=SimpleNamespace(options=options, staging=None), tree=None)
    pytorch._prepare_tree(cast(Any, progress), Host())
    assert ran.exists() == (own and has_dates)


def test_the_plan_of_another_recipe_speaks_of_no_pytorch(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make()
    monkeypatch.setattr(planning, "choose_provider", provider(root, pythons=()))
    plan = planning.make_plan(options(root, engine=Engine.HOST), print)
    outlook = look_ahead(plan, {}, print)
    lines = plan_lines(outlook)
    assert lines[0].startswith(f"{SINGLE}: ")
    assert ("small-feedstock" in lines[0], lines[0].endswith(f" {MACHINE}")) == (True, True)
    assert [item.package.name for item in plan.items] == ["small"]
    assert "torch" not in "\n".join(lines).lower()
    assert "no estimate" in lines[-1]
    assert (plan.stages, outlook.progress.tree.use, outlook.progress.rounds) == (False, TreeUse.NONE, 1)


def test_another_platforms_config_is_planned_and_not_built(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = "linux_aarch64_" if MACHINE != "linux-aarch64" else "linux_64_"
    root = make(**{f"{CONFIG_FOLDER}/{foreign}.yaml": "a: ['1']\n"})
    monkeypatch.setattr(planning, "choose_provider", provider(root, pythons=()))
    reason = f"{foreign} is built on {foreign.replace('_', '-').rstrip('-')} only; this machine is {MACHINE}"
    plan = planning.preview_plan(options(root, foreign, engine=Engine.HOST), print)
    with pytest.raises(IsolationError, match=reason) as raised:
        plan.usable_isolation()
    assert raised.value.remedy.endswith(f" machine, or choose a config for {MACHINE}")
    shown = plan_result(look_ahead(plan, {}, print))
    assert (shown.exit_code, shown.lines[2]) == (4, f"✗ cannot be built here: {reason}")
    # a build says so before it asks a channel
    monkeypatch.setattr(planning, "choose_provider", None)
    with pytest.raises(IsolationError, match=reason):
        planning.make_plan(options(root, foreign, engine=Engine.HOST), print)


def test_without_a_name_the_configs_of_all_platforms_are_listed(make: Make) -> None:
    names = [f"linux_64_python3.{minor}.____cpython" for minor in range(10, 15)] + ["osx_arm64_"]
    root = make(**{f"{CONFIG_FOLDER}/{name}.yaml": "a: ['1']\n" for name in names})
    answer = call(Invocation(log_folder=root), "build", "--root", str(root))
    assert answer.exit_code == 0
    assert set(names) < set(answer.output.split())
    assert max(map(len, answer.output.splitlines())) <= 80
    assert "osx-arm64:" in answer.output


def test_the_command_line_finds_the_feedstock_and_puts_nothing_elsewhere(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make()
    with monkeypatch.context() as above:
        above.chdir(root.parent)
        assert command_root.feedstock(Path(root.name)) == root
    invocation = Invocation(log_folder=root)
    answer = call(invocation, "build", "--root", str(root), "--plan", "--rehearse")
    assert (answer.exit_code, SINGLE in answer.stderr) == (2, True)
    assert invocation.log_folder == root / "output" / "logs"
    assert sorted(path.name for path in root.iterdir()) == ["recipe"]


@pytest.mark.parametrize("text", ['git.head_rev(".")', 'load_from_file("a.json").version'])
def test_an_experimental_function_is_named(text: str, make: Make) -> None:
    recipe = f"package:\n  name: x\n  version: ${{{{ {text} }}}}\n"
    root = make(**{"recipe/recipe.yaml": recipe})
    answer = call(Invocation(log_folder=root), "build", "--root", str(root), "--plan")
    name = text.partition("(")[0]
    assert answer.exit_code == 3
    assert f"recipe.yaml:3: {name}: rattler-build calls it experimental" in answer.stderr
    assert "JinjaError" not in answer.stderr


# ------------------------------------------------------------------------------------------------ what it depends on


def test_a_recipe_sees_no_secret_while_it_is_rendered(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINSTAR_TOKEN", "secret")
    monkeypatch.setenv("PLAIN", "seen")
    asked = (f"${{{{ env.get('{name}', default='0') }}}}" for name in ("PLAIN", "BINSTAR_TOKEN"))
    root = make(RECIPE.replace('"1"', f'"1.{".".join(asked)}"'))
    (package,) = render(load(root, SINGLE), root / "recipe" / "recipe.yaml")
    assert package.version == "1.seen.0"


@pytest.mark.parametrize("config", ["linux_64_cuda130", "linux_64_cpu_debian", "linux_64_cpu_wheel"])
def test_this_repositorys_packages_are_not_named_by_their_channels(repository: Path, config: str) -> None:
    own = load(repository, config)
    assert not any(package.names_channels for package in render(own, recipe_of(repository, own)))
    other = replace(own, variant={**own.variant, "channel_sources": ("elsewhere",)})
    names = [package.file_name for package in render(own, recipe_of(repository, own))]
    assert [package.file_name for package in render(other, recipe_of(repository, own))] == names


def test_of_another_recipe_every_file_counts_that_no_output_names(make: Make) -> None:
    root = make(**{
        "recipe/build.sh": "source helper.sh\n", "recipe/helper.sh": "", "recipe/0001.patch": "",
        "recipe/patches/0002.patch": "", "recipe/test.py": "print 'no Python of today'\n",
        "recipe/README.md": "", "recipe/conda_build_config.yaml": "a: ['1']\n", "recipe/other/recipe.yaml": RECIPE,
    })  # fmt: skip
    (root / "recipe" / "loop").symlink_to(root / "recipe", target_is_directory=True)
    staging, packages = parts(root / "recipe" / "recipe.yaml", own=False)
    assert staging is None
    (part,) = packages.values()
    assert sorted(part.files) == ["0001.patch", "build.sh", "helper.sh", "patches/0002.patch", "test.py"]


def test_what_only_tests_name_does_not_count_for_a_staging(make: Make) -> None:
    root = make(
        "outputs:\n- staging: {name: lib-build}\n  build: {script: make}\n"
        "- package: {name: lib, version: '1'}\n  inherit: lib-build\n"
        "  tests: [{files: {recipe: [check]}, script: x}]\n",
        **{"recipe/check/main.c": "", "recipe/flags.sh": ""},
    )
    staging, packages = parts(root / "recipe" / "recipe.yaml", own=False)
    assert staging is not None
    assert set(staging.files) == {"flags.sh"}
    assert set(packages["lib"].files) == {"check/main.c", "flags.sh"}


@pytest.mark.parametrize("text", ["def (\n", "x = 1\0\n"], ids=["syntax", "null byte"])
def test_a_script_that_is_no_python_is_named(text: str, make: Make) -> None:
    recipe = RECIPE.replace("generic", "generic, script: {file: build.py}")
    root = make(recipe, **{"recipe/build.py": text})
    with pytest.raises(ConfigError, match=r"build\.py: invalid Python: "):
        parts(root / "recipe" / "recipe.yaml", own=True)


def test_a_name_with_an_expression_stands_for_all_that_it_may_mean(make: Make) -> None:
    recipe = make().joinpath("recipe", "recipe.yaml")
    names = ("${{ name }}", "lib${{ name }}", "${{ name }}-dev", "plain")
    recipe.write_text(
        "outputs:\n" + "".join(f"- package: {{name: '{name}', version: '1'}}\n" for name in names)
    )
    known = parts(recipe, own=False)[1]
    assert part_of("plain", known) == known["plain"]
    found = part_of("libsmall", known)
    assert found is not None
    assert all(known[name].text in found.text for name in names[:2])
    assert known[names[2]].text not in found.text


_LINKED = [f"{CONFIG_FOLDER}/{SINGLE}x.yaml", "recipe/variants.yaml", CONFIG_FOLDER]
_CONTEXT = 'context: {name: small, version: "1"}'
_TEN = "${{ aPREVIOUS }}" * 10
_DOUBLING = "".join(f"  a{n}: {_TEN.replace('PREVIOUS', str(n - 1))}\n" for n in range(1, 11))


@pytest.mark.parametrize("path", _LINKED)
def test_a_link_out_of_a_feedstock_is_not_followed(path: str, make: Make, tmp_path: Path) -> None:
    root = make()
    secret = tmp_path / "secret"
    secret.mkdir() if path == CONFIG_FOLDER else secret.write_text("root:*:20228:0\n")
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).symlink_to(secret)
    with pytest.raises(ConfigError, match=path) as refused:
        check_feedstock(root)
    assert "root:" not in refused.value.message


@pytest.mark.parametrize("target", ["variants.yaml", "nowhere"])
def test_a_link_that_leads_nowhere_is_refused(target: str, make: Make) -> None:
    root = make()
    (root / "recipe" / "variants.yaml").symlink_to(target)
    with pytest.raises(ConfigError, match="to no file"):
        check_feedstock(root)


def test_a_build_string_that_is_a_path_is_refused(make: Make) -> None:
    root = make(RECIPE.replace("noarch: generic", "string: ../../../x"))
    with pytest.raises(ConfigError, match=r"\.\./\.\./\.\./x"):
        planning.render_recipe(options(root), {})


@pytest.mark.parametrize("bomb", [_DOUBLING, "  a1: ${{ a0 * 1000000000 }}\n"])
@pytest.mark.parametrize("form", ["block", "flow"])
def test_a_recipe_that_takes_all_memory_is_refused(bomb: str, form: str, make: Make) -> None:
    """The engine would end the whole process."""
    context = f"context:\n  name: x\n  version: '1'\n  a0: xxxxxxxxxx\n{bomb}"
    if form == "flow":
        items = re.sub(r"  (\w+): (.*)\n", r'\1: "\2", ', context.partition("\n")[2].replace("'", ""))
        context = f"context: {{{items}}}"
    root = make(RECIPE.replace(_CONTEXT, context))
    with pytest.raises(ConfigError, match="context grows"):
        render(load(root, SINGLE), recipe_of(root, load(root, SINGLE)))


def test_a_plan_needs_no_channel_and_a_build_does(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "http://127.0.0.1:9")
    root = make()
    words = "build", "--root", str(root), "--output", str(root / "output")
    on_host = (*words, "--engine", "host")
    planned, built = (call(Invocation(log_folder=root), *on_host, *more) for more in (("--plan",), ()))
    assert (planned.exit_code, built.exit_code) == (0, ProviderError.exit_code)
    assert re.search(r"^small-1-\w+_0 +build$", planned.output, re.MULTILINE)
    assert any("not asked" in line and "conda-forge" in line for line in planned.output.splitlines())
