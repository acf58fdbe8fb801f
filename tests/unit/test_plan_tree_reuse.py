"""Which trees are kept when a package of their environment changes, and what the last staging proves."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_files import write
from stop_at_write import every_stop

from groundwork import files
from megabuild.engine import output_folder
from megabuild.plan import tree_reuse
from megabuild.plan.changes import Change, compare, phrases, strongest
from megabuild.plan.environment_inputs import (
    RECORD,
    EnvironmentInputs,
    NamedPackage,
    ObjectCounts,
    PackageSource,
    Role,
    read_inputs,
)
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.tree_reuse import (
    STAMP,
    LastStaging,
    TreeUse,
    adopt,
    decide,
    prepare_tree,
    read_last_staging,
)  # fmt: skip

RECORDED: dict[str, Any] = {
    "version": 1,
    "files": {"/usr/include/a.h": "0" * 64},
    "folders": {},
    "packages": [
        {"source": "build", "name": "gcc", "role": "compilers", "objects": {"core": 9}, "links": 1},
        {"source": "host", "name": "libprotobuf", "role": "objects", "objects": {"core": 3, "bindings": 5}},
        {"source": "host", "name": "libabseil", "role": "objects", "objects": {"core": 3, "bindings": 5}},
        {"source": "host", "name": "zlib", "role": "objects", "links": 2},
        {"source": "build", "name": "cmake", "role": "configure"},
        {"source": "system", "name": "libpng16:amd64", "role": "objects", "objects": {"core": 2}},
    ],
    "objects": {"core": 4, "cuda": 0, "bindings": 6, "kernels": 0},
}
PACKAGES = {
    "build gcc": "14 h 1", "build cmake": "3 h 1", "build libcurl": "8 h 1", "host libprotobuf": "5 h 1",
    "host libabseil": "1 h 1", "host zlib": "1 h 1", "host idna": "3.7 h 1", "host pyyaml": "6 h 1",
    "system libpng16": "1.6 amd64", "system tzdata": "1 all",
}  # fmt: skip
FIRST = Fingerprint(
    compilers={"place": "host:/x"}, packages=PACKAGES, source={"recipe": "1"}, required=("gcc", "pyyaml")
)


def with_packages(of: Fingerprint = FIRST, /, **changed: str) -> Fingerprint:
    """The fingerprint with other packages; ``host_idna="4"`` changes one, an empty version removes it."""
    packages = dict(of.packages)
    for name, version in changed.items():
        packages[name.replace("_", " ")] = version
    return replace(of, packages={name: version for name, version in packages.items() if version})


def make_compiled(state: Path, fingerprint: Fingerprint, recorded: Mapping[str, Any] | None = None) -> None:
    """Make a tree as a finished staging leaves it."""
    write(state / "tree/build/a.o", "object")
    if recorded is not None:
        write(state / "tree" / RECORD, json.dumps(recorded))
    tree_reuse.write(state / "tree", fingerprint)
    write(state / "out/build_cache/staging_1/metadata.json", "{}")
    output_folder.seal_stagings(state / "out")


def use_of(state: Path, fingerprint: Fingerprint) -> TreeUse:
    """What a run with these facts does: as planning and Progress do it."""
    adopted = adopt(state / "tree", state / "out", fingerprint).fingerprint
    return decide(state / "tree", state / "out", adopted).use


def begin(state: Path, fingerprint: Fingerprint) -> TreeUse:
    """Begin a run with these facts, up to its compile."""
    adopted = adopt(state / "tree", state / "out", fingerprint).fingerprint
    decision = decide(state / "tree", state / "out", adopted)
    prepare_tree(decision, state / "tree", state / "out", adopted, "")
    return decision.use


def finish(state: Path, fingerprint: Fingerprint) -> None:
    make_compiled(state, fingerprint, RECORDED)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A config's folder with a finished staging."""
    finish(tmp_path / "state", FIRST)
    return tmp_path / "state"


