"""What another version changes: lines of recipes and of the matrix, with old and new value, source and who decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from audit_site import request, services, serving
from audit_wheels import configured_by_the_test, html
from calling import call
from click.testing import Result
from small_files import write

from command_line.run_command import Invocation
from groundwork.network.client import Answer, NetworkError
from megabuild.configs.overrides import TARBALLS
from pin_audit import bump_command, bump_hashes
from pin_audit.audit_options import AuditOptions
from pin_audit.bump import Bump, collect
from pin_audit.bump_context import BumpContext, Change, Release
from pin_audit.bump_hashes import Digest, find_sha256
from pin_audit.facts import (
    AnyFact,
    CiPin,
    Newest,
    Requirement,
    Scope,
    SourceOutcome,
    Submodule,
    TagCommit,
    UpstreamArchs,
    Where,
)
from pin_audit.recipe_lines import Line
from pin_audit.targets import packages

#: A foreign recipe in both formats.
META = """\
{% set version = "2.13.0" %}
{% set build = 2 %}
package:
  name: libtorch
source:
  url: https://github.com/pytorch/pytorch/releases/download/v{{ version }}/pytorch-v{{ version }}.tar.gz
  sha256: 66614a19060f69cfd63cd0295f65a1241bd15df2fa65c60ae51066c11c2ce812
  patches:
    - patches/0001-fix.patch
requirements:
  run:
    - typing_extensions >=4.10.0
    - triton ==3.7.1
outputs:
  - name: pytorch
"""
V1 = """\
context:
  version: "2.13.0"
  build: 3
  triton: 3.7.1
recipe:
  name: pytorch
outputs:
  - source:
      url: https://github.com/pytorch/pytorch/releases/download/v${{ version }}/pytorch-v${{ version }}.tar.gz
      sha256: 66614a19060f69cfd63cd0295f65a1241bd15df2fa65c60ae51066c11c2ce812  # published
    requirements:
      run:
        - typing_extensions >=4.10.0
        - if: linux
          then: triton ==${{ triton }}
"""


@pytest.fixture
def audit(invocation: Invocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    configured_by_the_test(monkeypatch).text = "global.no-index='1'\n"
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    return partial(call, invocation, "audit", "--offline")


@pytest.fixture
def changes(audit: Callable[..., Result]) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Return a bump's changes by topic."""

    def run(*words: str) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for one in json.loads(audit(*words, "--json").stdout)["bump"]["changes"]:
            found.setdefault(one["topic"], []).append(one)
        return found

    return run


def lines_above_are_host(repository: Path, row: dict[str, Any]) -> bool:
    above = (repository / row["file"]).read_text(encoding="utf-8").splitlines()[: row["line"]]
    heads = [
        line.strip() for line in above if line.strip() in ("build:", "host:", "run:", "run_constraints:")
    ]
    return heads[-1:] == ["host:"]


def test_this_repository_by_its_snapshots(changes: Callable[..., Any], repository: Path) -> None:
    found = changes("--root", str(repository), "--bump", "2.15.0")
    lines = (repository / "conda_build_config.yaml").read_text(encoding="utf-8").splitlines()
    certain = [one for one in found["version"] if one["kind"] == "certain"]
    assert certain
    for one in found["version"]:
        assert "2.13.0" in lines[one["line"] - 1]
        assert ("wheel" in lines[one["line"] - 1]) == (one["kind"] == "for a person")
        assert "debian" not in lines[one["line"] - 1]
    assert ("3.7.1", "3.9.0") in {(one["old"], one["new"]) for one in found["triton"]}
    # the run sections have a branch for 2.15 already; the wheel says nothing of host's
    assert {(one["old"], one["kind"]) for one in found["typing_extensions"]} == {("", "for a person")}
    assert all(lines_above_are_host(repository, one) for one in found["typing_extensions"])
    (triton,) = found["triton in conda-forge"]
    assert (triton["old"], triton["new"], triton["kind"]) == ("3.7.1", "~=3.9.0", "for a person")
    assert triton["note"].startswith("conda-forge has none newer than 3.7.1, read on 2026-06-19: without it")
    assert found["sha256"][0]["new"] == ""  # nobody published one: not guessed
    pythons = {one["old"] or one["new"]: one for one in found["python"]}
    assert list(pythons) == ["3.10.* *_cpython", "3.15", "3.15t"]
    assert {one["kind"] for one in pythons.values()} == {"for a person"}
    assert (pythons["3.15"]["source"], "migration" in pythons["3.15"]["note"]) == ("wheels of 2.15.0", True)
    of_wheels = [(lines[one["line"] - 1].split("#")[0], one["new"]) for one in found["Requires-Python"]]
    assert of_wheels == [('  - ">=3.10"                    ', ">=3.11")] * 2
    assert "python scripts/megabuild configs --write" in {one["note"] for one in found["generated"]}


