"""The committed facts, and the tables in docs/dependencies*.md, as anybody gets them without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from audit_wheels import configured_by_the_test

from pin_audit import snapshots
from pin_audit.audit_options import AuditOptions
from pin_audit.audit_report import BEGIN, END, Report, markdown
from pin_audit.command import make
from pin_audit.facts import Newest, RecipePin, Submodule
from pin_audit.request import About
from pin_audit.rows import AuditRow
from pin_audit.run_sources import sources_about
from pin_audit.statuses import Status

RELEASES = ("2.12.0", "2.13.0", "2.14.1", "2.15.0")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[dict[str, Report]]:
    """Of the releases for which a table is kept, with an empty cache."""
    with pytest.MonkeyPatch.context() as patch:
        configured_by_the_test(patch).text = "global.no-index='1'\n"
        patch.setenv("MEGABUILD_CACHE", str(tmp_path_factory.mktemp("empty")))
        kept = ("2.13.0", "2.14.1", "2.15.0")
        yield {version: make(AuditOptions(release=version, offline=True), repository) for version in kept}


def row(reports: dict[str, Report], version: str, name: str) -> AuditRow:
    return next(one for one in reports[version].audits[0].rows if one.name == name)


def test_every_release_has_its_facts_with_source_and_day() -> None:
    for version in (*RELEASES, ""):
        found = snapshots.load("pytorch" if version else snapshots.CHANNEL, version)
        assert found is not None
        sources = set(sources_about(About.RELEASE if version else About.CHANNEL))
        assert {one.source for one in found.sources} == sources
        for fact in (fact for one in found.sources for fact in one.facts):
            assert fact.where.fetched[:3] == "202", fact
            assert fact.where.file or fact.where.url, fact
            assert (
                fact.where.index or re.fullmatch("[0-9a-f]{40}", fact.where.commit) or fact.where.inferred
            ), fact


def test_the_committed_table_is_the_one_that_is_made_now(
    reports: dict[str, Report], repository: Path
) -> None:
    """Whoever changes recipe or snapshots makes it again: audit --offline --write docs/dependencies.md."""
    text = (repository / "docs" / "dependencies.md").read_text(encoding="utf-8")
    committed = text.partition(f"{BEGIN}\n")[2].partition(f"\n{END}")[0].strip()
    made = markdown(reports["2.13.0"], level=3, lines=False).strip()

    def tables(report: str) -> list[str]:
        return [line for line in report.splitlines() if line.startswith(("| ", "["))]

    assert tables(committed) == tables(made)
    assert len(tables(made)) > 80


def test_what_2_15_0_changes_is_told_without_a_network(reports: dict[str, Report]) -> None:
    expected = {"python": Status.CONFLICT, "triton": Status.CONFLICT, "typing_extensions": Status.OLDER}
    assert {name: row(reports, "2.15.0", name).verdict.status for name in expected} == expected
    assert row(reports, "2.14.1", "triton").verdict.status is Status.CONFLICT
    assert row(reports, "2.13.0", "triton").verdict.status is Status.IN_STEP


def test_real_rows_that_were_wrong(reports: dict[str, Report]) -> None:
    gcc = row(reports, "2.13.0", "gcc")
    assert gcc.verdict.status is Status.NEWER  # conda-forge's pins, where upstream's wheels have an older one
    assert "conda-forge" not in gcc.verdict.sentence.partition("Decided: ")[0]
    assert row(reports, "2.13.0", "python").verdict.status is Status.IN_STEP
    assert "v21.12 (3.21.12)" in row(reports, "2.14.1", "libprotobuf").verdict.sentence
    (sleef,) = row(reports, "2.13.0", "sleef").all(Submodule)
    assert (sleef.value, sleef.commit[:8]) == ("3.8", "5a1d179d")
    (xnnpack,) = row(reports, "2.13.0", "xnnpack").all(Submodule)
    assert xnnpack.value == "51a0103"
    names = {one.name for one in reports["2.13.0"].audits[0].rows}
    assert not names & {"cuda-cupti", "libcufile", "libcublas"}
    for tool in ("cmake", "ninja", "packaging", "setuptools"):
        assert row(reports, "2.13.0", tool).verdict.status is Status.IN_STEP
    # libmagma 2.10.0 is pinned, and the stored recipe of its feedstock is of 2.9.0: an old look proves nothing absent
    magma = row(reports, "2.13.0", "magma")
    assert magma.all(RecipePin)
    assert magma.all(Newest)
    assert magma.verdict.status is not Status.CONFLICT
    assert row(reports, "2.13.0", "eigen").verdict.status is Status.UNKNOWN