def test_packages_of_one_name_in_two_environments_have_roles_of_their_own() -> None:
    """Such as a compiler's zlib and the one that libtorch links."""
    roles = {PackageSource.BUILD: Role.CONFIGURE, PackageSource.HOST: Role.OBJECTS}
    packages = [NamedPackage(source=source, name="zlib", role=role) for source, role in roles.items()]
    inputs = EnvironmentInputs(packages=tuple(packages), objects=ObjectCounts(core=1))
    found = {source: inputs.named(source.value, "zlib") for source in PackageSource}
    assert found == {**dict(zip(roles, packages, strict=True)), PackageSource.SYSTEM: None}
    for source, role in roles.items():
        old, new = (Fingerprint(packages={f"{source.value} zlib": version}) for version in "12")
        assert [change.role for change in compare(old, new, inputs)] == [role]


@pytest.mark.parametrize(
    ("changed", "role", "use"),
    [
        ({}, Role.NOTHING, TreeUse.REUSE),
        ({"host_idna": "3.10 h 1"}, Role.NOTHING, TreeUse.REUSE),
        ({"system_tzdata": "2 all"}, Role.NOTHING, TreeUse.REUSE),
        ({"host_pyyaml": "7 h 1"}, Role.CONFIGURE, TreeUse.RESUME),
        ({"build_cmake": "4 h 1"}, Role.CONFIGURE, TreeUse.RESUME),
        ({"build_libcurl": "9 h 1"}, Role.CONFIGURE, TreeUse.RESUME),
        ({"host_libprotobuf": "6 h 1"}, Role.OBJECTS, TreeUse.RESUME),
        ({"host_zlib": "1 h 2"}, Role.OBJECTS, TreeUse.RESUME),
        ({"system_libpng16": "1.7 amd64"}, Role.OBJECTS, TreeUse.RESUME),
        ({"host_new": "1 h 1"}, Role.OBJECTS, TreeUse.RESUME),
        ({"host_idna": ""}, Role.OBJECTS, TreeUse.RESUME),
        ({"build_gcc": "15 h 1"}, Role.COMPILERS, TreeUse.RECOMPILE),
        ({"build_gcc": "15 h 1", "host_idna": "3.10 h 1"}, Role.COMPILERS, TreeUse.RECOMPILE),
    ],
)
def test_a_changed_package_costs_what_it_is_to_the_tree(
    changed: dict[str, str], role: Role, use: TreeUse, state: Path
) -> None:
    new = with_packages(**changed)
    inputs = read_inputs(state / "tree")
    assert strongest(compare(FIRST, new, inputs)) is role
    assert use_of(state, new) is use
    if use is not TreeUse.REUSE:
        assert decide(state / "tree", state / "out", new).is_complete == (use is TreeUse.RESUME)


@pytest.mark.parametrize("recorded", [None, {}, {**RECORDED, "objects": {}}, {**RECORDED, "version": 2}])
def test_without_a_sound_record_a_changed_package_recompiles(
    recorded: dict[str, Any] | None, tmp_path: Path
) -> None:
    make_compiled(tmp_path, FIRST, recorded)
    assert use_of(tmp_path, FIRST) is TreeUse.REUSE
    assert use_of(tmp_path, with_packages(host_idna="3.10 h 1")) is TreeUse.RECOMPILE
    assert use_of(tmp_path, with_packages(host_zlib="2 h 1")) is TreeUse.RECOMPILE


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{torn", "[" * 100_000, '{"version": 1, "objects": {"core": -1}}',
        '{"version": 1, "objects": {"core": 1e99}}', '{"version": 1, "objects": {"core": 1}, "packages": [1]}',
        json.dumps({**RECORDED, "packages": [{"source": "host", "name": "a", "role": "nothing"}]}),
        json.dumps(
            {**RECORDED, "packages": [*RECORDED["packages"], {"source": "host", "name": "a", "role": "source"}]}
        ),
        json.dumps({**RECORDED, "packages": [{"source": "host", "name": "", "role": "objects"}]}),
        json.dumps({**RECORDED, "packages": [{"source": "host", "name": "odd", "role": "objects"}]}).replace(
            "odd", "\xff"
        ),
        json.dumps({**RECORDED, "more": "deep"}).replace('"deep"', "[" * 100_000),
        json.dumps({**RECORDED, "packages": [{"source": "else", "name": "a", "role": "objects"}]}),
    ],
)  # fmt: skip
def test_a_record_that_a_build_has_damaged_is_none(text: str, tmp_path: Path) -> None:
    write(tmp_path / RECORD, text.encode("latin-1"))
    assert read_inputs(tmp_path) is None