def test_a_sha256_of_one_copy_is_for_a_person(changes: Callable[..., Any], repository: Path) -> None:
    (found,) = changes("--root", str(repository), "--bump", "2.14.1")["sha256"]
    assert (found["new"][:8], found["kind"]) == ("d0ebad9c", "for a person")
    assert "one copy" in found["source"]
    assert found["note"] == "compare it with the file: sha256sum"


@pytest.mark.parametrize(
    ("newest", "note"),
    [
        (Newest(name="triton", value="3.8.2"), None),
        (Newest(name="triton", value="3.7.1"), "conda-forge has none newer than 3.7.1"),
        (Newest(name="triton", value="3.9.0"), "conda-forge's newest is 3.9.0; check that it has ~=3.8.0"),
        (Newest(name="triton", trouble="no answer"), "unknown whether conda-forge has it: no answer"),
        (None, "unknown whether conda-forge has it: its channel was not read"),
    ],
)
def test_a_bump_says_whether_conda_forge_has_the_triton_that_it_needs(
    newest: Newest | None, note: str | None, tmp_path: Path
) -> None:
    wheel = SourceOutcome(source="wheel_metadata", facts=(Requirement(name="triton", value="~=3.8.0"),))
    context = BumpContext(
        root=tmp_path, request=request(services(tmp_path)), old=Release(version="2.13.0", outcomes=()),
        new=Release(version="2.14.1", outcomes=(wheel,)), recipe=(Line("recipe.yaml", 3, "    - triton ==3.7.1"),),
        newest=(newest,) if newest else (),
    )  # fmt: skip
    notes = [change.note for change in collect(context).changes if change.topic == "triton in conda-forge"]
    assert [text[: len(note or "")] for text in notes] == ([note] if note else [])


@pytest.mark.parametrize(("name", "text"), [("meta.yaml", META), ("recipe.yaml", V1)])
def test_a_foreign_recipe(name: str, text: str, changes: Callable[..., Any], tmp_path: Path) -> None:
    root = tmp_path / "feedstock"
    write(root / "recipe" / name, text)
    found = changes("--root", str(root), "--bump", "2.14.1")
    expected = {"version": "2.14.1", "build number": "0", "triton": "3.8.0" if name == "recipe.yaml" else "~=3.8.0",
                "sha256": "d0ebad9ca4219959b29b7ad9ab6469fe49a3d668f8b5a62dd115f02f3a914447"}  # fmt: skip
    for topic, new in expected.items():
        one = found[topic][0]
        kind = "for a person" if topic == "sha256" else "certain"  # of one copy only
        assert (one["kind"], one["new"]) == (kind, new), topic
        assert one["old"] in text.splitlines()[one["line"] - 1], topic
    assert "typing_extensions" not in found


