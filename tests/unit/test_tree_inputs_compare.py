"""Which outputs of a kept tree read other files than there are now, each case alone and without a compiler."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write

from tree_inputs import compare, generators
from tree_inputs.contents import ABSENT, UNKNOWN, digest_of
from tree_inputs.inputs import Inputs
from tree_inputs.record import COMPLETE, STARTED, Checks, Found, Record, read
from tree_inputs.record import write as write_record
from tree_inputs.tree import Headers, Tree

NINJA = """\
rule CXX_COMPILER__user
  command = c++
rule C_COMPILER__user
  command = cc
rule CXX_SHARED_LIBRARY_LINKER__user
  command = c++
rule CUSTOM_COMMAND
  command = $COMMAND
build one.o: CXX_COMPILER__user one.cpp
build two.o: CXX_COMPILER__user two.cpp
build plain.o: C_COMPILER__user plain.c
build libuser.so: CXX_SHARED_LIBRARY_LINKER__user one.o two.o plain.o
build made.h: CUSTOM_COMMAND
build all: phony libuser.so
"""
OBJECTS = ("one.o", "two.o", "plain.o")
#: Objects as sets.
ONE, TWO, PLAIN = 1, 2, 4


@dataclass
class Now:
    """The present environment of a tree, and what its shadows say; contents that are not named are absent."""

    contents: Mapping[str, str] = field(default_factory=dict)
    below: Mapping[str, str] = field(default_factory=dict)  #: of each include folder
    names: Mapping[str, str] = field(default_factory=dict)
    pythons: Mapping[str, str] = field(default_factory=dict)
    python_of: Mapping[str, str] = field(default_factory=dict)  #: by first output
    languages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: by first output
    headers: Mapping[str, int] = field(default_factory=dict)
    objects: tuple[str, ...] = OBJECTS
    candidates: Mapping[str, int] = field(default_factory=dict)
    concerned: Mapping[str, int] = field(default_factory=dict)


class Compared:
    """A tree in a folder, and the comparison of a record with what there is now."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.build = folder / "tree/build"
        write(self.build / "build.ninja", NINJA)
        self.patch = patch
        self.probes: object = None

    def stale(self, now: Now, date: int = 0, **recorded: Any) -> compare._Stale:
        """Return the comparison with a record of these files, folders and checks."""
        tree = Tree.load(self.build)
        files = recorded.pop("files", {})
        folders = recorded.pop("folders", {})
        record = Record(files=files, folders=folders, checks=Checks(**recorded))
        read = SimpleNamespace(
            languages=now.languages,
            toolchain=None,
            of_statement=lambda edge: now.inputs.get(edge.outputs[0], ()),
        )

        def shadows(_: object, __: object, ___: object, probes: object, ____: object) -> object:
            self.probes = probes
            return SimpleNamespace(
                candidates=lambda: now.candidates, concerned=lambda path: now.concerned.get(path, 0)
            )

        self.patch.setattr(Inputs, "of", lambda _: read)
        self.patch.setattr(compare, "Shadows", shadows)
        self.patch.setattr(compare, "name_folders", lambda _: dict(now.names))
        self.patch.setattr(generators, "digests", lambda *_: now.pythons)
        self.patch.setattr(generators, "python_of", lambda _, edge: now.python_of.get(edge.outputs[0], ""))
        headers = Headers(objects=now.objects, readers=dict(now.headers))
        found = Found(record=record, identity="", date=date)
        stale = compare._Stale(tree, headers, found, {})
        contents = SimpleNamespace(of=lambda path: now.contents.get(path, ABSENT), below=lambda _: now.below)
        stale._contents = cast(Any, contents)
        return stale

    def outputs(self, now: Now, **recorded: Any) -> set[str]:
        """Return the outputs that would be removed."""
        return set(self.stale(now, **recorded).outputs())


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compared:
    return Compared(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("complete", "follows", "which"),
    [
        (False, None, None),
        (True, None, COMPLETE),
        (False, "", STARTED),
        (True, "", COMPLETE),
        (True, "of the complete one", STARTED),
        (True, "of another one", COMPLETE),
        (False, "of another one", None),
    ],
)
def test_the_record_of_a_start_counts_only_after_the_last_complete_one(
    complete: bool, follows: str | None, which: str | None, tmp_path: Path
) -> None:
    """Else it is of a compile before that one."""
    identity = ""
    if complete:
        write_record(tmp_path / COMPLETE, Record(files={COMPLETE: "1"}, folders={}, checks=Checks()))
        found = read(tmp_path / COMPLETE)
        assert found is not None
        identity = found.identity
    if follows is not None:
        checks = Checks(follows=follows.replace("of the complete one", identity))
        write_record(tmp_path / STARTED, Record(files={STARTED: "1"}, folders={}, checks=checks))
    valid = compare._valid_record(tmp_path)
    assert (valid and list(valid.record.files)) == (which and [which])