def test_a_decision_names_the_object_cache_of_the_last_staging(state: Path) -> None:
    """Objects of a cache that was deleted since are not expected in another one."""
    write(state / "objects-in", "its identity")
    decision = decide(state / "tree", state / "out", with_packages(host_zlib="2 h 1"))
    assert (decision.use, decision.objects_in) == (TreeUse.RESUME, "its identity")


@pytest.mark.parametrize("link", [RECORD, RECORD.parent], ids=str)
def test_a_record_behind_a_link_is_none(link: Path, state: Path, tmp_path: Path) -> None:
    assert read_inputs(state / "tree") is not None
    (state / "tree" / link).rename(tmp_path / "elsewhere")
    (state / "tree" / link).symlink_to(tmp_path / "elsewhere")
    assert read_inputs(state / "tree") is None


@pytest.mark.parametrize(
    "stamp",
    [
        b"", b"[]", b"{}", b'{"dependency": {"variant cxx": "13"}, "source": {}}', b"\xff", b'{"source": "\xff"}',
        pytest.param(b'{"source": ' + b"[" * 100_000, id="deep"), None,
    ],
)  # fmt: skip
def test_a_stamp_without_the_facts_of_this_version_says_so(stamp: bytes | None, state: Path) -> None:
    path = state / "tree" / STAMP
    if stamp is None:  # a build can write the tree
        path.rename(state / "elsewhere")
        path.symlink_to(state / "elsewhere")
    else:
        path.write_bytes(stamp)
    decision = decide(state / "tree", state / "out", FIRST)
    assert decision.use is TreeUse.RECOMPILE
    assert decision.reasons == ("the tree's stamp is missing, damaged or of another version",)


def test_a_tree_without_its_build_folder_is_compiled_again_though_nothing_changed(state: Path) -> None:
    """Packages for another Python are made in it."""
    (state / "tree" / "build").rename(state / "elsewhere")
    write(state / "tree" / "install/lib/libtorch.so")
    decision = decide(state / "tree", state / "out", FIRST)
    assert (decision.use, decision.is_complete) == (TreeUse.RESUME, False)
    assert decision.reasons == ("the tree's build folder is missing",)


def test_idna_changes_neither_the_digest_nor_what_the_next_change_is_compared_with(state: Path) -> None:
    new = with_packages(host_idna="3.10 h 1")
    adopted = adopt(state / "tree", state / "out", new)
    assert adopted.fingerprint == FIRST
    assert adopted.without_effect == ("idna 3.7 -> 3.10",)
    both = with_packages(new, host_libprotobuf="6 h 1")
    adopted = adopt(state / "tree", state / "out", both)
    assert (adopted.fingerprint, adopted.without_effect) == (both, ())
    assert begin(state, both) is TreeUse.RESUME
    assert tree_reuse.read(state / "tree") == both


def test_an_unfinished_staging_is_resumed_after_a_change_without_effect(state: Path) -> None:
    """Its facts are those of the tree's stamp, not those of the last staging that came to its end."""
    begun = with_packages(build_gcc="15 h 1")
    assert begin(state, begun) is TreeUse.RECOMPILE
    adopted = adopt(state / "tree", state / "out", with_packages(begun, host_idna="3.10 h 1"))
    assert adopted.fingerprint == begun
    assert adopted.without_effect == ("idna 3.7 -> 3.10",)


