"""Other feedstocks, as conda-smithy leaves them: whose dependencies, which configs, and a meta.yaml's requirements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_samples import asks, pinned, row, vendors
from calling import call
from msgspec import structs
from small_files import write

from command_line.run_command import Invocation
from groundwork.errors import AuditError, UsageError
from megabuild.configs.config import MATRIX_FILE, Config
from pin_audit import feedstock
from pin_audit.audit_options import AuditOptions
from pin_audit.command import Session
from pin_audit.facts import AuditTarget, RecipePin, SourceOutcome
from pin_audit.meta_yaml import names_of, needs
from pin_audit.name_map import names
from pin_audit.recipe_lines import names_in, requirement_lines
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.services import Services
from pin_audit.sources import recipe_pins
from pin_audit.statuses import Status
from pin_audit.table import tabulate

VARIANT = """\
c_compiler:
- gcc
c_compiler_version:
- '14'
cuda_compiler_version:
- '{cuda}'
pin_run_as_build:
  python:
    min_pin: x.x
    max_pin: x.x
python:
- 3.12.* *_cpython
target_platform:
- {platform}
zip_keys:
- - c_compiler_version
  - cuda_compiler_version
zlib:
- '1'
"""
META = """\
{% set name = "Thing-Lib" %}
{% set version = "1.2.3" %}
package:
  name: {{ name|lower }}
  version: {{ version }}
source:
  url: https://github.com/owner/thing/archive/v{{ version }}.tar.gz
requirements:
  build:
    - {{ compiler('c') }}
    - cmake >=3.20   # why [linux]
    - only-mac       # [osx]
  host:
    - zlib
    - python
    {% if cuda_compiler_version != "None" %}
    - cuda-version {{ cuda_compiler_version }}
    {% else %}
    - only-cpu     # [linux]
    {% endif %}
    # - commented
  run:
    - {{ pin_compatible('numpy') }}
    - {{ pin_subpackage('thing-lib') }}
    - libfoo >={{ version }},<2
  run_constrained:
    - other {{ computed + 1 }}
test:
  requires:
    - pip
about:
  home: https://example.org
"""
V1 = """\
context:
  name: thing
  version: "2.0"
recipe:
  name: ${{ name }}-split
  version: ${{ version }}
source:
  url: https://index.example/packages/source/${{ name[0] }}/${{ name }}/thing-${{ version }}.tar.gz
outputs: []
about:
  repository: https://gitlab.example.org/owner/thing