@pytest.mark.parametrize("before", ["1", "2", UNKNOWN])
def test_a_file_whose_content_is_unknown_counts_as_changed(before: str, compared: Compared) -> None:
    now = Now(contents={"/a.h": "1"}, headers={"/a.h": ONE})
    is_changed = before != "1"
    assert bool(compared.stale(now, files={"/a.h": before}).changed) == is_changed
    assert compared.outputs(now, files={"/a.h": before}) == ({"one.o"} if is_changed else set())


def test_changed_folders_are_those_of_names_and_headers_with_pythons_and_links(
    compared: Compared, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    below = {"/include/a.h": "1"}
    names = {"/same": "1", "/other": "2", "/new": "1"}
    now = Now(below=below, names=names, pythons={"/python": "1", "/python-same": "1"})
    recorded: dict[str, Any] = {
        "folders": {"/same": "1", "/other": "1", "/gone": "1", "/include": digest_of(below), "/headers": "1"},
        "include_folders": ("/include", "/headers"),
        "generators": {"/python": "2", "/python-same": "1"},
        "aliases": {str(link): "/elsewhere", str(tmp_path): os.path.realpath(tmp_path)},
    }
    changed = compared.stale(now, **recorded).changed_folders
    assert set(changed) == {"/other", "/new", "/gone", "/headers", "/python", str(link)}


@pytest.mark.parametrize(
    ("before", "contents", "removed"),
    [
        ({"CXX": ("/c++",), "C": ("/cc",)}, {"/c++": "1", "/cc": "1"}, set()),
        ({"CXX": ("/c++",), "C": ("/cc",)}, {"/c++": "2", "/cc": "1"}, {"one.o", "two.o"}),
        ({"CXX": ("/c++", "/gone"), "C": ("/cc",)}, {"/c++": "1", "/cc": "1"}, {"one.o", "two.o"}),
        ({"CXX": ("/c++",)}, {"/c++": "1", "/cc": "1"}, {"plain.o"}),
        (
            {"CXX": ("/c++",), "C": ("/cc",), "link": ("/ld",)},
            {"/c++": "1", "/cc": "1", "/ld": "1"},
            {"libuser.so"},
        ),
    ],
)
def test_another_program_of_a_language_concerns_its_outputs_alone(
    before: Mapping[str, tuple[str, ...]], contents: Mapping[str, str], removed: set[str], compared: Compared
) -> None:
    now = Now(contents=contents, languages={"CXX": ("/c++",), "C": ("/cc",)})
    files = {"/c++": "1", "/cc": "1", "/ld": "1"} if "/ld" in contents else {"/c++": "1", "/cc": "1"}
    assert compared.outputs(now, files=files, languages=before) == removed


def test_inputs_of_a_link_and_pythons_of_generators_concern_their_outputs(compared: Compared) -> None:
    now = Now(
        contents={"/lib.so": "2", "/same.so": "1"},
        inputs={"libuser.so": ("/same.so", "/lib.so"), "made.h": ("/same.so",)},
        pythons={"/python": "2"},
        python_of={"made.h": "/python", "one.o": "/python"},
    )
    files = {"/lib.so": "1", "/same.so": "1"}
    assert compared.outputs(now, files=files, generators={"/python": "2"}) == {"libuser.so"}
    assert compared.outputs(now, files=files, generators={"/python": "1"}) == {"libuser.so", "made.h"}


@pytest.mark.parametrize("is_changed", [True, False])
def test_an_object_without_headers_may_have_read_any_changed_file(
    is_changed: bool, compared: Compared
) -> None:
    now = Now(contents={"/a": "2" if is_changed else "1"}, objects=("one.o",))
    removed = {"two.o", "plain.o"} if is_changed else set()
    assert compared.outputs(now, files={"/a": "1"}) == removed


@pytest.mark.parametrize("moved", [0, 1, -1])
def test_an_output_with_another_age_than_recorded_is_not_the_recorded_one(
    moved: int, compared: Compared
) -> None:
    """Wherever the clock stood when it was made; an output that is missing is made anyway."""
    for name in ("one.o", "two.o"):
        os.utime(write(compared.build / name), ns=(1000, 1000))
    os.utime(compared.build / "two.o", ns=(1000 + moved, 1000 + moved))
    ages = {"one.o": 4000, "two.o": 4000}
    assert compared.outputs(Now(), date=5000, ages=ages) == ({"two.o"} if moved else set())
    assert compared.outputs(Now(), date=5000, ages={"one.o": 4000}) == {"two.o"}
    assert compared.outputs(Now(), date=5000) == set(), "a compile that was started has no ages"


def test_objects_that_found_headers_by_a_moved_link_are_stale(compared: Compared, tmp_path: Path) -> None:
    now = Now(contents={"/env/a.h": "1", "/b.h": "1"}, headers={"/env/a.h": TWO, "/b.h": ONE})
    files = {"/env/a.h": "1", "/b.h": "1"}
    recorded = {"files": files, "aliases": {str(tmp_path / "no-link"): "/env"}}
    assert compared.outputs(now, **recorded) == {"two.o"}


def test_headers_in_the_tree_are_ninja_s_own(compared: Compared) -> None:
    own = str(compared.build / "own.h")
    assert compared.outputs(Now(headers={own: ONE}), files={}) == set()


@pytest.mark.parametrize(
    ("path", "recorded", "removed"),
    [
        ("/env/new.h", {}, {"one.o"}),
        ("/env/new.h", {"files": {"/env/new.h": UNKNOWN}, "harmless": ("/env/new.h",)}, set()),
        ("/env/new.h", {"harmless": ("/env/new.h",)}, set()),
        ("/env/new.h", {"files": {"/env/new.h": "1"}}, set()),  # another object read it
        ("/env/new.h", {"files": {"/env/new.h": ABSENT}}, {"one.o"}),
    ],
)
def test_a_file_with_a_header_s_name_concerns_objects_unless_it_was_there(
    path: str, recorded: dict[str, Any], removed: set[str], compared: Compared
) -> None:
    now = Now(contents={path: "1"}, candidates={path: ONE, "/env/read.h": 0})
    stale = compared.stale(now, **recorded)
    assert set(stale._headers.members(stale._stale_objects())) == removed


@pytest.mark.parametrize("is_newer", [True, False])
def test_a_new_file_in_the_tree_concerns_only_older_objects(is_newer: bool, compared: Compared) -> None:
    """ninja compiles the object again if it was compiled before, and no record names the file."""
    for name, date in {"one.o": 100, "two.o": 300}.items():
        os.utime(write(compared.build / name), ns=(date, date))
    path = str(write(compared.build / "new.h"))
    date = 200 if is_newer else 50
    os.utime(path, ns=(date, date))
    stale = compared.stale(Now(candidates={path: ONE | TWO | PLAIN}))
    assert stale._stale_objects() == (ONE if is_newer else 0)


def test_a_file_that_vanished_concerns_the_objects_that_would_find_it(compared: Compared) -> None:
    now = Now(contents={"/there.h": "1"}, concerned={"/gone.h": ONE, "/harmless.h": TWO, "/there.h": PLAIN})
    files = {"/gone.h": "1", "/there.h": "1"}
    stale = compared.stale(now, files=files, harmless=("/harmless.h", "/there.h"))
    assert stale._stale_objects() == ONE | TWO


def test_names_that_headers_ask_for_are_the_recorded_ones_or_those_of_today(
    compared: Compared, tmp_path: Path
) -> None:
    header = str(write(tmp_path / "asks.h", "#if __has_include(<later.h>)\n"))
    now = Now(contents={header: "1"}, headers={header: ONE})
    compared.stale(now, files={header: "1"}, probes={header: ("before.h",)})._stale_objects()
    assert compared.probes == {header: ("before.h",)}
    compared.stale(now, files={header: "1"})._stale_objects()
    assert compared.probes == {header: ("later.h",)}, "the start of a compile knows no headers"