def test_packages_of_a_removed_tree_are_not_made_again_for_idna(state: Path) -> None:
    tree_reuse.keep_last_staging(state / "tree", state / "out")  # as at the end of a run
    for name in ("tree", "out"):
        files.remove(state / name)
    new = with_packages(host_idna="3.10 h 1")
    assert adopt(state / "tree", state / "out", new).fingerprint == FIRST
    assert use_of(state, new) is TreeUse.FRESH
    other = with_packages(host_zlib="2 h 1")
    assert adopt(state / "tree", state / "out", other).fingerprint == other


def test_expected_objects_are_those_of_the_changed_packages(state: Path) -> None:
    def missing(changed: Fingerprint) -> ObjectCounts | None:
        return decide(state / "tree", state / "out", changed).missing

    assert missing(with_packages(host_libprotobuf="6 h 1")) == ObjectCounts(core=3, bindings=5)
    assert missing(with_packages(host_zlib="2 h 1")) == ObjectCounts()
    both = with_packages(host_libprotobuf="6 h 1", host_libabseil="2 h 1")
    assert missing(both) == ObjectCounts(core=4, bindings=6), "all that exist"
    assert missing(with_packages(build_gcc="15 h 1")) == ObjectCounts(core=4, bindings=6)
    assert missing(replace(FIRST, source={"recipe": "2"})) is None, "ninja knows"
    assert missing(replace(FIRST, compilers={"place": "host:/y"})) is None


def test_a_raised_pin_keeps_the_tree_and_its_package_counts(state: Path) -> None:
    pinned = replace(FIRST, pins={"variant libprotobuf": "5"})
    finish(state, pinned)
    new = with_packages(replace(pinned, pins={"variant libprotobuf": "6"}), host_libprotobuf="6 h 1")
    decision = decide(state / "tree", state / "out", new)
    assert (decision.use, decision.is_complete) == (TreeUse.RESUME, True)
    assert decision.reasons == ("libprotobuf 5 -> 6",)
    assert decision.missing == ObjectCounts(core=3, bindings=5)


def test_after_an_interrupted_change_of_the_source_any_package_may_be_its_input(state: Path) -> None:
    """The record does not know the headers that the new source includes."""
    newer = replace(FIRST, source={**FIRST.source, "source tree": "2"})
    assert begin(state, newer) is TreeUse.RESUME
    moved = with_packages(newer, host_idna="3.10 h 1")
    assert adopt(state / "tree", state / "out", moved).fingerprint == moved
    assert use_of(state, moved) is TreeUse.RECOMPILE


def test_a_resumed_tree_is_of_the_object_cache_that_it_was_begun_with(state: Path) -> None:
    """The other cache has only the objects that were still missing."""
    for use, objects_in in ((TreeUse.RECOMPILE, "first"), (TreeUse.RESUME, "second")):
        decision = tree_reuse.Decision(use=use, reasons=())
        prepare_tree(decision, state / "tree", state / "out", FIRST, objects_in)
    finish(state, FIRST)
    last = tree_reuse.read_last_staging(state / "tree", state / "out")
    assert last is not None
    assert last.objects_in == "first"


def test_a_release_keeps_the_tree(state: Path) -> None:
    newer = replace(
        FIRST, source={**FIRST.source, "variant torch_version": "2.6.1", "variant torch_sha256": "ab" * 32}
    )
    reasons = phrases(compare(FIRST, newer, EnvironmentInputs()))
    assert reasons == ["torch_version none -> 2.6.1", "torch_sha256 changed"]
    assert begin(state, newer) is TreeUse.RESUME
    assert (state / "tree/build/a.o").exists()