@pytest.mark.parametrize(
    "words",
    [["2.13.0"], ["2.14.1", "--release", "2.14.1"], ["2.14.1", "--fail-on", "conflict"],
     ["2.14.1", "--package", "pytorch", "--package", "pytorch_scatter"], ["2.14.1", "--package", "all"],
     ["2.14.1", "--snapshot"], ["2.14.1", "--upstream", "https://github.com/a/b", "--ref", "v1"]],
)  # fmt: skip
def test_what_does_not_fit_is_refused(words: list[str], audit: Callable[..., Result]) -> None:
    assert audit("--bump", *words).exit_code == 2


def released(version: str, **requires: str) -> Release:
    facts = tuple(Requirement(name=name.replace("_", "-"), value=value) for name, value in requires.items())
    return Release(version=version, outcomes=(SourceOutcome(source="wheel_metadata", facts=facts),))


def lines(text: str) -> list[Line]:
    return [Line("recipe/recipe.yaml", number, line) for number, line in enumerate(text.splitlines(), 1)]


def changed(
    old: Release, new: Release, folder: Path, recipe: str | None = None, *matrix: Line, key: str = ""
) -> list[Change]:
    """Return the changes of a recipe, `RECIPE` unless given."""
    context = BumpContext(
        root=folder, request=request(services(folder)), old=old, new=new,
        recipe=tuple(lines(recipe or RECIPE)), matrix=matrix, key=key,
    )  # fmt: skip
    return [*collect(context).changes]


def values(key: str, *values: tuple[str, str]) -> list[Line]:
    """Return the lines of a key of conda_build_config.yaml, each with its value and the provider of its selector."""
    found = []
    for number, (value, provider) in enumerate(values, 1):
        selector = f'provider == "{provider}"' if provider else ""
        found.append(Line("conda_build_config.yaml", number, value, key, value, selector))
    return found


RECIPE = """\
requirements:
  host:
    - setuptools <82
  run:
    - setuptools <82
    - if: match(torch_version, "<2.14")
      then: setuptools >=40
      else: setuptools >=60
    - sympy
    - libcublas
"""


@pytest.mark.parametrize(
    ("name", "was", "now", "rows"),
    [
        # only a stricter requirement of run is certain; those of host and of branches never are
        ("setuptools", "<82", ">=60,<82", [(3, "person"), (5, "certain"), (7, "person"), (8, "person")]),
        # a branch has the new requirement already
        ("setuptools", "<82", ">=60", [(3, "person"), (5, "person")]),
        ("setuptools", "<82", "<82", []),
        ("setuptools", "<81", "<81.5", [(5, "person"), (7, "person"), (8, "person")]),
        ("setuptools", ">=40", ">=70", [(5, "person"), (7, "person"), (8, "person")]),
        # a bare name fits one version
        ("sympy", "*", ">=1.13", [(9, "person")]),
        ("sympy", "*", "==1.13.3", []),
    ],
)
def test_a_requirement_is_certain_in_run_only_and_outside_branches(
    name: str, was: str, now: str, rows: list[tuple[int, str]], tmp_path: Path
) -> None:
    found = changed(released("2.13.0", **{name: was}), released("2.14.0", **{name: now}), tmp_path)
    assert [(row.line, row.kind.rpartition(" ")[2]) for row in found if row.topic == name] == rows
    assert {(row.old, row.new) for row in found if row.kind == "certain"} <= {(was, now)}


def test_a_package_that_only_one_wheel_requires(tmp_path: Path) -> None:
    extra = Requirement(name="opt-einsum", value="*", holds=Scope(marker="extra == 'opt-einsum'"))
    old = released("2.12.0", nvidia_cublas="==13.1", sympy="*", six="*")
    new = released("2.13.0", numpy="*", six="*", nvidia_cublas="==13.2")
    new = replace(new, outcomes=(*new.outcomes, SourceOutcome(facts=(extra,))))
    found = {row.topic: row.line for row in changed(old, new, tmp_path) if row.kind == "for a person"}
    assert found == {"numpy": None, "sympy": 9}
    unread = Release(version="2.14.0", outcomes=())
    assert not changed(unread, new, tmp_path), "a wheel that was not read requires nothing"
    assert not changed(old, unread, tmp_path)


