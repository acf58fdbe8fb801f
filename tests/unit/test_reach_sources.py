"""Before hours are spent: whether the archives that a recipe names can be had."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from audit_site import Site, serving

from groundwork.errors import PreflightError
from megabuild.configs.render import SourceArchive
from megabuild.plan import stored
from megabuild.run import preflight

NOWHERE = "http://127.0.0.1:9/there-1.tar.gz"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"/there-1.tar.gz": b"an archive"}) as running:
        yield running


def reach(state: Path, *urls: str, decision: str = "none") -> str:
    of_staging = (SourceArchive(urls, "5" * 64),)
    package = SimpleNamespace(archives=() if decision == "reuse" else of_staging, staging_archives=of_staging)
    plan: Any = SimpleNamespace(
        missing=(package,),
        options=SimpleNamespace(state=state),
        staging_decision=SimpleNamespace(decision=decision),
    )
    return preflight.reach_sources(plan)


@pytest.fixture(autouse=True)
def without_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "when_fetched", lambda plan: plan)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_source_that_answers_is_named(site: Site, ranges: bool, tmp_path: Path) -> None:
    site.ranges = ranges  # a server that gives whole files only has it, too
    assert reach(tmp_path, f"{site.url}/there-1.tar.gz") == f"{site.url.removeprefix('http://')} answers"


def test_one_mirror_is_enough(site: Site, tmp_path: Path) -> None:
    assert "answers" in reach(tmp_path, NOWHERE, f"{site.url}/there-1.tar.gz")


@pytest.mark.parametrize("path", ["absent-1.tar.gz", "there-1.tar"])
def test_a_source_that_is_gone_ends_the_run_with_its_address(site: Site, path: str, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=path):
        reach(tmp_path, f"{site.url}/{path}")


def test_no_answer_ends_the_run_without_a_password(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="cannot be had") as caught:
        reach(tmp_path, NOWHERE.replace("//", "//user:s3cretword@"))
    assert "s3cretword" not in caught.value.message


def test_what_the_engine_has_kept_and_a_local_file_need_no_server(tmp_path: Path) -> None:
    kept = tmp_path / "out" / "src_cache" / "0123456789abcdef_there-1.tar.gz"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert reach(tmp_path, NOWHERE) == ""
    assert reach(tmp_path, "file:///somewhere/there-2.tar.gz") == ""


def test_what_staging_was_compiled_from_is_not_needed_again(tmp_path: Path) -> None:
    assert reach(tmp_path, NOWHERE, decision="reuse") == ""
    with pytest.raises(PreflightError):
        reach(tmp_path, NOWHERE, decision="resume")