@pytest.mark.parametrize(
    ("changed", "is_configured"),
    [
        ({"source": {**FIRST.source, "patch a.patch": "1"}}, True),
        ({"source": {**FIRST.source, "patch a.patch": "1", "list of patches": "1"}}, True),
        ({"source": {**FIRST.source, "source tree": "1"}}, True),
        ({"source": {**FIRST.source, "patch a.patch": "1"}, "packages": {**PACKAGES, "host idna": "4 h 1"}}, True),
        ({"source": {**FIRST.source, "script build_env.sh": "1"}}, False),
        ({"source": {"recipe": "2"}}, False),
        ({"source": {**FIRST.source, "variant torch_version": "2.6.1"}}, False),
        ({"source": {**FIRST.source, "patch a.patch": "1"}, "packages": {**PACKAGES, "build cmake": "4 h 1"}}, False),
        ({"packages": {**PACKAGES, "host libprotobuf": "6 h 1"}}, False),
        ({"pins": {"variant libprotobuf": "6"}}, False),
        ({"compilers": {"place": "host:/y"}}, False),
    ],
    ids=lambda value: "" if isinstance(value, bool) else " ".join(value),
)  # fmt: skip
def test_patches_alone_keep_cmake_s_configuration(
    changed: Mapping[str, Any], is_configured: bool, state: Path
) -> None:
    decision = decide(state / "tree", state / "out", replace(FIRST, **changed))
    assert decision.is_configured is is_configured


def test_a_tree_whose_compile_was_interrupted_may_have_to_be_configured(state: Path) -> None:
    patched = replace(FIRST, source={**FIRST.source, "patch a.patch": "1"})
    assert begin(state, patched) is TreeUse.RESUME  # and killed
    assert not decide(state / "tree", state / "out", patched).is_configured


PROTOBUF = with_packages(host_libprotobuf="6 h 1")
PROTOBUF_AND_ABSEIL = with_packages(PROTOBUF, host_libabseil="2 h 1")


def test_a_tree_with_objects_of_two_environments_is_resumed_by_the_second_alone(state: Path) -> None:
    assert begin(state, PROTOBUF) is TreeUse.RESUME  # and killed
    assert use_of(state, PROTOBUF) is TreeUse.RESUME
    assert use_of(state, FIRST) is TreeUse.RECOMPILE, "some objects have protobuf 6"
    assert use_of(state, PROTOBUF_AND_ABSEIL) is TreeUse.RECOMPILE
    # protobuf 6 may include headers of packages that no object named before
    for other in ({"host_idna": "3.10 h 1"}, {"host_pyyaml": "7 h 1"}, {"host_new": "1 h 1"}):
        assert use_of(state, with_packages(PROTOBUF, **other)) is TreeUse.RECOMPILE, other
    assert begin(state, PROTOBUF) is TreeUse.RESUME
    finish(state, PROTOBUF)
    assert use_of(state, PROTOBUF) is TreeUse.REUSE
    assert use_of(state, PROTOBUF_AND_ABSEIL) is TreeUse.RESUME


def test_a_recompile_that_was_interrupted_resumes_although_idna_moved(state: Path) -> None:
    compilers = with_packages(build_gcc="15 h 1")
    assert begin(state, compilers) is TreeUse.RECOMPILE
    write(state / "tree/build/half.o", "object")
    for other, use in (
        ({"host_idna": "3.10 h 1"}, TreeUse.RESUME),
        ({"host_pyyaml": "7 h 1"}, TreeUse.RESUME),
        ({"host_zlib": "2 h 1"}, TreeUse.RECOMPILE),
    ):
        assert use_of(state, with_packages(compilers, **other)) is use, other
    assert begin(state, with_packages(compilers, host_idna="3.10 h 1")) is TreeUse.RESUME
    assert (state / "tree/build/half.o").exists()


def test_the_first_compile_has_no_record_and_begins_again_for_every_package(tmp_path: Path) -> None:
    assert begin(tmp_path, FIRST) is TreeUse.FRESH
    write(tmp_path / "tree/build/half.o", "object")
    assert use_of(tmp_path, FIRST) is TreeUse.RESUME
    assert use_of(tmp_path, with_packages(host_idna="3.10 h 1")) is TreeUse.RECOMPILE