def test_rows_of_debian_do_not_change_and_those_of_wheels_are_for_a_person(tmp_path: Path) -> None:
    matrix = values("torch_version", ("2.13.0", ""), ("2.13.0", "debian"), ("2.13.0", "wheel"))
    old, new = (Release(version=version, outcomes=()) for version in ("2.13.0", "2.14.0"))
    rows = changed(old, new, tmp_path, None, *matrix, key="torch_version")
    found = [(row.line, row.kind.value) for row in rows if row.topic == "version"]
    assert found == [(1, "certain"), (3, "for a person")]


@pytest.mark.parametrize(
    ("needed", "leaves"),
    [(">=3.12", []), (">=3.13", ["3.12.*"]), (">=3.14", ["3.12.*", "3.13.*", "3.13.* *_cp313t"])],
)
def test_pythons_that_the_new_wheel_excludes_leave_the_matrix(
    needed: str, leaves: list[str], tmp_path: Path
) -> None:
    matrix = values("python", ("3.11.*", "debian"), ("3.12.*", ""), ("3.13.*", ""), ("3.13.* *_cp313t", ""))
    rows = changed(released("1"), released("2", python=needed), tmp_path, None, *matrix)
    assert [row.old for row in rows if row.topic == "python"] == leaves


def test_a_python_is_new_if_neither_the_matrix_nor_the_old_wheels_have_it(tmp_path: Path) -> None:
    old, new = (
        Release(version="x", outcomes=(SourceOutcome(facts=(
            CiPin(name="python", value=pythons, where=Where(index="pip's")), CiPin(name="python", value="3.9"))),))
        for pythons in ("3.12, 3.13", "3.12, 3.13, 3.14, 3.14t")
    )  # fmt: skip
    rows = changed(old, new, tmp_path, None, *values("python", ("3.12.*", ""), ("3.14.*", "")))
    assert [(row.line, row.new) for row in rows if row.topic == "python"] == [(2, "3.14t")]


@pytest.mark.parametrize(("key", "commands"), [
    ("", {".ci_support": "conda-smithy rerender"}),
    ("torch_version", {
        ".ci_support": "python scripts/megabuild configs --write",
        "docs/dependencies.md": "python scripts/megabuild audit --write docs/dependencies.md",
    }),
])  # fmt: skip
def test_generated_files_have_the_command_of_their_repository(
    key: str, commands: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / ".ci_support/linux_64_cpu.yaml", "")
    write(tmp_path / "docs/dependencies.md", "")
    rows = changed(released("1"), released("2"), tmp_path, None, key=key)
    assert {row.file: row.note for row in rows if row.topic == "generated"} == commands


def test_only_patches_of_conda_forge_s_builds_are_to_be_checked(tmp_path: Path) -> None:
    names = ("0001-a.patch", "debian/0002-b.patch", "wheel/0003-c.patch", "0004-d.patch")
    recipe = "patches:\n" + "".join(f"  - patches/{name}\n" for name in names)
    rows = changed(released("1"), released("2"), tmp_path, recipe)
    assert [(row.line, row.old, row.note) for row in rows if row.topic == "patches"] == [
        (2, "2 patches", "check that they apply: 0001-a.patch, 0004-d.patch"),
    ]  # fmt: skip


def test_unread_sources_of_both_versions_are_named(tmp_path: Path) -> None:
    gone, other = (
        SourceOutcome(source="c", trouble="gone"),
        SourceOutcome(source="d", trouble="x", applies=False),
    )
    old = Release(
        version="1", outcomes=(SourceOutcome(source="a", trouble="no answer"), SourceOutcome(source="b"))
    )
    new = Release(version="2", outcomes=(gone, other))
    context = BumpContext(root=tmp_path, request=request(services(tmp_path)), old=old, new=new, recipe=())
    assert collect(context).unread == ("a of 1: no answer", "c of 2: gone")