"""


def make(folder: Path, text: str, name: str = "meta.yaml") -> Path:
    write(folder / "recipe" / name, text)
    for platform, cuda in (("linux-64", "None"), ("linux-64", "12.9"), ("osx-arm64", "None")):
        path = folder / ".ci_support" / f"{platform.replace('-', '_')}_cuda_compiler_version{cuda}.yaml"
        write(path, VARIANT.format(platform=platform, cuda=cuda))
    return folder


def target(root: Path, upstream: str | None = None, ref: str | None = None) -> AuditTarget:
    return feedstock.target(root, feedstock.configs(root), upstream=upstream, ref=ref, version=None)


def asked(root: Path, config: Config) -> list[tuple[str, str]]:
    found = needs((root / "recipe" / "meta.yaml").read_text(encoding="utf-8"), config)
    return [(need.section.value, need.spec) for need in found]


def test_a_recipe_names_package_version_and_upstream(tmp_path: Path) -> None:
    found = target(make(tmp_path / "old", META))
    assert (found.package, found.version, found.tag) == ("thing-lib", "1.2.3", "v1.2.3")
    assert found.repository == "https://github.com/owner/thing.git"
    found = target(make(tmp_path / "new", V1, "recipe.yaml"))
    assert (found.package, found.version, found.wheel, found.tag) == ("thing-split", "2.0", "thing", "v2.0")
    assert found.repository == "https://gitlab.example.org/owner/thing.git"


def test_requirements_hold_where_their_selectors_do(tmp_path: Path) -> None:
    root = make(tmp_path, META)
    cuda, cpu, mac = feedstock.configs(root)
    of_cpu = [
        ("host", "zlib 1.*"),
        ("host", "python 3.12.* *_cpython"),
        ("host", "only-cpu"),
        ("run", "numpy"),
        ("run", "libfoo >=1.2.3,<2"),
    ]
    assert asked(root, cpu) == [("build", "gcc 14.*"), ("build", "cmake >=3.20"), *of_cpu]
    assert set(asked(root, cuda)) ^ set(asked(root, cpu)) == {
        ("host", "cuda-version 12.9"),
        ("host", "only-cpu"),
    }
    assert ("build", "only-mac") in asked(root, mac)
    assert "commented" not in names_of(META)


def test_selectors_are_never_run_as_python(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    text = META.replace("# [osx]", f"# [__import__('pathlib').Path('{trap}').touch() or True]")
    root = make(tmp_path / "feedstock", text)
    assert ("build", "only-mac") not in asked(root, feedstock.configs(root)[0])
    assert not trap.exists()


def test_upstream_and_ref_stand_in_for_a_recipe(tmp_path: Path) -> None:
    found = target(tmp_path, upstream="https://example.org/faiss.git", ref="v1.14.3")
    assert (found.package, found.version, found.tag) == ("faiss", "1.14.3", "v1.14.3")
    with pytest.raises(UsageError, match="no recipe"):
        target(tmp_path)


@pytest.mark.parametrize("text", ["[1]", "a: *nothing", "\x00", "[" * 500])
def test_a_broken_config_is_a_sentence(text: str, tmp_path: Path) -> None:
    root = make(tmp_path, META)
    (root / ".ci_support" / "linux_64_.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(AuditError, match=r"linux_64_\.yaml"):
        feedstock.configs(root)


@pytest.mark.parametrize("text", ["a: [1", "a: *nothing", "\x00", "[" * 500])
@pytest.mark.parametrize("read", [requirement_lines, names_in])
def test_a_broken_recipe_is_a_sentence(read: Callable[[Path], object], text: str, tmp_path: Path) -> None:
    recipe = write(tmp_path / "recipe.yaml", text)
    with pytest.raises(AuditError, match=rf"{recipe}: cannot be parsed") as told:
        read(recipe)
    assert told.value.remedy == "correct the file"


@pytest.mark.parametrize("name", ["recipe.yaml", "meta.yaml"])
def test_without_arguments_the_repository_around_is_audited(
    name: str, tmp_path: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "feedstock", META if name == "meta.yaml" else V1, name)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(root / "recipe")
    done = call(invocation, "audit", "--offline")
    assert done.exit_code == 0
    assert done.stdout.startswith("## thing-lib 1.2.3" if name == "meta.yaml" else "## thing-split 2.0")
    assert ("libfoo" in done.stdout) == (name == "meta.yaml")


@pytest.mark.parametrize("name", ["recipe.yaml", "meta.yaml"])
def test_sources_look_up_what_the_recipe_requires(name: str, tmp_path: Path) -> None:
    needs_of_v1 = V1.replace("outputs: []", "requirements:\n  host:\n    - zlib\n    - libfoo >=2")
    root = make(tmp_path, META if name == "meta.yaml" else needs_of_v1, name)
    session = Session(AuditOptions(offline=True, tree=tmp_path), root, print, foreign=True)
    request = session.request(None, None)
    assert {"zlib", "libfoo"} <= {*request.names}
    assert "fmt" in request.names  # any project may vendor it
    assert request.configs == session.pinned
    assert (request.local_tree, session.request(None, "1.0", local=False).local_tree) == (tmp_path, None)


def rendered_pins(root: Path, folder: Path) -> list[RecipePin]:
    """The requirements of a feedstock for its first config."""
    services = Services(folder / "cache", offline=True)
    request = AuditRequest(
        target=target(root), services=services, repositories=Repositories(services),
        configs=feedstock.configs(root)[:1], root=root, foreign=True,
    )  # fmt: skip
    return [fact for fact in recipe_pins.read(request).facts if isinstance(fact, RecipePin)]


CROSS_META = """\
package:
  name: thing
requirements:
  build:
    - {{ compiler('c') }}
    - cross-python_{{ target_platform }}   # [build_platform != target_platform]
  host:
    - zlib