@pytest.mark.parametrize("roles", [*itertools.permutations((Role.CONFIGURE, Role.OBJECTS, Role.COMPILERS))])
def test_of_a_package_for_several_processors_the_strongest_part_counts(roles: tuple[Role, ...]) -> None:
    """dpkg has one of them by the same name for each processor: libc6:amd64, libc6:arm64."""
    packages: list[NamedPackage] = []
    for number, role in enumerate(roles):
        packages.append(NamedPackage(source=PackageSource.SYSTEM, name=f"libc6:arch{number}", role=role))
        packages.append(NamedPackage(source=PackageSource.HOST, name="libc6", role=Role.CONFIGURE))
    named = EnvironmentInputs(packages=tuple(packages)).named("system", "libc6")
    assert named is not None
    assert named.role is Role.COMPILERS


# ------------------------------------------------------------------------------------------ kills

#: Stands for the compile: each object notes the environment that it was compiled in.
OBJECTS = ("a", "b", "c")


def compile_objects(state: Path, fingerprint: Fingerprint) -> None:
    """Do as the recipe: compare the environment with the record, remove other objects, compile, replace the record.

    An object reads the headers of protobuf, and those of abseil if protobuf is 6.
    """
    protobuf = fingerprint.packages["host libprotobuf"]
    seen = {"libprotobuf": protobuf}
    if protobuf.startswith("6"):
        seen["libabseil"] = fingerprint.packages["host libabseil"]
    record = state / "tree" / RECORD
    former = json.loads(record.read_text())["files"] if record.is_file() else None
    build = state / "tree" / "build"
    differs = former is None
    for name, content in (former or {}).items():
        differs |= fingerprint.packages[f"host {name}"] != content
    if differs:
        for name in OBJECTS:
            (build / f"{name}.o").unlink(missing_ok=True)
    for name in OBJECTS:
        if not (build / f"{name}.o").is_file():
            files.write(build / f"{name}.o", json.dumps(seen))
    packages = [{"source": "host", "name": name, "role": "objects", "objects": {"core": 3}} for name in seen]
    content = {"version": 1, "files": seen, "packages": packages, "objects": {"core": 3}}
    files.write(record, json.dumps(content))


def build(state: Path, fingerprint: Fingerprint) -> TreeUse:
    """Do as a run, up to the finished staging."""
    adopted = adopt(state / "tree", state / "out", fingerprint).fingerprint
    decision = decide(state / "tree", state / "out", adopted)
    prepare_tree(decision, state / "tree", state / "out", adopted, "")
    if decision.use is not TreeUse.REUSE:
        compile_objects(state, fingerprint)
        write(state / "out/build_cache/staging_1/metadata.json", "{}")
        output_folder.seal_stagings(state / "out")
    tree_reuse.keep_last_staging(state / "tree", state / "out")
    return decision.use


def environments_of_objects(state: Path) -> set[str]:
    return {(state / "tree/build" / f"{name}.o").read_text() for name in OBJECTS}


@pytest.mark.parametrize("second", [PROTOBUF, PROTOBUF_AND_ABSEIL, with_packages(host_idna="3.10 h 1")])
def test_no_object_of_another_environment_is_kept_wherever_a_run_is_killed(
    second: Fingerprint, tmp_path: Path
) -> None:
    """Then the environment stays, goes back, or changes once more; at the end all objects fit it."""
    here = tmp_path / "here"
    build(here, FIRST)
    abseil = with_packages(second, host_libabseil="3 h 1")
    thirds = (second, FIRST, PROTOBUF_AND_ABSEIL, abseil, with_packages(second, host_idna="4 h 1"))
    stops = 0
    for third in thirds:
        expected = tmp_path / f"expected-{stops}"
        build(expected, third)
        for state in every_stop(here, lambda folder: build(folder, second)):
            stops += 1
            build(state, third)
            assert environments_of_objects(state) == environments_of_objects(expected)
            assert use_of(state, third) is TreeUse.REUSE
    assert stops >= len(thirds)


def test_no_object_of_another_environment_is_kept_after_two_kills(tmp_path: Path) -> None:
    here = tmp_path / "here"
    build(here, FIRST)
    last = with_packages(PROTOBUF, host_libabseil="3 h 1")
    build(tmp_path / "expected", last)
    for number, state in enumerate(every_stop(here, lambda folder: build(folder, PROTOBUF), step=2)):
        once = state.rename(tmp_path / f"once-{number}")
        for twice in every_stop(once, lambda folder: build(folder, FIRST), step=3):
            build(twice, last)
            assert environments_of_objects(twice) == environments_of_objects(tmp_path / "expected")