def test_local_files_are_the_new_version_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write(tmp_path / "recipe/recipe.yaml", V1)

    def ask(_: object, version: str | None, *, local: bool = True) -> SimpleNamespace:
        target = SimpleNamespace(package="pytorch", version=version or "2.13.0", recipe=recipe)
        return SimpleNamespace(target=target, local=local)

    class Asked(Exception):
        pass

    def read(requests: Sequence[SimpleNamespace]) -> None:
        raise Asked([(one.target.version, one.local) for one in requests])

    monkeypatch.setattr(bump_command, "Session", lambda *_, **__: SimpleNamespace(request=ask))
    monkeypatch.setattr(bump_command, "read_releases", read)
    with pytest.raises(Asked) as asked:
        bump_command._collect(AuditOptions(bump="2.14.1"), tmp_path, print)
    assert asked.value.args[0] == [("2.13.0", False), ("2.14.1", True)]


def test_the_recipe_of_official_wheels_changes_with_pytorch_only(tmp_path: Path) -> None:
    recipe = write(tmp_path / "recipe/wheel/recipe.yaml", "")
    found = [
        bump_command._wheel_recipe(package, tmp_path, own) for own in (True, False) for package in packages()
    ]
    assert found == [recipe, *[None] * (len(found) - 1)]


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/a/b/archive/2c839c33742309ec41e620bf837495ec9926c56e.tar.gz",
        '${{ "https://a/test" if "rc" in version else "https://a" }}',
    ],
)
def test_every_source_has_a_row(address: str, changes: Callable[..., Any], tmp_path: Path) -> None:
    digest = "3aa24a3cb68a2d096e1ec2ed543cbc50b3cf68c2f84b9116f0aa3a3978cfa3de"
    text = V1 + f"  - source:\n      - url: {address}\n        sha256: {digest}\n"
    write(tmp_path / "feedstock" / "recipe" / "recipe.yaml", text)
    rows = changes("--root", str(tmp_path / "feedstock"), "--bump", "2.14.1")["sha256"]
    assert [bool(row["new"]) for row in rows] == [True, False]
    assert rows[1]["old"] == digest
    assert f"line {rows[1]['line'] - 1})" in rows[1]["note"]


@pytest.mark.parametrize("mirror", ["https://mirror.example/{{ name }}.tar.gz", ""])
def test_a_sha256_is_looked_up_if_one_of_the_addresses_has_the_version(
    mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []

    def find(urls: Sequence[str], _: object) -> Digest:
        asked.append(urls)
        return Digest(sha256="b" * 64, source="a page")

    monkeypatch.setattr(bump_hashes, "find_sha256", find)
    addresses = ["https://a.example/x-{{ version }}.tar.gz", *filter(None, [mirror])]
    listed = "".join(f"    - {address}\n" for address in addresses)
    recipe = f"source:\n  url:\n{listed}  sha256: {'a' * 64}\n"
    rows = changed(Release(version="1.2", outcomes=()), Release(version="1.3", outcomes=()), tmp_path, recipe)
    assert [(row.old, row.new) for row in rows if row.topic == "sha256"] == [("a" * 64, "b" * 64)]
    ((first, *others),) = asked
    assert (first, len(others)) == ("https://a.example/x-1.3.tar.gz", len(addresses) - 1)


def test_a_sha256_is_of_the_addresses_above_it_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[str]] = []

    def find(urls: Sequence[str], _: object) -> Digest:
        asked.append(urls)
        return Digest(source="none")

    monkeypatch.setattr(bump_hashes, "find_sha256", find)
    urls = ["https://a.example/x-1.2.tar.gz", "https://a.example/y-1.2.tar.gz"]
    recipe = f"source:\n  - url: {urls[0]}\n    md5: 12\n  - url: {urls[1]}\n    sha256: {'a' * 64}\n"
    changed(Release(version="1.2", outcomes=()), Release(version="1.3", outcomes=()), tmp_path, recipe)
    assert asked == [["https://a.example/y-1.3.tar.gz"]]


