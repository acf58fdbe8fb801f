"""When a compile may be used again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from small_files import write
from test_run_places import tiny as tiny
from test_run_places import tiny_channel as tiny_channel
from tiny import ROOT, Tiny, provider

from groundwork.channel import Channel
from groundwork.errors import ConfigError, IntegrityError, PreflightError
from groundwork.files import sha256
from groundwork.machine import machine_platform
from megabuild.configs.config import load
from megabuild.configs.platforms import Platforms
from megabuild.configs.render import PlannedPackage
from megabuild.engine import output_folder
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine
from megabuild.plan import fingerprint, object_cache, planning, solving, tree_reuse
from megabuild.plan.changes import compare, phrases
from megabuild.plan.environment_inputs import EnvironmentInputs, Role
from megabuild.plan.extensions import ExtensionPlanner
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.plan import PlanItem, Task
from megabuild.plan.recipe_parts import parts
from megabuild.plan.tree_reuse import TreeUse
from megabuild.providers.environment import Environment, ProviderRequest
from megabuild.providers.provider import Provider
from pyg_extensions.sources import Sources

CORE = Fingerprint(
    compilers={"variant torch_optimization": "2"},
    packages={"host libprotobuf": "6.31.1 h0 aa"},
    source={"source tree": "1"},
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "recipe", tmp_path / "recipe")
    return tmp_path / "recipe" / "recipe.yaml"


PLAIN = PlannedPackage(
    name="a", version="1", build_string="0", build_number=0, file_name="a-1-0.conda", subdir="linux-64",
    python=None, build=(), host=(), run=(), constraints=(), test=(),
)  # fmt: skip
INHERITING = replace(PLAIN, staging_host=("libprotobuf",))


def facts(
    recipe: Path,
    *,
    variant: Mapping[str, tuple[str, ...]] | None = None,
    root: Path | None = None,
    output: str = "/x",
    solved: Mapping[str, str] = MappingProxyType({}),
    of_root: Mapping[str, str] = MappingProxyType({}),
) -> Fingerprint:
    part, _ = parts(recipe)
    variant = variant or {"torch_source": ("model",), "provider": ("debian",)}
    config = replace(load(ROOT.parents[2], "linux_64_cpu"), name="a", variant=variant, zip_keys=())
    options = Options(config=config, root=recipe.parent.parent, output=Path(output), cache=Path("/cache"))
    environment = Environment(channels=(Channel.parse("none"),), pythons=(), root=root, of_root=of_root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "environment", lambda *_: solved)
        return fingerprint.staging(part, options, [INHERITING], environment, Host())


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
def test_an_option_of_the_run_counts_where_staging_reads_its_key(tiny: Tiny, tmp_path: Path) -> None:
    """As --arch-list and --optimization do, which are no values of the config or of the provider."""
    tiny.root = tmp_path / "root"
    shutil.copytree(ROOT, tiny.root)
    plain, quick = (tiny.plan(optimization=value).staging for value in ("2", "0"))
    assert plain == quick, "its scripts do not name the key"
    script = tiny.root / "recipe" / "build_staging.sh"
    script.write_text(f'{script.read_text()}echo "$torch_optimization"\n')
    plain, quick = (tiny.plan(optimization=value).staging for value in ("2", "0"))
    assert changed(plain, quick) == ["torch_optimization 2 -> 0"]


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
def test_objects_of_other_configs_are_looked_for_with_what_the_provider_overrides(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its compiler is the installed one: objects of the config's own would be counted, and never found."""
    made = provider(tiny.channel, overrides={"torch_optimization": ("0",)})
    monkeypatch.setattr(planning, "choose_provider", made)
    monkeypatch.setattr(planning, "find_shared_objects", lambda _, given, __: repr(sorted(given.items())))
    assert "('torch_optimization', ('0',))" in tiny.plan().shared


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
def test_the_provider_is_asked_for_what_all_packages_of_a_run_require(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's and the extensions': a channel without their requirements cannot build them."""
    asked: list[ProviderRequest] = []
    choose = provider(tiny.channel)

    def ask(request: ProviderRequest) -> Provider:
        asked.append(request)
        return choose(request)

    monkeypatch.setattr(planning, "choose_provider", ask)
    extension = PlanItem(package=replace(PLAIN, name="an-extension"))
    task = Task(extension="a", python=None, recipe=Path("recipe.yaml"), items=(extension,), overrides={})
    monkeypatch.setattr(ExtensionPlanner, "render", lambda *_: [task])
    monkeypatch.setattr(ExtensionPlanner, "plan", lambda *_: ())
    for rehearse in (True, False):
        options = tiny.options(rehearse=rehearse)
        planning.survey_plan(options, lambda _: None)
        request = asked.pop()
        assert [package.name for package in request.planned] == [
            "tinylib",
            "tinypy",
            "tinypy",
            "an-extension",
        ]
        assert (request.config, request.cache) == (options.config, options.cache)
        assert request.rehearsal == rehearse


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
def test_extensions_get_the_values_of_the_run_and_records_those_of_the_provider_alone(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later run with kept environments has options of its own."""
    given: list[Environment] = []

    def plan(_: object, environment: Environment, *__: object) -> tuple[()]:
        given.append(environment)
        return ()

    monkeypatch.setattr(ExtensionPlanner, "plan", plan)
    of_provider = {"blas_impl": ("mkl",)}
    monkeypatch.setattr(planning, "choose_provider", provider(tiny.channel, overrides=of_provider))
    made = tiny.plan(optimization="0", pythons=("3.12",))
    of_run = {"torch_source": ("model",), "torch_optimization": ("0",), "python": ("3.12.* *_cpython",)}
    assert given[0].overrides == made.environment.overrides == {**of_provider, **of_run}
    assert made.provided == of_provider
    assert made.config.variant["torch_optimization"] == ("0",), "summaries name the values of the run"
    assert made.source == "model"


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
def test_a_plan_has_the_staging_of_the_last_run_where_no_change_has_an_effect(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the one that it needs, libtorch would be staged again."""
    adopted = tree_reuse.Adopted(fingerprint=CORE, without_effect=("idna 3.7 -> 3.10",))
    monkeypatch.setattr(tree_reuse, "adopt", lambda *_: adopted)
    made = tiny.plan()
    assert (made.staging, made.without_effect) == (CORE, adopted.without_effect)


@pytest.mark.parametrize(
    ("change", "has_same_text", "has_same_patches"),
    [
        (("debian/0001-look-for-fmt-once.patch", "debian/another.patch"), True, False),
        (("file: build_staging.sh", "file: another.sh"), False, True),
        (("url: ", "url: x"), False, True),
    ],
    ids=["patches", "script", "source"],
)
def test_a_list_of_patches_is_no_part_of_the_other_text(
    change: tuple[str, str], has_same_text: bool, has_same_patches: bool, repository: Path, tmp_path: Path
) -> None:
    text = (repository / "recipe" / "recipe.yaml").read_text()
    changed = text.replace(*change, 1)
    assert changed != text
    found = []
    for number, content in enumerate((text, changed)):
        recipe = write(tmp_path / str(number) / "recipe.yaml", content)
        part, _ = parts(recipe)
        assert part is not None
        found.append(part)
    before, after = found
    assert (before.text == after.text, before.patches == after.patches) == (has_same_text, has_same_patches)
    assert before.names >= {"torch_source"}, "words of conditions in the list count"


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
def test_packages_get_the_date_of_their_plan(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1750000000")
    assert tiny.plan().date == 1_750_000_000


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
@pytest.mark.parametrize(
    ("remote", "fetches"),
    [(set(), False), ({"pytorch_scatter"}, True), ({"pyg-lib"}, False)],
    ids=["local", "remote", "remote of another extension"],
)
def test_builds_get_the_network_for_sources_of_their_extensions_that_are_not_local(
    remote: set[str], fetches: bool, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, bool]] = []

    def isolation(*_: object, **flags: bool) -> Host:
        asked.append(flags)
        return Host()

    planner = replace(ExtensionPlanner.find(tiny.options(), lambda _: None), sources=Sources(remote=remote))
    scatter = Task(
        extension="pytorch_scatter", python=None, recipe=Path("recipe.yaml"), items=(), overrides={}
    )
    monkeypatch.setattr(ExtensionPlanner, "find", lambda *_: planner)
    monkeypatch.setattr(ExtensionPlanner, "render", lambda *_: [scatter])
    monkeypatch.setattr(ExtensionPlanner, "plan", lambda *_: ())
    monkeypatch.setattr(planning, "isolation_of", isolation)
    tiny.plan()
    assert asked == [{"fetches_sources": fetches}]


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
@pytest.mark.parametrize("own", [True, False])
def test_the_parts_of_a_recipe_are_read_from_the_folder_of_all_recipes(
    own: bool, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe of official wheels is below it, and runs scripts that it shares with the others."""
    asked: list[object] = []

    def read(recipe: Path, top: Path | None = None, **flags: bool) -> object:
        asked.append((recipe, top, flags))
        return parts(recipe, top, **flags)

    monkeypatch.setattr(planning, "parts", read)
    options = tiny.options(own=own)
    planning.make_plan(options, lambda _: None)
    assert asked == [(options.recipe, options.root.absolute() / "recipe", {"own": own})]


def stage(
    recipe: Path,
    packages: Sequence[PlannedPackage],
    *,
    own: bool = True,
    variant: Mapping[str, tuple[str, ...]] = MappingProxyType({"torch_source": ("official",)}),
    overrides: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    build_platform: str = "linux-64",
    isolation: Isolation = Host(),  # noqa: B008  # it cannot be changed
    solve: Callable[..., Mapping[str, str]] = lambda specs, *_: dict.fromkeys(specs, "1 h0 aa"),
) -> Fingerprint:
    """The facts of a staging for linux-64 that solves its environments with ``solve``."""
    known = load(ROOT.parents[2], "linux_64_cpu")
    config = replace(known, variant=variant, zip_keys=(), build_platform=build_platform)
    options = Options(
        config=config, root=recipe.parent.parent, output=Path("/x"), cache=Path("/cache"), own=own
    )
    environment = Environment(channels=(Channel.parse("none"),), pythons=(), overrides=overrides)
    part, _ = parts(recipe, own=own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "environment", solve)
        return fingerprint.staging(part, options, packages, environment, isolation)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("key", ["torch_version", "torch_sha256", "tool"])
def test_a_release_or_a_pin_of_another_feedstock_counts_for_every_object(
    key: str, own: bool, recipe: Path
) -> None:
    """Its scripts may not look for changed sources, and may read any variable."""
    write(recipe.parent / "build_staging.sh", "# torch_version torch_sha256")
    old, new = (stage(recipe, [INHERITING], own=own, variant={key: (value,)}) for value in "12")
    (role,) = (change.role for change in compare(old, new, EnvironmentInputs()))
    expected = Role.CONFIGURE if key == "tool" else Role.SOURCE
    assert role is (expected if own else Role.COMPILERS)


def test_environments_of_staging_are_for_the_machine_that_compiles_and_for_the_target(recipe: Path) -> None:
    asked: dict[tuple[str, ...], str] = {}

    def solve(specs: tuple[str, ...], _: object, platform: str, what: str) -> Mapping[str, str]:
        asked[specs] = f"{platform}, {what}"
        return dict.fromkeys(specs, "1 h0 aa")

    package = replace(PLAIN, staging_build=("gcc", "lib-a"), staging_host=("lib-a", "lib-b"))
    made = stage(recipe, [PLAIN, package], build_platform="linux-aarch64", solve=solve)
    assert asked == {
        package.staging_build: "linux-aarch64, staging: build environment",
        package.staging_host: "linux-64, staging: host environment",
    }
    names = ["build gcc", "build lib-a", "host lib-a", "host lib-b"]
    assert made.packages == dict.fromkeys(names, "1 h0 aa"), "a package of each environment and name"
    assert made.required == ("gcc", "lib-a", "lib-b")
    assert stage(recipe, [PLAIN]) == Fingerprint(), "no package is built from it"


@pytest.mark.parametrize(
    ("variant", "overrides", "counting"),
    [
        ({"torch_source": ("official",)}, {}, ["all.patch", "one.patch"]),
        ({"torch_source": ("official",)}, {"torch_source": ("model",)}, ["all.patch", "two.patch"]),
        ({"provider": ("debian",)}, {}, ["all.patch", "one.patch", "two.patch"]),
    ],
    ids=["of the config", "of the run", "unknown"],
)
def test_patches_of_the_source_that_is_built_count(
    variant: Mapping[str, tuple[str, ...]],
    overrides: Mapping[str, tuple[str, ...]],
    counting: list[str],
    recipe: Path,
) -> None:
    for name in ("all.patch", "official/one.patch", "model/two.patch"):
        write(recipe.parent / "patches" / name, name)
    made = stage(recipe, [INHERITING], variant=variant, overrides=overrides)
    assert sorted(name.partition(" ")[2] for name in made.source if name.startswith("patch ")) == counting


def test_a_package_is_built_from_a_staging_that_requires_anything(recipe: Path) -> None:
    """In either environment; a build in a container has its tree in one place, wherever the user has it."""
    image = Container(engine=Engine.PODMAN, image="i")
    for package in (replace(PLAIN, staging_build=("gcc",)), replace(PLAIN, staging_host=("zlib",))):
        staged = stage(recipe, [package], isolation=image)
        assert staged.place == "podman:/opt/megabuild/state i"
        assert fingerprint.package(package, None, staged).staging == staged.digest
    assert fingerprint.package(PLAIN, None, staged).staging == ""


def changed(old: Fingerprint, new: Fingerprint) -> list[str]:
    return phrases(compare(old, new, None))


def test_each_package_of_a_debian_root_is_a_fact(recipe: Path, tmp_path: Path) -> None:
    status = tmp_path / "root" / "var" / "lib" / "dpkg" / "status"
    paragraph = "Package: {}\nStatus: {}\nVersion: {}\nSection: libs\n"
    kept = paragraph.format("libpng16", "install ok installed", "1.6")
    removed = paragraph.format("libgone", "deinstall ok config-files", "1")
    write(
        status,
        "\n".join([kept, removed, paragraph.format("libprotobuf-dev", "install ok installed", "3.21")]),
    )
    before = facts(recipe, root=tmp_path / "root")
    assert before.packages == {"system libpng16": "1.6", "system libprotobuf-dev": "3.21"}
    status.write_text(status.read_text().replace("Section: libs", "Section: devel"))
    assert facts(recipe, root=tmp_path / "root") == before
    status.write_text(status.read_text().replace("3.21", "3.22"))
    assert changed(before, facts(recipe, root=tmp_path / "root")) == ["libprotobuf-dev 3.21 -> 3.22"]


def test_a_package_made_of_a_root_changes_with_its_version_and_its_own_inputs_alone(recipe: Path) -> None:
    def of(version: str, key: str) -> Mapping[str, str]:
        return facts(recipe, solved={"libs": version, "zlib": "1 h1 a"}, of_root={"libs": key}).packages

    assert of("13.1 h1_0 aa", "one") == of("13.1 h2_0 bb", "one")
    assert of("13.1 h1_0 aa", "one") != of("13.2 h1_0 aa", "one")
    assert of("13.1 h1_0 aa", "one") != of("13.1 h1_0 aa", "two")
    assert of("13.1 h1_0 aa", "one")["host zlib"] == "1 h1 a"


def test_a_package_is_used_and_tested_with_its_own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[tuple[str, ...], dict[str, str]] = {}
    monkeypatch.setattr(solving, "environment", lambda specs, *_: asked.setdefault(specs, {}))
    own = "python 3.12.*"
    package = replace(PLAIN, build=("cmake",), host=(own,), run=("python", "numpy"), test=("pytest",))
    given = Environment(channels=(Channel.parse("none"),), pythons=())
    solving.Solver(given, Platforms.native("linux-64"), own=()).built_with(package)
    assert [*asked] == [("cmake",), (own,), ("python", "numpy", own), ("pytest", own)]


def test_packages_of_the_build_environments_count_with_version_build_and_content(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(solving, "environment", lambda specs, *_: dict.fromkeys(specs, "1.2 h3_0 aa"))
    given = Environment(channels=(Channel.parse("none"),), pythons=())
    package = replace(PLAIN, build=("cmake",), host=("fmt",))
    lines = solving.Solver(given, Platforms.native("linux-64"), own=()).built_with(package)
    assert lines == ["build cmake 1.2 h3_0 aa", "host fmt 1.2 h3_0 aa"]


def test_a_script_that_staging_uses_through_another_one_counts(recipe: Path) -> None:
    before = facts(recipe)
    (recipe.parent / "common.sh").write_text("phase() { true; }\n")
    after = facts(recipe)
    assert after.compilers == before.compilers
    assert changed(before, after) == ["script common.sh changed"]


def test_a_python_module_counts_where_it_is_imported(recipe: Path) -> None:
    (recipe.parent / "build_staging.sh").write_text(
        'python "$RECIPE_DIR/sync_tree.py"  # and not "$RECIPE_DIR/other.py"\n'
    )
    (recipe.parent / "sync_tree.py").write_text('"""Unlike other.py and main.cpp."""\nfrom helper import x\n')
    (recipe.parent / "helper.py").write_text("x = 1\n")
    (recipe.parent / "other.py").write_text("x = 1\n")
    (recipe.parent / "main.cpp").write_text("int main() {}\n")
    part, _ = parts(recipe)
    assert part is not None
    assert sorted(part.files) == ["build_staging.sh", "helper.py", "sync_tree.py"]


def test_a_script_that_recipes_share_counts_with_those_in_its_own_folder(tmp_path: Path) -> None:
    """To such a script, RECIPE_DIR is its own folder."""
    recipe = tmp_path / "wheel" / "recipe.yaml"
    write(recipe, 'outputs: [{staging: {name: s}, build: {script: "sh ../shared/run.sh"}}]')
    write(tmp_path / "shared/run.sh", 'source "$RECIPE_DIR/helper.sh"; source "$RECIPE_DIR/own.sh"')
    for name in ("shared/helper.sh", "wheel/own.sh", "wheel/other.sh", "shared/other.sh"):
        write(tmp_path / name)
    part, _ = parts(recipe, tmp_path)
    assert part is not None
    assert sorted(part.files) == ["shared/helper.sh", "shared/run.sh", "wheel/own.sh"]


def test_a_hidden_file_of_another_feedstock_changes_no_package_nor_does_a_linked_folder(
    tmp_path: Path,
) -> None:
    recipe = write(tmp_path / "recipe.yaml", "package: {name: x}\nbuild: {script: sh build.sh}\n")
    write(tmp_path / "build.sh")
    write(tmp_path / "folder/file")
    before = parts(recipe, own=False)
    for name in (".build.sh.swp", ".cache/x"):
        write(tmp_path / name)
    (tmp_path / "folder/loop").symlink_to(".")
    assert parts(recipe, own=False) == before
    write(tmp_path / "helper.sh")
    assert parts(recipe, own=False) != before


def test_a_wheel_counts_by_its_hash_before_it_is_downloaded(tiny: Tiny, tmp_path: Path) -> None:
    options = replace(tiny.options(), rehearse=False)
    given = Environment(
        channels=(), pythons=(), source=tmp_path / "absent", staging_source={"torch.whl": "1"}
    )
    former = fingerprint._source_tree(options, given)
    assert former == fingerprint.tree_of({"torch.whl": "1"})
    assert fingerprint._source_tree(options, replace(given, staging_source={"torch.whl": "2"})) != former


@pytest.mark.parametrize("rehearse", [False, True])
def test_the_users_own_source_counts_in_rehearsals_too(rehearse: bool, tiny: Tiny, tmp_path: Path) -> None:
    """A rehearsal has the model's source only if the user names none."""
    source = write(tmp_path / "own" / "a.cpp", "1").parent
    options = replace(tiny.options(), rehearse=rehearse, torch_source=source)
    given = Environment(channels=(), pythons=(), source=source)
    former = fingerprint._source_tree(options, given)
    write(source / "a.cpp", "2")
    assert fingerprint._source_tree(options, given) != former


def test_a_checkout_behind_a_link_has_the_same_files(tmp_path: Path) -> None:
    write(tmp_path / "real/recipe.yaml", "package: {name: x}\nbuild: {script: sh build.sh}\n")
    write(tmp_path / "real/build.sh")
    (tmp_path / "link").symlink_to("real")
    found = [parts(tmp_path / name / "recipe.yaml")[1]["x"] for name in ("real", "link")]
    assert [sorted(part.files) for part in found] == [["build.sh"]] * 2


def test_a_switched_off_object_cache_gets_no_objects(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    options = tiny.options()
    identity = object_cache.identify(options, Host())
    assert identity == object_cache.read_identity(options, Host()) != ""
    monkeypatch.setenv("TORCH_CCACHE", "none")
    assert object_cache.identify(options, Host()) == ""


@pytest.mark.parametrize("number", [0, 1])
def test_a_key_in_an_expression_of_one_of_several_stagings_is_no_pin(number: int, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    scripts = ["echo", "echo"]
    scripts[number] = "echo ${{ used }}"
    stagings = [f"{{staging: {{name: s{n}}}, build: {{script: '{text}'}}}}" for n, text in enumerate(scripts)]
    write(recipe, f"source: {{day: 2026-11-30}}\noutputs: [{', '.join(stagings)}]")
    part, _ = parts(recipe)
    assert part is not None
    assert part.pins(["used", "only_required"], tmp_path) == {"only_required"}


def test_a_file_of_a_recipe_need_not_be_text(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    write(recipe, "outputs: [{staging: {name: s}, build: {script: 'cp $RECIPE_DIR/logo.png .'}}]")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG \xff named_in_it")
    part, _ = parts(recipe)
    assert part is not None
    assert part.variant_keys(["named_in_it", "other"], tmp_path) == ["named_in_it"]
    assert part.pins(["named_in_it"], tmp_path) == {"named_in_it"}


def test_a_key_in_an_expression_is_no_pin_where_the_expression_is_a_value(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    write(
        recipe,
        """
        context: {words: "-D${{ in_a_value }}", others: "${{ words }} -O2"}
        outputs:
          - staging: {name: s}
            build: {script: "echo ${{ others }} ${{ in_the_section }}"}
            requirements: {host: [only_required]}
        """,
    )
    part, _ = parts(recipe)
    assert part is not None
    keys = ["in_a_value", "in_the_section", "only_required"]
    assert part.pins(part.variant_keys(keys, tmp_path), tmp_path) == {"only_required"}


def test_every_script_of_the_recipe_counts_for_what_runs_it_and_tests_never_for_libtorch() -> None:
    recipe = ROOT.parents[2] / "recipe"
    staging, packages = parts(recipe / "recipe.yaml")
    assert staging is not None
    assert not [name for name in staging.files if name.startswith(("tests/", "cmake_test/"))]
    used = {*staging.files, *(name for part in packages.values() for name in part.files)}
    here = {path.relative_to(recipe).as_posix() for end in ("sh", "py", "cmake", "cpp", "txt")
            for path in recipe.rglob(f"*.{end}")}  # fmt: skip
    assert {name for name in here - used if not name.startswith(("pyg/", "wheel/", "output/"))} == set()
    assert not [name for name in used if name.startswith("wheel/")]


def test_official_wheels_depend_on_their_own_scripts_and_on_what_these_share_with_the_compile() -> None:
    top = ROOT.parents[2] / "recipe"
    staging, packages = parts(top / "wheel" / "recipe.yaml", top)
    assert staging is not None
    taking_apart = {f"wheel/{name}.py" for name in ("split_wheel", "wheel_parts", "same_code")}
    shared = {"install_libtorch.py", "share_libtorch.py", "whole_walk.py", "FindCUDA.cmake"}
    assert set(staging.files) == {"wheel/build_staging.sh"} | taking_apart | shared
    tests = {name for name in packages["libtorch"].files if name.startswith(("tests/", "cmake_test/"))}
    assert {"tests/libtorch.sh", "tests/pytorch.sh", "cmake_test/CMakeLists.txt"} <= tests
    assert set(packages["libtorch"].files) - tests == {"build_libtorch.sh", "activate.sh", "deactivate.sh"}
    assert set(packages["pytorch"].files) - tests == {"wheel/build_pytorch.sh"} | taking_apart | shared
    (umbrella,) = (part for name, part in packages.items() if name.startswith("pytorch-${{"))
    assert set(umbrella.files) == {"LICENSE"}


def test_a_package_that_two_outputs_make_depends_on_both(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    output = "  - package: {{name: twin}}\n    build: {{script: {}}}\n"
    found = []
    for scripts in (("a.sh", "b.sh"), ("a.sh", "c.sh"), ("c.sh", "b.sh")):
        for name in scripts:
            (tmp_path / name).touch()
        recipe.write_text("outputs:\n" + "".join(output.format(name) for name in scripts))
        part = parts(recipe)[1]["twin"]
        assert sorted(part.files) == sorted(scripts)
        found.append(part.text)
    assert len(set(found)) == 3


def test_the_recipe_needs_nothing_beside_itself() -> None:
    folder = ROOT.parents[2] / "recipe"  # a container shows nothing else of this repository
    for recipe in folder.rglob("recipe.yaml"):
        for script in (recipe, *recipe.parent.glob("*.sh"), *(recipe.parent / "../common").glob("*.sh")):
            for place in re.findall(r'RECIPE_DIR\}?"?/([\w./-]+)', script.read_text()):
                used = (recipe.parent / place).resolve()
                assert used.exists(), f"{script} uses {place}"
                assert folder in (used, *used.parents), f"{script} uses {place}"


def test_solved_versions_and_other_builds_of_one_version_count() -> None:
    old = {"host a": "1 h0 xx", "build b": "1 h0 xx", "host c": "1 h0 xx"}
    new = {"host a": "2 h0 yy", "build b": "1 h1 yy", "host d": "3 h0 yy"}
    assert changed(Fingerprint(packages=old), Fingerprint(packages=new)) == [
        "a 1 -> 2", "b 1 was rebuilt", "d none -> 3", "c 1 -> none",
    ]  # fmt: skip
    many = Fingerprint(packages={f"host {name}": "1 h" for name in "abcdefgh"})
    assert changed(Fingerprint(), many)[5:] == ["f none -> 1", "2 more"]


def test_narrowing_to_one_python_does_not_recompile(recipe: Path) -> None:
    recipe.write_text(
        recipe.read_text().replace("- tool\n", "- tool\n      host:\n        - python 3.12.*\n", 1)
    )
    many = facts(recipe, variant={"torch_source": ("model",), "python": ("3.11.*", "3.12.*")})
    assert facts(recipe, variant={"torch_source": ("model",), "python": ("3.12.*",)}) == many


def test_another_place_takes_the_tree_away_and_another_staging_its_packages(recipe: Path) -> None:
    here, there = facts(recipe), facts(recipe, output="/y")
    assert changed(here, there) == ["place host:/x/a -> host:/y/a"]
    for planned, is_other in ((PLAIN, False), (INHERITING, True)):
        digests = {fingerprint.package(planned, None, staged).digest for staged in (here, there)}
        assert (len(digests) == 2) == is_other


def test_a_patch_is_part_of_the_sources(recipe: Path) -> None:
    before = facts(recipe)
    (recipe.parent / "patches" / "model").mkdir(parents=True)
    (recipe.parent / "patches" / "model" / "0001.patch").write_text("x")
    after = facts(recipe)
    assert after.compilers == before.compilers
    assert changed(before, after) == ["patch 0001.patch changed"]


def test_contents_and_modes_of_a_tree_count_but_not_times(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = fingerprint.tree(tmp_path)
    (tmp_path / "a").write_text("1")
    assert fingerprint.tree(tmp_path) == before
    assert fingerprint.tree_of({"a": sha256(tmp_path / "a")}) == before, (
        "also of a folder that is not there yet"
    )
    (tmp_path / "a").chmod(0o755)
    executable = fingerprint.tree(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert len({before, executable, fingerprint.tree(tmp_path)}) == 3
    (tmp_path / "c").write_text("1")
    (tmp_path / "link").symlink_to("b")
    before = fingerprint.tree(tmp_path)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("c")
    assert fingerprint.tree(tmp_path) != before, "a link is not its target"
    for folder in ("flash-2.7", "flash-2.8"):
        (tmp_path / folder).mkdir()
    without = fingerprint.tree(tmp_path)
    (tmp_path / "flash").symlink_to("flash-2.7")
    before = fingerprint.tree(tmp_path)
    (tmp_path / "flash").unlink()
    (tmp_path / "flash").symlink_to("flash-2.8")
    assert len({without, before, fingerprint.tree(tmp_path)}) == 3, "nor is a link to a folder"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PreflightError, match="pipe: "):
        fingerprint.tree(tmp_path)


# ------------------------------------------------------------------------------------------------ the stamp


def test_a_staging_and_an_unfinished_compile_are_used_with_their_own_tree_alone(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    (out / "build_cache" / "staging_1").mkdir(parents=True)
    (out / "build_cache" / "staging_1" / "metadata.json").write_text("{}")
    output_folder.seal_stagings(out)
    decision = tree_reuse.decide(tree, out, CORE)
    assert decision.use is TreeUse.FRESH
    tree_reuse.write(tree, CORE)
    assert tree_reuse.decide(tree, out, CORE).use is TreeUse.REUSE
    tree_reuse.prepare_tree(decision, tree, out, CORE, "")
    assert not list((out / "build_cache").iterdir())
    assert tree_reuse.decide(tree, out, CORE).use is TreeUse.RESUME


def test_another_dependency_takes_the_tree_away_and_another_source_does_not(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree_reuse.write(tree, CORE)
    (tree / "a.o").write_text("object")
    source = replace(CORE, source={"source tree": "2"})
    decision = tree_reuse.decide(tree, out, source)
    assert decision.use is TreeUse.RESUME
    assert ["source tree" in reason for reason in decision.reasons] == [True]
    tree_reuse.prepare_tree(decision, tree, out, source, "")
    assert (tree / "a.o").exists()
    # whoever takes the change back has objects of the changed source in the tree
    assert tree_reuse.decide(tree, out, CORE).reasons == decision.reasons
    newer = replace(source, packages={"host libprotobuf": "7.35.1 h0 bb"})
    decision = tree_reuse.decide(tree, out, newer)
    assert (decision.use, decision.reasons) == (TreeUse.RECOMPILE, ("libprotobuf 6.31.1 -> 7.35.1",))
    tree_reuse.prepare_tree(decision, tree, out, newer, "")
    assert not (tree / "a.o").exists()
    assert tree_reuse.read(tree) == newer


@pytest.mark.parametrize("text", ['{"compilers": [], "source": {}}', '{"compilers": {"a": 1}, "source": {}}',
                                  "[]", "{torn", '{"required": 1}', "\udcff"])  # fmt: skip
def test_a_stamp_of_other_types_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / tree_reuse.STAMP).write_bytes(text.encode(errors="surrogateescape"))
    assert tree_reuse.read(tmp_path) is None
    assert tree_reuse.decide(tmp_path, tmp_path / "out", CORE).use is TreeUse.RECOMPILE


def test_a_tree_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match=r"/tree .*link"):
        tree_reuse.decide(tmp_path / "tree", tmp_path / "out", CORE)


# ------------------------------------------------------------------------------------------------ files of a recipe


def test_a_file_that_an_inline_script_names_counts(recipe: Path) -> None:
    recipe.write_text(
        recipe.read_text().replace(
            "script: build_lib.sh", """script: mkdir licenses && cp "${RECIPE_DIR}/LICENSE" licenses/"""
        )
    )
    (recipe.parent / "LICENSE").write_text("one")
    before = parts(recipe)[1]["tinylib"].files
    (recipe.parent / "LICENSE").write_text("another")
    after = parts(recipe)[1]["tinylib"].files
    assert set(before) == {"LICENSE"}
    assert before != after


@pytest.mark.parametrize("text", ["def f(:\n", "x = 1\0\n"])
def test_a_script_that_is_not_python_is_named(recipe: Path, text: str) -> None:
    (recipe.parent / "build_staging.sh").write_text('python "$RECIPE_DIR/helper.py"\n')
    (recipe.parent / "helper.py").write_text(text)
    with pytest.raises(ConfigError, match=r"recipe/helper\.py: "):
        parts(recipe)


@pytest.mark.parametrize("restarted", [True, False])
def test_files_of_the_last_minutes_before_a_restart_are_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    tree, boot = tmp_path / "tree", 1_700_000_000
    dates = {"build/old.o": 500, "build/.ninja_log": 1, "build/new.o": 100, "build/newest.o": 1}
    dates |= {"torch/lib/libc10.so": 5000, "a.source.cpp": 1}
    for name, age in dates.items():
        write(tree / name)
        os.utime(tree / name, (boot - age, boot - age))
    tree_reuse.write(tree, CORE)
    monkeypatch.setattr("psutil.boot_time", lambda: float(boot if restarted else boot - 10))
    decision = tree_reuse.decide(tree, tmp_path / "out", CORE)
    tree_reuse.prepare_tree(decision, tree, tmp_path / "out", CORE, "")
    kept = {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file()} - {
        tree_reuse.STAMP
    }
    lost = {"build/new.o", "build/newest.o", "torch/lib/libc10.so"} if restarted else set()
    assert kept == dates.keys() - lost


def test_libraries_of_an_unpacked_wheel_stay_after_a_restart(tmp_path: Path) -> None:
    library = write(tmp_path / "tree" / "torch" / "lib" / "libc10.so")
    os.utime(library, (1, 1))
    tree_reuse._drop_unflushed(tmp_path / "tree")
    assert library.exists()
