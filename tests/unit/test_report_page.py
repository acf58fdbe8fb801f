"""The page about a run: well-formed, nothing in it but what was meant, and everything once."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from megabuild.report.page import page
from megabuild.report.timeline import Began, Ended, Entry, Head, Note, Ran, Sample, Writer, put_together, read

NASTY = "a</title><script>alert(1)</script>&amp;\x1b[31m\u202e<img src=http://x/y onerror=z>'\".o"
HEAD = Head(began=1000.0, config="tiny", what="PyTorch 2.13.0 for linux-64", jobs=2, cores=2, estimated=60.0,
            repeat="python3 build-locally.py tiny")  # fmt: skip
RECORD = {
    "ok": True, "error": "", "seconds": 100.0, "staging": "fresh", "staging_seconds": 50.0, "staged": "libtorch",
    "compiles": True, "object_cache": {"hits": 3, "misses": 1}, "reused": {"ccache": 3}, "log": "/somewhere/x.log",
    "swaps": {"3.13": {"steps": 14, "core": 0}}, "disk": {"peak": 5_000_000},
    "packages": [
        {"name": "libtorch", "version": "2.13.0", "build_string": "h0_0", "status": "built", "size": 1_000_000,
         "sha256": "ab" * 32, "seconds": 5.0, "path": "/x", "note": ""},
        {"name": "pytorch", "version": "2.13.0", "build_string": "py312_0", "status": "skipped", "size": 2_000_000,
         "sha256": "cd" * 32, "seconds": 0.0, "path": "/y", "note": ""},
    ],
}  # fmt: skip


def entries(steps: int = 6, name: str = "aten/{}.cpp.o") -> list[Entry]:
    return [
        HEAD,
        Began(at=1000.5, lane="pytorch", what="libtorch: compile"),
        *(Ran(at=1001.0 + n // 2, seconds=1.0, output=name.format(n), lane="pytorch") for n in range(steps)),
        *(Sample(at=1000.0 + 2 * n, busy=1.5, memory=n * 10**6, disk_free=10**9 - n) for n in range(20)),
        Ended(at=1050.0, lane="pytorch"),
        Began(at=1050.0, lane="test pytorch", what="testing pytorch", kind="test"),
        Ended(at=1060.0, lane="test pytorch", failed=True),
        Note(at=1060.0, text="a warning"),
    ]  # fmt: skip


def made(of: list[Entry], record: dict[str, object] = RECORD) -> str:
    timeline = put_together(of)
    assert timeline is not None
    return page(timeline, record)


def tree(text: str) -> ElementTree.Element:
    assert text.startswith("<!DOCTYPE html>\n")
    return ElementTree.fromstring(text.partition("\n")[2])


def words(text: str) -> str:
    return " ".join("".join(tree(text).itertext()).split())


def test_the_page_is_well_formed_and_has_what_the_record_and_the_timeline_say() -> None:
    text = words(made(entries()))
    for expected in (
        "PyTorch 2.13.0 for linux-64", "2 compile jobs on 2 cores", "1:40 min", "estimated 1:00 min", "75 %",
        "objects from the cache: 3 of 4",
            "compiled from scratch", "3 objects from the object cache", "swap to Python 3.13: 14 steps",
        "ab" * 32, "cd" * 32, "was there", "1.0 MB", "a warning", "python3 build-locally.py tiny", "/somewhere/x.log",
        "6 steps of ninja, 2 at once at most", "testing pytorch", "libtorch: compile", "19.0 MB",
    ):  # fmt: skip
        assert expected in text, expected


def test_every_step_is_drawn_once_however_many_there_are_and_the_page_stays_small_and_quick() -> None:
    name = "caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels{}.cpp.o"
    count = 1600 + 4 * 172
    began = time.process_time()
    text = made(entries(count, name))
    assert time.process_time() - began < 3
    assert len(text) < 1_000_000
    titles = [one.text or "" for one in tree(text).iter("title")]
    drawn = Counter(title.partition(":")[0] for title in titles if "QuantizedOpKernels" in title)
    assert drawn == {name.format(number): 1 for number in range(count)}


def test_of_more_steps_than_any_pytorch_has_the_page_says_how_many_it_leaves_out() -> None:
    text = made(entries(7000))
    assert len(text) < 2_000_000
    assert "7000 steps of ninja" in words(text)
    assert "1000 short ones are not drawn" in words(text)


def test_names_and_lines_of_builds_do_not_become_markup_wherever_they_stand() -> None:
    of: list[Entry] = [
        msgspec.structs.replace(
            HEAD, config=NASTY, what=NASTY, repeat=NASTY, channels=(NASTY,), downloads=((NASTY, 5),)
        ),
        Began(at=1001.0, lane=NASTY, what=NASTY),
        Ran(at=1001.0, seconds=2.0, output=NASTY, lane="pytorch"),
        Began(at=1001.0, lane="pytorch", what=NASTY),
        Began(at=1001.0, lane=f"test {NASTY}", what=NASTY, kind=NASTY),
        Note(at=1003.0, text=NASTY),
    ]
    row = dict.fromkeys(("name", "version", "build_string", "status", "sha256", "note", "path"), NASTY)
    record = {
        "ok": False, "error": f"{NASTY}\n{NASTY}\n{NASTY}", "log": NASTY, "staged": NASTY, "staging": NASTY,
        "failures": [dict.fromkeys(("what", "file", "line", "message", "excerpt", "again", "enter", "log"), NASTY)],
        "packages": [row], "reused": {NASTY: 3}, "swaps": {NASTY: {"steps": 1, "core": 2}},
    }  # fmt: skip
    text = made(of, record)
    names = {one.tag for one in tree(text).iter()}
    assert names <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "span", "section", "pre", "div", "b", "i",
        "input", "label", "svg", "g", "rect", "text", "line", "polygon", "polyline", "table", "tr", "th", "td", "code",
        "ul", "li",
    }  # fmt: skip
    own = {"class", "style", "id", "for", "type", "name", "checked", "charset", "content", "lang", "aria-label", "role",
           "x", "y", "x1", "x2", "y1", "y2", "dy", "rx", "width", "height", "points", "viewBox",
           "preserveAspectRatio", "text-anchor"}  # fmt: skip
    assert {key for one in tree(text).iter() for key in one.attrib} <= own
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert words(text).count("<script>alert(1)</script>&amp;") > 10  # shown, as what it is


def test_nothing_is_loaded_from_anywhere() -> None:
    text = made(entries())
    assert not re.search(r"(src|href|action|srcset|data)\s*=|url\(|@import|<script|<link|http", text)


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        ({}, "not finished"),
        ({"ok": True}, "done"),
        ({"ok": False, "error": "interrupted by Ctrl-C"}, "interrupted"),
        ({"ok": False, "error": "staging of libtorch failed\nx.cpp:3: error: no"}, "x.cpp:3: error: no"),
        (
            {"ok": False, "error": "failed", "failures": [{"what": "staging", "file": "a.cpp", "line": 3, "message":
             "no such thing", "excerpt": ["x", "y"], "again": "/z/again"}]},
            "staging: a.cpp:3: no such thing x y /z/again repeats the step",
        ),
        ({"ok": None, "packages": "x", "reused": [], "seconds": "y", "disk": None, "object_cache": 5}, "failed"),
    ],
)  # fmt: skip
def test_what_became_of_the_run_is_said_whatever_its_record_is_like(
    record: dict[str, object], shown: str
) -> None:
    assert shown in words(made(entries(), record))


def test_a_run_that_was_killed_leaves_what_it_had_noted(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "x.timeline.jsonl"
    assert read(path) is None
    Writer(path).write(entries())
    path.write_bytes(path.read_bytes() + b'{"type":"ran","at":10\n{"type":"nosuch"}\n\xff\n[1]\n{"type":"no')
    found = read(path)
    assert found is not None
    assert found.head == HEAD
    assert len(found.steps) == 6
    assert [(span.what, span.failed) for span in found.spans] == [
        ("libtorch: compile", False),
        ("testing pytorch", True),
    ]
    assert found.ended == 1060.0


def test_what_was_going_on_when_a_run_ended_goes_on_until_then() -> None:
    found = put_together([HEAD, Began(at=1001.0, lane="pytorch", what="a"), Began(at=1005.0, lane="pytorch", what="b"),
                          Note(at=1009.0, text="")])  # fmt: skip
    assert found is not None
    assert [(span.what, span.began, span.ended) for span in found.spans] == [
        ("a", 1001.0, 1005.0),
        ("b", 1005.0, 1009.0),
    ]


def test_a_full_disk_costs_the_page_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    Writer(tmp_path / "runs" / "x.timeline.jsonl").write(entries())
    assert (tmp_path / "runs").read_text() == "in the way"
