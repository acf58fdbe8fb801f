"""The page that a run leaves: one that went well, one that failed, one that was killed; not one that did nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_build_session import built, channel, place, shared, tiny  # noqa: F401 - fixtures
from tiny import Tiny, driver, wait_for

from groundwork.errors import BuildError
from megabuild.report.run_page import remake


def words(path: Path) -> str:
    return " ".join("".join(ElementTree.fromstring(path.read_text().partition("\n")[2]).itertext()).split())


def pages(one: Tiny) -> list[Path]:
    return sorted((one.options().state / "runs").glob("*.html"))


def test_a_run_leaves_a_page_and_one_that_has_nothing_to_do_leaves_it(built: Tiny) -> None:  # noqa: F811
    state = built.options().state
    (page,) = pages(built)
    latest = (state / "report.html").read_bytes()
    assert page.read_bytes() == latest
    text = words(page)
    for expected in (
        "done",
        "tinylib",
        "tinypy",
        ": compile",
        "testing tinypy",
        "--rehearse",
        "To do it again",
    ):
        assert expected in text, expected
    assert built.run().ok
    assert (state / "report.html").read_bytes() == latest
    assert pages(built) == [page]


def test_a_run_that_fails_leaves_a_page_with_the_failure_in_it_and_no_secret(
    tiny: Tiny,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GH_PAT", "hunter22")
    monkeypatch.setenv("TINY_STAGING_FAIL", "<b>no such header</b> (hunter22)")
    with pytest.raises(BuildError):
        tiny.run()
    (page,) = pages(tiny)
    text = words(page)
    assert "failed" in text
    assert "<b>no such header</b>" in text
    for path in page.parent.iterdir():
        assert "hunter22" not in path.read_text()


def test_the_page_of_a_run_that_was_killed_is_made_of_what_it_had_noted(tiny: Tiny) -> None:  # noqa: F811
    with driver(tiny, TINY_SECONDS="30") as process:
        state = tiny.options().state
        wait_for(lambda: any("compile" in path.read_text() for path in state.glob("runs/*.jsonl")))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    time.sleep(0.1)
    assert not pages(tiny)
    made = Path(str(remake(state, "tiny").document["page"]))
    assert "not finished" in words(made)
    assert "compile" in words(made)