def test_sources_that_were_not_read_are_listed_below_the_changes() -> None:
    shown = bump_command._markdown(Bump(package="x", old="1", new="2", unread=("pinning: no answer",)))
    assert shown.partition("Not read now")[2] == ", so changes may be missing:\n\n* pinning: no answer\n"


def test_newest_is_the_version_on_the_index(
    invocation: Invocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "feedstock"
    write(root / "recipe" / "recipe.yaml", V1)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    pip = configured_by_the_test(monkeypatch)
    wheels = {f"torch-{version}-cp312-none-any.whl": "" for version in ("2.13.0", "2.12.1", "2.14.0rc1")}
    with serving({"/simple/torch/": html(wheels)}) as site:
        pip.text = f"global.index-url='{site.url}/simple/'\n"
        result = call(invocation, "audit", "--root", str(root), "--bump", "newest", "--json")
    bump = json.loads(result.stdout)["bump"]
    assert (bump["old"], bump["new"], bump["changes"]) == ("2.13.0", "2.13.0", [])
    # the run lock counts this folder as one that nothing in a run needs
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["audit"]


ONE, TWO, OTHER = "1" * 40, "2" * 40, "3" * 40


def vendoring(version: str, commit: str, submodule: str, cuda: str, *shipped: str) -> Release:
    facts: tuple[AnyFact, ...] = (
        TagCommit(name="pytorch", value=commit),
        Submodule(name="third_party/x", value="v1", commit=submodule),
        Requirement(name="cuda-toolkit", value=f"=={cuda}.2"),
        *(UpstreamArchs(name="archs", holds=Scope(cuda=(number,))) for number in shipped),
    )
    return Release(version=version, outcomes=(SourceOutcome(source="any", facts=facts),))


def test_commits_follow_the_tag_and_the_submodules(tmp_path: Path) -> None:
    recipe = f"source:\n  - rev: {ONE}\n  - rev: {TWO}\n  - rev: {OTHER}  # of neither\n"
    old, new = vendoring("1", ONE, TWO, "13.0"), vendoring("2", "a" * 40, "b" * 40, "13.0")
    rows = [row for row in changed(old, new, tmp_path, recipe) if row.topic == "commit"]
    found = [(row.line, row.kind, row.old, row.new) for row in rows]
    assert found == [
        (2, "certain", ONE, "a" * 40), (3, "certain", TWO, "b" * 40), (4, "for a person", OTHER, ""),
    ]  # fmt: skip


def test_cuda_of_upstreams_wheels_is_compared_with_the_matrix(tmp_path: Path) -> None:
    values = (("12.9", ""), ("13.0", ""), ("13.4", 'provider == "wheel"'), ("None", ""))
    matrix = (
        Line("conda_build_config.yaml", number, value, "cuda_compiler_version", value, selector)
        for number, (value, selector) in enumerate(values, 1)
    )
    old, new = vendoring("1", ONE, TWO, "13.0"), vendoring("2", ONE, TWO, "13.2", "13.0", "13.2")
    found = [row for row in changed(old, new, tmp_path, None, *matrix) if row.topic == "CUDA"]
    assert [(row.line, row.old, row.new) for row in found] == [(1, "12.9, 13.0", "13.0, 13.2")]


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        ("==1.13.1", "~=1.14.0", ("matrix", "certain", "1.14.0")),
        (">=1.13.1", ">=1.14", ("matrix", "certain", "1.14")),
        ("==1.13.1", "<2,>=1.14", ("recipe/recipe.yaml", "for a person", "<2,>=1.14")),
        ("==1.13.1", ">=1.14", ("recipe/recipe.yaml", "for a person", ">=1.14")),
        ("<2,>=1.13.1", "<3,>=1.14", ("recipe/recipe.yaml", "for a person", "<3,>=1.14")),
    ],
)
def test_a_version_in_a_variable_changes_unless_the_requirement_gets_another_form(
    was: str, now: str, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    recipe = "requirements:\n  run:\n    - sympy ==${{ sympy_version }}\n"
    matrix = Line("matrix", 1, "1.13.1", "sympy_version", "1.13.1")
    found = changed(released("1", sympy=was), released("2", sympy=now), tmp_path, recipe, matrix)
    shown = [(row.file, row.kind.value, row.new) for row in found if row.topic == "sympy"]
    assert shown == [expected]


def test_a_person_decides_on_rows_of_wheels_and_is_told_the_new_cuda(tmp_path: Path) -> None:
    recipe = "requirements:\n  run:\n    - sympy ==${{ sympy_version }}\n"
    matrix = Line("matrix", 1, "1.13.1", "sympy_version", "1.13.1", 'provider == "wheel"')
    old = released("1", sympy="==1.13.1", cuda_toolkit="==13.0.3")
    new = released("2", sympy="~=1.14.0", cuda_toolkit="==13.2.1")
    (row,) = (row for row in changed(old, new, tmp_path, recipe, matrix) if row.topic == "sympy")
    assert (row.kind.value, row.new) == ("for a person", "1.14.0")
    assert row.note == "row of official wheels, whose CUDA is 13.2"


def test_wheels_for_a_range_of_cuda_name_no_version_for_the_matrix(tmp_path: Path) -> None:
    matrix = (Line("conda_build_config.yaml", 1, "13.0", "cuda_compiler_version", "13.0"),)
    old, new = released("1", **{"cuda-toolkit": "==13.0.2"}), released("2", **{"cuda-toolkit": "==13.*"})
    assert not [row for row in changed(old, new, tmp_path, None, *matrix) if row.topic == "CUDA"]


def test_a_sha256_comes_from_the_page_that_publishes_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = configured_by_the_test(monkeypatch)
    asked = request(services(tmp_path), version="1.2")
    digest, other = "d" * 64, "e" * 64
    assets = [{"name": "thing-1.2.tar.gz", "digest": f"sha256:{digest}"}, {"name": "x.zip", "digest": None}]
    pages = {
        "https://api.github.com/repos/o/thing/releases/tags/v1.2": json.dumps({"assets": assets}).encode()
    }

    def get(url: str) -> Answer:
        if "/silent/" in url:
            raise NetworkError("no answer")
        return Answer(url=url, body=pages[url])

    monkeypatch.setattr(asked.services.client, "get", get)
    released = "https://github.com/o/thing/releases/download/v1.2"
    assert find_sha256([f"{released}/thing-1.2.tar.gz"], asked).sha256 == digest
    assert find_sha256([f"{released}/x.zip"], asked).sha256 == ""
    for repository, reason in (("silent", "no answer"), ("unread", "does not list the release's files")):
        unread = f"https://github.com/o/{repository}/releases/download/v1.2/thing-1.2.tar.gz"
        assert find_sha256([unread, f"{released}/thing-1.2.tar.gz"], asked).sha256 == digest, (
            "the next address"
        )
        assert reason in find_sha256([unread], asked).source
    with serving({"/simple/thing/": html({f"thing-1.2.tar.gz#sha256={other}": ""})}) as site:
        pip.text = f"global.index-url='{site.url}/simple/'\n"
        urls = ["https://index.example/packages/source/t/thing/thing-1.2.tar.gz"]
        assert find_sha256(urls, asked).sha256 == other
        assert find_sha256(["https://example.org/thing-1.2.tar.gz"], asked).sha256 == ""


def test_known_tarballs_are_pytorch_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = next(iter(TARBALLS))
    asked = request(services(tmp_path), version=version)
    monkeypatch.setattr(asked.services.client, "get", lambda url: Answer(url=url, body=b'{"assets": []}'))
    found = {}
    for owner in ("pytorch", "fork"):
        url = f"https://github.com/{owner}/pytorch/releases/download/v{version}/pytorch-v{version}.tar.gz"
        found[owner] = find_sha256([url], asked).sha256
    assert found == {"pytorch": TARBALLS[version].sha256, "fork": ""}
