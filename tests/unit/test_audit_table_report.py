"""The report on paper: Markdown, JSON, what changed, and the text between two markers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from audit_samples import MADE, asks, ci_has, has, pinned, report, switch, vendors, wheel
from msgspec import structs

from groundwork.errors import UsageError
from pin_audit.facts import Holds, RecipePin, UpstreamArchs
from pin_audit.gather import OWN, SOURCES
from pin_audit.names import names, plain
from pin_audit.report import jsonfile
from pin_audit.report.jsonfile import CellChange, Report
from pin_audit.report.markdown import BEGIN, END, insert, markdown

FINDINGS = (
    wheel("sympy", ">=1.13.3"),
    wheel("typing-extensions", ">=4.10.0"),
    asks("sympy", ">=1.13.3"),
    asks("typing_extensions", ">=4.9"),
    asks("nccl", "<2.29", configs=("linux_64_cuda129",)),
    asks("nccl", "2.*", configs=("linux_64_cuda130", "linux_aarch64_cuda130")),
    asks("libuv", "*"),
    vendors("third_party/fmt", "12.1.0-3-gabc1234", commit="abc1234" + "0" * 33),
    pinned("nccl", "2"),
    has("nccl", "2.30.1"),
    UpstreamArchs(name="archs", archs=("9.0", "12.0+PTX"), holds=Holds(cuda=("13.0",))),
    switch("USE_SYSTEM_NCCL", "1"),
)


def test_markdown_has_a_row_for_every_dependency_with_its_date_and_links() -> None:
    text = markdown(report(*FINDINGS))
    assert "Upstream's v2.13.0, made 2026-11-21." in text
    assert "| sympy | [`>=1.13.3`][pytorch-1] (wheel) | `>=1.13.3` | | in step |" in text
    assert "[pytorch-1]: https://index.example/torch/2.13.0/" in text
    assert "`<2.29` \\[cuda129\\]<br>`2.*` \\[cuda130\\]" in text
    assert "| fmt | 12.1.0-3-gabc1234 (submodule) | compiled in | |" in text
    assert "Without a version, here as elsewhere: libuv." in text


def test_markdown_is_the_same_whatever_the_order_of_findings() -> None:
    assert markdown(report(*FINDINGS)) == markdown(report(*reversed(FINDINGS)))


def test_markdown_has_no_line_numbers_of_this_repository() -> None:
    ittapi = vendors("third_party/ittapi", "v3.2")
    text = markdown(report(ittapi, switch("USE_ITT", "0")))
    assert "USE\\_ITT=0, recipe/build\\_env.sh)" in text
    assert ":30" not in text


def test_markdown_keeps_what_would_break_a_table_in_its_cell() -> None:
    text = markdown(report(wheel("x", "<5|>=6"), asks("x", "<5|>=6.*")))
    row = next(line for line in text.splitlines() if line.startswith("| x |"))
    assert row.replace("\\|", "").count("|") == 6


def test_what_would_steer_a_terminal_or_break_a_page_is_made_harmless() -> None:
    hostile = vendors("third_party/x\x1b[2J", "v1\x1b]8;;http://e/\x07|`<b>\n# no heading\u202e")
    made = report(hostile, troubles={"channel": "line one\nline two \x9b31m"})
    text = markdown(made) + jsonfile.text(made)
    assert not [sign for sign in text if (sign < " " and sign != "\n") or sign in "\x7f\x9b\u202e"]
    assert "\n# no heading" not in text
    assert "line one line two ?31m" in text
    row = next(line for line in markdown(made).splitlines() if line.startswith("| x"))
    assert row.replace("\\|", "").count("|") == 5


def test_json_has_the_origin_of_every_value_and_can_be_read_again(tmp_path: Path) -> None:
    made = report(*FINDINGS, troubles={"channel": "no answer"})
    path = tmp_path / "audit.json"
    jsonfile.write(jsonfile.text(made), path)
    document = json.loads(path.read_text())
    assert (document["format"], document["format_version"], document["made"]) == ("megabuild/audit", 3, MADE)
    found = [one for source in document["packages"][0]["sources"] for one in source.get("facts", [])]
    assert {
        one["name"]: (one["where"]["file"], one["where"]["line"])
        for one in found
        if one["kind"] == "requirement"
    } == {
        "sympy": ("METADATA", 7),
        "typing-extensions": ("METADATA", 7),
    }
    package = document["packages"][0]
    sources = {source["source"]: source.get("facts", []) for source in package["sources"]}
    (nccl,) = [row for row in package["rows"] if row["name"] == "nccl"]
    cells = {
        column: [sources[place.split("/")[0]][int(place.split("/")[1])]["value"] for place in places]
        for column, places in nccl["cells"].items()
    }
    assert cells == {"upstream": [], "recipe": ["<2.29", "2.*"], "conda-forge": ["2", "2.30.1"]}
    again = jsonfile.read(path, names())
    assert again == made
    assert jsonfile.text(again) == path.read_text()
    former = {name: value for name, value in document.items() if name != "format_version"} | {"format": 2}
    path.write_text(json.dumps(former))
    assert jsonfile.read(path, names()) == made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not a report"),
        ("[]", "not a report"),
        ('{"format": 1, "packages": []}', "megabuild/audit 1, "),
        ('{"packages": []}', "not a report"),
        ('{"format": 99, "packages": []}', "megabuild/audit 99, this program reads"),
        ('{"format": "megabuild/audit", "format_version": 4, "packages": []}', "megabuild/audit 4"),
        ('{"format": "megabuild/slim", "format_version": 1}', "megabuild/slim 1"),
        ('{"format": 2, "made": "yesterday", "packages": []}', "not a report"),
        ('{"format": 2, "made": "2026-11-21", "packages": [{"package": "x"}]}', "not a report"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        jsonfile.read(path, names())


def test_a_file_is_written_whole_through_a_link_to_it(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(path)
    jsonfile.write("new", link)
    assert (path.read_text(), link.is_symlink()) == ("new", True)
    assert sorted(os.listdir(tmp_path)) == ["link", "x"]


def test_what_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match="cannot write"):
        jsonfile.write("x", tmp_path / "file" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def changes(before: Report, after: Report) -> list[CellChange]:
    return list(jsonfile.compare(before, after, names()).changes)


def test_only_cells_that_changed_are_changes() -> None:
    before = report(*FINDINGS)
    after = report(
        *[one for one in FINDINGS if one.name != "typing-extensions"], wheel("typing-extensions", ">=4.12")
    )
    assert [(one.row, one.column, one.before, one.after) for one in changes(before, after)] == [
        ("typing_extensions", "upstream", ">=4.10.0 (wheel)", ">=4.12 (wheel)")
    ]
    assert changes(before, before) == []


def test_rows_that_come_and_go_are_changes() -> None:
    before, after = report(asks("a", "1.*")), report(asks("b", "1.*"))
    found = {(one.row, one.column): (one.before, one.after) for one in changes(before, after)}
    assert found["a", "recipe"] == ("1.*", "")
    assert found["b", "recipe"] == ("", "1.*")


def test_what_was_not_read_has_not_changed() -> None:
    facts = (wheel("sympy", "==1.13.1"), asks("sympy", ">=1.13.3"), pinned("zlib", "1"), asks("zlib", "*"))
    dead = {"wheel_metadata": "not in the cache", "pinning": "not in the cache"}
    after = report(*[one for one in facts if isinstance(one, RecipePin)], troubles=dead)
    before = report(*facts)
    for old, new in ((before, after), (after, before)):
        found = jsonfile.compare(old, new, names())
        assert (found.changes, found.unread, found.empty) == ((), ("pinning", "wheel_metadata"), False)
    # what both have read is compared still, and judged by what both have read
    other = report(wheel("sympy", "==1.13.1"), asks("sympy", ">=1.14"), troubles=dead)
    assert [one.column for one in changes(before, other) if one.row == "sympy"] == ["recipe"]


def test_a_single_value_that_was_not_read_has_not_changed() -> None:
    known, unknown = ci_has("cmake", "4.0"), structs.replace(ci_has("cmake", ""), trouble="no form fits")
    both = (ci_has("ninja", "1.11"), asks("cmake", "*"), asks("ninja", "*"))
    found = jsonfile.compare(report(known, *both), report(unknown, *both), names())
    assert (found.changes, found.values, found.unread) == ((), 1, ())


def test_nothing_read_is_nothing_compared() -> None:
    outside = [name for name in SOURCES if name not in OWN]
    after = report(asks("sympy", ">=1"), troubles=dict.fromkeys(outside, "not in the cache"))
    before = report(wheel("sympy", "==1.13.1"), asks("sympy", ">=1"))
    assert jsonfile.compare(before, after, names()).empty
    assert not jsonfile.compare(before, before, names()).empty


def test_a_package_of_one_report_only_is_named() -> None:
    both = report(*FINDINGS)
    lib = replace(both.audits[0], target=structs.replace(both.audits[0].target, package="pyg-lib"))
    wider = replace(both, audits=(*both.audits, lib))
    found = jsonfile.compare(both, wider, names())
    assert (found.changes, found.unmatched, found.empty) == ((), ("pyg-lib",), False)


def readme(folder: Path, text: str) -> Path:
    path = folder / "README.md"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_what_is_between_the_markers_changes(tmp_path: Path, line_end: str) -> None:
    text = f"# A\n\n{BEGIN}\nold\n{END}\nrest, no line end".replace("\n", line_end)
    path = readme(tmp_path, text)
    assert insert(path, "new\n\ntable\n")
    expected = f"# A\n\n{BEGIN}\n\nnew\n\ntable\n\n{END}\nrest, no line end".replace("\n", line_end)
    assert path.read_bytes() == expected.encode()
    assert not insert(path, "new\n\ntable")


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        f"{BEGIN}\n",
        f"{BEGIN}\n{BEGIN}\n{END}\n",
        f"{BEGIN}\n{END}\n{END}\n",
        f"{END}\n{BEGIN}\n",
        f"`{BEGIN}` and `{END}` in a sentence\n",
    ],
)
def test_a_file_without_its_markers_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = readme(tmp_path, text)
    with pytest.raises(UsageError, match="does not have the markers"):
        insert(path, "new")
    assert path.read_text() == text


def test_no_name_stands_twice_in_the_mapping_and_every_row_follows_another() -> None:
    entries = names().entries.values()
    for called in ("conda", "distributions", "ci"):
        pairs = {(plain(name), one.name) for one in entries for name in getattr(one, called)}
        if called == "conda":
            pairs |= {(plain(one.name), one.name) for one in entries}
        assert len({name for name, _ in pairs}) == len(pairs)
    assert {one.follows for one in entries} <= {"", *names().entries}


def test_names_are_found_in_every_spelling() -> None:
    mapping = names()
    assert mapping.by_distribution("nvidia-cudnn-cu13") == mapping.by_conda("libcudnn_dev") == "cudnn"
    assert mapping.by_distribution("typing-extensions") == "typing_extensions"
    assert mapping.by_submodule("third_party/ideep/mkl-dnn") == "onednn"
    assert mapping.by_ci("cupti") == "cuda-cupti"
    assert mapping.by_key("c_stdlib_version", ("osx-64",)) == ("macosx_deployment_target",)


def test_newest_versions_are_asked_for_what_the_recipe_and_upstream_name() -> None:
    wanted = names().wanted("pyg-lib", ("libcudnn-dev", "brand-new"))
    assert {"libcudnn-dev", "brand-new", "metis"} <= set(wanted)
    assert "sympy" not in wanted