def test_the_last_staging_outlives_a_kill_while_its_tree_is_prepared(state: Path) -> None:
    for folder in every_stop(state, lambda folder: begin(folder, PROTOBUF)):
        last = read_last_staging(folder / "tree", folder / "out")
        assert last is not None
        assert last.fingerprint == FIRST
        assert last.inputs is not None
        assert use_of(folder, PROTOBUF) is TreeUse.RESUME, "its tree is kept"


#: Objects of a staging in another folder.
LEFT = ObjectCounts(core=4, bindings=6, kernels=3)


@pytest.mark.parametrize(
    ("fingerprint", "missing"),
    [
        (FIRST, ObjectCounts()),
        (FIRST.moved_to("host:/y"), ObjectCounts(kernels=3)),
        (
            with_packages(FIRST.moved_to("host:/y"), host_libprotobuf="6 h 1"),
            ObjectCounts(core=3, bindings=5, kernels=3),
        ),
        (replace(FIRST, compilers={"place": "host:/x", "variant cxx": "15"}), None),
        (replace(FIRST, source={"recipe": "2"}), None),
    ],
    ids=["same place", "another folder", "and protobuf", "compiler", "recipe"],
)
def test_the_objects_that_another_folder_s_staging_left_are_counted(
    tmp_path: Path, fingerprint: Fingerprint, missing: ObjectCounts | None
) -> None:
    inputs = msgspec.convert({**RECORDED, "objects": LEFT}, EnvironmentInputs)
    left = LastStaging(fingerprint=FIRST, inputs=inputs)
    fresh = decide(tmp_path / "tree", tmp_path / "out", fingerprint)
    counted = tree_reuse.count_missing(fresh, left, fingerprint)
    assert (counted.use, counted.missing) == (TreeUse.FRESH, missing)
    without_record = LastStaging(fingerprint=FIRST, inputs=None)
    assert tree_reuse.count_missing(fresh, without_record, fingerprint) == fresh


def test_phrases_name_each_change_once_and_the_strongest_first() -> None:
    inputs = EnvironmentInputs(objects=ObjectCounts(core=1))
    new = with_packages(host_idna="4 h 1", build_gcc="15 h 1", host_gcc="15 h 1")
    old = with_packages(host_gcc="14 h 1")
    assert phrases(compare(old, new, inputs)) == ["gcc 14 -> 15", "idna 3.7 -> 4"]
    many = {f"host_{name}": "1 h" for name in itertools.islice("abcdefgh", 8)}
    many["build_a"] = "1 h"  # the same phrase
    assert phrases(compare(FIRST, with_packages(**many), inputs))[5:] == ["f none -> 1", "2 more"]


@pytest.mark.parametrize("role", Role)
def test_a_tree_without_its_last_staging_is_kept_after_changes_of_the_source_only(role: Role) -> None:
    former = tree_reuse._Former(
        names=frozenset({"build", STAMP}), stamp=FIRST, last=None, has_staging=True, has_record=True
    )
    source = Change(phrase="recipe", role=Role.SOURCE)
    assert former.can_keep([source])
    assert former.can_keep([Change(phrase="x", role=role), source]) is (role is Role.SOURCE)


def test_changes_of_the_source_keep_a_tree_of_another_environment_than_the_last_staging_s() -> None:
    other = LastStaging(fingerprint=replace(FIRST, pins={"zlib": "2"}), inputs=None)
    former = tree_reuse._Former(
        names=frozenset({"build", STAMP}), stamp=FIRST, last=other, has_staging=False, has_record=False
    )
    assert former.can_keep([Change(phrase="recipe", role=Role.SOURCE)])
    assert not former.can_keep([Change(phrase="x", role=Role.CONFIGURE)])