"""
CROSS_V1 = """\
package: {name: thing, version: "1"}
requirements:
  build:
    - ${{ compiler('c') }}
    - if: build_platform != target_platform
      then: cross-python_${{ target_platform }}
  host:
    - zlib
"""


@pytest.mark.parametrize(("name", "text"), [("meta.yaml", CROSS_META), ("recipe.yaml", CROSS_V1)])
@pytest.mark.parametrize("settings", ["build_platform: {linux_aarch64: linux_64}\n", "conda_build: {}\n"])
def test_a_config_that_conda_forge_cross_compiles_is_audited_as_a_cross_build(
    name: str, text: str, settings: str, tmp_path: Path
) -> None:
    root = tmp_path / "feedstock"
    write(root / "recipe" / name, text)
    write(root / "conda-forge.yml", settings)
    write(root / ".ci_support" / "linux_aarch64_.yaml", VARIANT.format(platform="linux-aarch64", cuda="None"))
    needed = {"gcc", "zlib"}
    if "linux_64" in settings:
        needed.add("cross-python")
    assert {fact.name.partition("_")[0] for fact in rendered_pins(root, tmp_path)} == needed


def test_this_repositorys_configs_are_audited_as_conda_forge_builds_them(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("megabuild.configs.config.machine_platform", lambda: "linux-aarch64")
    session = Session(AuditOptions(offline=True), repository, print, foreign=False)
    machines = {config.name: config.build_platform for config in session.pinned}
    assert (machines["linux_aarch64_cpu"], machines["linux_64_cpu"]) == ("linux-64", "linux-64")


def test_requirements_of_a_recipe_yaml_keep_their_versions(tmp_path: Path) -> None:
    text = CROSS_V1.replace("- zlib", "- fmt\n    - libfoo >=2,<3\n  run:\n    - libbar 1.* *_x")
    facts = rendered_pins(make(tmp_path, text, "recipe.yaml"), tmp_path)
    found = {(fact.name, fact.value) for fact in facts if fact.name != "gcc"}
    assert found == {("fmt", "*"), ("libfoo", ">=2,<3"), ("libbar", "1.* *_x")}


def test_what_the_rendered_configs_have_is_rendered_again(tmp_path: Path) -> None:
    """Of these lines nothing can be edited: a compiler, a bare name, a variable of the config."""
    root = make(tmp_path, META.replace("libfoo >=", "zlib >="))
    facts = rendered_pins(root, tmp_path)
    assert {f"{fact.name} {fact.value}": fact.rendered for fact in facts} == {
        "gcc 14.*": True,
        "cmake >=3.20": False,
        "zlib 1.*": True,
        "zlib >=1.2.3,<2": False,
        "python 3.12.* *_cpython": True,
        "cuda-version 12.9": True,
        "numpy *": False,
    }
    assert {fact.where.line for fact in facts if fact.name == "cmake"} == {11}


@pytest.mark.parametrize("name", ["gcc", "zlib", "llvm-openmp"])
def test_a_rendering_behind_the_pin_is_no_conflict(name: str) -> None:
    ask = structs.replace(asks(name, "14.*", sections=("build", "host")), rendered=True)
    key = "c_compiler_version" if name == "gcc" else name.replace("-", "_")
    found = row(name, ask, pinned(key, "15"))
    assert found.verdict.status is Status.OLDER
    assert "rerender" in found.verdict.todo
    assert row(name, asks(name, "14.*"), pinned(key, "15")).verdict.status is Status.CONFLICT


def test_a_key_of_two_systems_is_held_against_the_compiler_of_its_own(tmp_path: Path) -> None:
    """``c_compiler_version`` is GCC's on Linux and clang's on macOS, ``c_stdlib_version`` glibc's and macOS's."""
    pins = (
        pinned("c_compiler_version", "15", "linux-64"),
        pinned("c_compiler_version", "21", "osx-arm64"),
        pinned("c_stdlib_version", "2.28", "linux-64"),
        pinned("c_stdlib_version", "11.0", "osx-arm64"),
    )
    asked_for = (asks("gcc", "15.*"), asks("clang", "21.*"), asks("sysroot_linux-64", "2.28.*"))
    project = target(make(tmp_path, META))
    outcome = SourceOutcome(source="recipe_pins", facts=(*asked_for, *pins))
    found = {one.name: one for one in tabulate(project, [outcome], names()).rows}
    held = {
        name: {fact.value for fact in found[name].facts if fact.name.endswith("_version")}
        for name in ("gcc", "clang", "sysroot")
    }
    assert held == {"gcc": {"15"}, "clang": {"21"}, "sysroot": {"2.28"}}


@pytest.mark.parametrize("name", ["recipe.yaml", "meta.yaml"])
def test_a_feedstock_that_was_not_rendered_is_not_one_that_requires_nothing(
    name: str, tmp_path: Path
) -> None:
    write(tmp_path / "recipe" / name, META if name == "meta.yaml" else V1)
    services = Services(tmp_path / "cache", offline=True)
    request = AuditRequest(
        target=target(make(tmp_path / "rendered", META)), services=services, repositories=Repositories(services),
        configs=(), root=tmp_path, foreign=True,
    )  # fmt: skip
    assert "no rendered configs (run: conda-smithy rerender)" in recipe_pins.read(request).trouble


def test_without_a_recipe_nothing_is_said_to_be_compiled(tmp_path: Path) -> None:
    project = target(tmp_path, upstream="https://example.org/faiss.git", ref="v1.14.3")
    vendored = SourceOutcome(
        source="submodules", facts=(vendors("third_party/fmt", "v12.1.0"), vendors("x", ""))
    )
    found = tabulate(project, [vendored], names())
    assert {one.use for one in found.rows} == {"listed"}
    assert not [one for one in found.rows if "compiled" in one.verdict.sentence]
    assert {one.name: one.verdict.status for one in found.rows}["fmt"] is Status.IN_STEP


@pytest.mark.parametrize(
    "place", [".ci_support/linux_64_x.yaml", "recipe/meta.yaml", ".ci_support", "recipe"]
)
def test_links_of_a_feedstock_are_not_followed(place: str, tmp_path: Path) -> None:
    root = make(tmp_path / "feedstock", META)
    secret = tmp_path / "secret"
    if "." in Path(place).name[1:]:
        secret.write_text("root:*:20228:secret", encoding="utf-8")
        (root / place).unlink(missing_ok=True)
    else:
        (root / place).rename(secret)
    (root / place).symlink_to(secret)
    with pytest.raises(AuditError) as refused:
        target(root)
    assert "20228" not in str(refused.value)


@pytest.mark.parametrize("others", [(), ("9.0",), ("8.0", "9.0")], ids=str)
def test_an_audited_list_of_architectures_names_its_platform_if_another_has_its_own(
    others: Sequence[str], tmp_path: Path
) -> None:
    """Of configs of two versions of CUDA, and of none."""
    write(tmp_path / MATRIX_FILE, "torch_cuda_arch_list:\n  - 8.0\n")
    configs = []
    for platform, lists in {"linux-64": ("8.0",), "linux-aarch64": others}.items():
        for cuda in ("12.9", "13.0"):
            for archs in lists:
                variant = {"torch_cuda_arch_list": (archs,)}
                configs.append(
                    SimpleNamespace(
                        name=f"{platform} {cuda} {archs}",
                        platform=platform,
                        cuda_version=cuda,
                        variant=variant,
                    )
                )
    configs.append(SimpleNamespace(name="cpu", platform="linux-64", cuda_version=None, variant={}))
    target = SimpleNamespace(package="pytorch")
    request = SimpleNamespace(foreign=False, target=target, root=tmp_path, configs=configs)
    facts = recipe_pins.read_archs(cast(Any, request)).facts
    found = {(fact.name, *cast(Any, fact).archs): fact.holds for fact in facts}
    assert {key[0] for key in found} == {"CUDA 12.9", "CUDA 13.0"}
    assert len(found) == 2 * len({"8.0", *others})
    for (_, archs), holds in found.items():
        having = [one for one in configs if one.variant.get("torch_cuda_arch_list") == (archs,)]
        having = [one for one in having if (one.cuda_version,) == holds.cuda]
        assert holds.configs == tuple(one.name for one in having)
        is_only = not others or {one.platform for one in having} == {"linux-64", "linux-aarch64"}
        assert holds.platforms == (() if is_only else tuple(sorted({one.platform for one in having})))
