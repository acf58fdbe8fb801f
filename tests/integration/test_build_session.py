"""Whole runs of the tiny megabuild."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from package_files import Entry, entries, rot
from tiny import PACKAGES, ROOT, Tiny, driver, make_channel, provider, wait_for

from groundwork import files, in_use
from groundwork.errors import (
    BuildError,
    BusyError,
    IntegrityError,
    IsolationError,
    MegabuildError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    ProviderError,
    SwapRefused,
)
from groundwork.machine import Machine, MemoryWatch
from megabuild.engine import archive
from megabuild.engine.supervisor import strays
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.plan import planning
from megabuild.run import preflight, work
from megabuild.run.summary import PackageResult
from megabuild.status.status import PHASE

Make = Callable[..., Tiny]


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_channel(tmp_path_factory.mktemp("channel"))


@pytest.fixture
def place(channel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process as a run of the tiny megabuild needs it."""
    for name in ("CPU_COUNT", "MAX_JOBS", "MEGABUILD_CACHE", "TORCH_CCACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(planning, "provide", provider(channel))


@pytest.fixture
def tiny(tmp_path: Path, channel: Path, place: None) -> Tiny:
    root = tmp_path / "root"
    shutil.copytree(ROOT, root)
    return Tiny(output=tmp_path / "output", channel=channel, root=root)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the tests that begin with a finished run, and beside it the run as it was finished."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def built(shared: Path, channel: Path, place: None) -> Tiny:
    """A tiny megabuild that has been finished: once, since results are bound to their folder but not to a time."""
    here, kept = shared / "here", shared / "kept"
    if not kept.exists():
        shutil.copytree(ROOT, here / "root")
        assert Tiny(output=here / "output", channel=channel, root=here / "root").run().ok
        here.rename(kept)
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(kept, here, symlinks=True)
    return Tiny(output=here / "output", channel=channel, root=here / "root")


def test_the_next_plan_goes_by_what_the_last_run_took(tiny: Tiny, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = tiny.run(cache=cache)
    assert first.estimated_seconds > 0
    assert tiny.plan(cache=cache).estimate.hours == 0  # everything is there
    again = replace(tiny, output=tmp_path / "elsewhere").plan(cache=cache).estimate
    assert again.basis == "the last run here"
    assert again.hours * 3600 == pytest.approx(first.seconds, abs=5.0)
    one = replace(tiny, output=tmp_path / "elsewhere").plan(cache=cache, pythons=("3.12",)).estimate
    assert one.hours * 3600 > 30, "a run for another number of Pythons is no measure"


def test_a_run_marks_the_folders_that_may_be_cleaned_later(tiny: Tiny, tmp_path: Path) -> None:
    cache = tmp_path / "fresh" / "cache"
    tiny.plan(cache=cache)
    tiny.run(cache=cache)
    assert [in_use.is_marked(folder) for folder in (cache, tiny.output, tiny.options().state)] == [True] * 3


def statuses(tiny: Tiny, **choices: object) -> list[tuple[str, str]]:
    summary = tiny.run(**choices)
    return [(row.package.build_string.split("_")[0][:5], row.status) for row in summary.packages]


def decision(tiny: Tiny) -> tuple[str, str]:
    (decided,) = tiny.decisions()
    return decided


def published(tiny: Tiny) -> dict[str, str]:
    """Packages with their sha256."""
    return {path.name: files.sha256(path) for path in tiny.options().packages.rglob("*.conda")}


def content(row: PackageResult, name: str) -> str:
    """A file of a package, by its last part."""
    with zipfile.ZipFile(row.path) as outer:
        packed = next(outer.read(part) for part in outer.namelist() if part.startswith("pkg-"))
    plain = subprocess.run(["zstd", "-dc"], input=packed, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(plain)) as inner:
        member = next(member for member in inner if member.name.endswith(f"/{name}"))
        file = inner.extractfile(member)
        assert file is not None
        return file.read().decode()


def test_a_run_builds_tests_and_publishes_everything_once(tiny: Tiny) -> None:
    summary = tiny.run()
    assert summary.ok
    assert [row.status for row in summary.packages] == ["built"] * 3
    assert all(Path(row.path).is_file() and row.size and len(row.sha256) == 64 for row in summary.packages)
    assert (tiny.options().packages / "linux-64" / "repodata.json").is_file()
    assert decision(tiny)[0] == "fresh"
    assert (
        tiny.log_text().count("[1/6 0.5s] Building C object") == 2
    )  # the shell's trace, and the line itself
    assert summary.swaps == {"3.11": {"steps": 3, "core": 0}, "3.12": {"steps": 3, "core": 0}}
    assert json.loads((tiny.options().state / "run.json").read_text())["ok"] is True


def test_a_second_run_has_nothing_to_do(built: Tiny) -> None:
    there = published(built)
    assert [status for _, status in statuses(built)] == ["skipped"] * 3
    assert len(there) == 3
    assert published(built) == there
    assert not built.phases()


def test_another_day_in_another_folder_gives_the_same_bytes(
    built: Tiny, channel: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "another" / "place"
    shutil.copytree(channel, elsewhere / "channel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "provide", provider(elsewhere / "channel"))
        second = replace(built, output=elsewhere / "output", channel=elsewhere / "channel")
        assert [status for _, status in statuses(second)] == ["built"] * 3
    assert published(second) == published(built)


def test_a_build_in_bubblewrap_needs_no_capabilities(
    tiny: Tiny, channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        Bubblewrap(root=Path("/")).check()
    except IsolationError as error:
        pytest.skip(error.message)
    monkeypatch.setattr(planning, "provide", provider(channel, root=Path("/")))
    assert tiny.run(engine="bubblewrap", pythons=("3.12",)).ok


def test_narrowing_builds_only_the_python_asked_for_and_the_rest_comes_later_from_the_same_staging(
    tiny: Tiny,
) -> None:
    assert [name for name, _ in statuses(tiny, pythons=("3.12",))][1:] == ["py312"]
    assert [status for _, status in statuses(tiny)] == ["skipped", "built", "skipped"]
    assert decision(tiny)[0] == "reuse"
    assert not [line for line in tiny.log_text().splitlines() if "Building C object" in line]


def test_a_damaged_object_in_a_finished_tree_costs_one_object(tiny: Tiny) -> None:
    tiny.run(pythons=("3.12",))
    (tiny.options().state / "tree" / "build" / "t3.o").write_text("damaged")
    assert tiny.run().ok
    assert [decided for decided, _ in tiny.decisions()] == ["reuse", "resume"]
    assert "core object dirty" not in tiny.warnings()[0]
    assert len([line for line in tiny.log_text().splitlines() if "staging          [1/1" in line]) == 1


def test_a_finished_tree_without_its_build_folder_is_not_reused(tiny: Tiny) -> None:
    tiny.run(pythons=("3.12",))
    (tiny.options().state / "tree" / "source").touch()
    shutil.rmtree(tiny.options().state / "tree" / "build")
    assert tiny.plan().staging_decision.decision == "resume"


def test_a_compiler_killed_for_want_of_memory_is_started_again_with_fewer_beside_it(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_MOST_JOBS", "2")
    kills = itertools.count()  # the kernel's, one more at every look
    monkeypatch.setattr(work, "MemoryWatch", lambda: MemoryWatch(lambda: next(kills)))
    assert tiny.run(cpu_count=4, pythons=("3.12",)).ok
    assert tiny.warnings()[-1].endswith("once more with 2 compile jobs")
    assert tiny.decisions()[-1][0] == "resume"


@pytest.fixture
def ample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which memory does not run out."""
    machine = Machine(cores=4, memory=100, memory_free=90)
    monkeypatch.setattr(work, "MemoryWatch", lambda: MemoryWatch(lambda: 7, lambda: machine))


def kill_one(tiny: Tiny, command: list[str]) -> threading.Thread:
    """Kill the first program with this command line that a run starts."""

    def kill() -> None:
        def found() -> list[psutil.Process]:
            found = []
            for one in strays(tiny.options().state):
                with contextlib.suppress(psutil.Error):
                    found += [one] if one.cmdline() == command else []
            return found

        wait_for(found)
        for one in found():
            with contextlib.suppress(psutil.Error):
                one.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("variable", "what"), [("TINY_SECONDS", "staging"), ("TINY_TEST_SECONDS", "test of")]
)
def test_what_somebody_killed_once_is_tried_once_more(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, ample: None, variable: str, what: str
) -> None:
    monkeypatch.setenv(variable, "1.25")
    killer = kill_one(tiny, ["sleep", "1.25"])
    assert tiny.run(pythons=("3.12",)).ok
    killer.join()
    warned = [text for text in tiny.warnings() if "killed by a signal" in text]
    assert len(warned) == 1, tiny.warnings()
    assert warned[0].startswith(what)
    assert warned[0].endswith(": once more")


def test_who_kills_again_means_it(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, ample: None) -> None:
    monkeypatch.setenv("TINY_MOST_JOBS", "2")
    with pytest.raises(BuildError, match="killed by a signal"):
        tiny.run(cpu_count=4, pythons=("3.12",))
    assert len([text for text in tiny.warnings() if text.endswith(": once more")]) == 1


def test_more_jobs_than_memory_holds_are_a_warning_before_anything_compiles(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MemoryWatch", lambda: MemoryWatch(lambda: None))
    assert tiny.run(cpu_count=100_000, pythons=("3.12",)).ok
    levels = [record.levelno for record in tiny.seen]
    assert levels.index(logging.WARNING) < levels.index(PHASE)
    assert "100000 compile jobs (as asked for) may take" in tiny.warnings()[0]
    assert tiny.run(cpu_count=2).ok
    assert not tiny.warnings()


def test_a_source_that_is_brought_is_compiled_once_until_it_changes(tiny: Tiny, tmp_path: Path) -> None:
    tree = tmp_path / "brought"
    tree.mkdir()
    (tree / "version.txt").write_text("1.0\n")
    assert tiny.run(torch_source=tree).ok
    assert not tiny.plan(torch_source=tree).missing
    (tree / "t2.c").write_text("int changed;\n")
    assert tiny.run(torch_source=tree).ok
    assert decision(tiny) == ("resume", "source tree changed")


def test_a_changed_source_keeps_the_tree_and_compiles_what_changed(built: Tiny) -> None:
    (built.root / "rehearsal" / "model" / "t2.c").write_text("int changed;\n")
    summary = built.run()
    assert decision(built) == ("resume", "source tree changed")
    assert [row.status for row in summary.packages] == ["built"] * 3
    assert all(content(row, "linked").count("int changed") == 1 for row in summary.packages[1:])
    assert summary.reused["tree"] == 5
    assert built.log_text().count("staging          [1/1") == 1


def test_a_changed_script_makes_staging_look_at_what_is_there_and_says_why(built: Tiny) -> None:
    with (built.root / "recipe" / "common.sh").open("a") as file:
        file.write("export CXXFLAGS=-O3\n")
    summary = built.run()
    assert decision(built) == ("resume", "common.sh changed")
    assert [row.status for row in summary.packages] == ["built"] * 3
    assert "Building C object" not in built.log_text()


def test_a_changed_script_of_one_output_rebuilds_that_output_alone(built: Tiny) -> None:
    with (built.root / "recipe" / "build_py.sh").open("a") as file:
        file.write("# nothing\n")
    assert [status for _, status in statuses(built)] == ["skipped", "built", "built"]
    assert decision(built)[0] == "reuse"


def test_a_new_version_of_a_dependency_recompiles_and_says_which(
    built: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = make_channel(tmp_path / "newer", (*PACKAGES, ("tool", "1.1", "0")))
    monkeypatch.setattr(planning, "provide", provider(newer))
    monkeypatch.setenv("TINY_STAGING_FAIL", "no such header")
    with pytest.raises(BuildError):
        built.run()
    assert decision(built) == ("recompile", "tool 1.0 -> 1.1")
    # the new one is not finished: whoever goes back has the old one
    monkeypatch.delenv("TINY_STAGING_FAIL")
    with monkeypatch.context() as back:
        back.setattr(planning, "provide", provider(built.channel))
        assert not built.plan().missing
        shutil.rmtree(built.options().packages)
        assert built.run().ok
        assert "Building C object" not in built.log_text()
        assert decision(built)[0] == "resume"
    assert built.run().ok
    assert decision(built) == ("recompile", "tool 1.0 -> 1.1")
    assert not list(built.options().state.glob("tree.former")), "the new one is finished"


def test_a_python_that_is_not_here_is_left_out_with_the_reason(
    tiny: Tiny, channel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "provide", provider(channel, pythons=("3.12",)))
    plan = tiny.plan()
    assert dict(plan.left_out) == {"3.11": "this machine has no such Python with its headers"}
    assert {item.package.python for item in plan.items} == {None, "3.12"}


@pytest.mark.parametrize(
    ("says", "error"),
    [
        ("g++: fatal error: Killed signal terminated program cc1plus", BuildError),
        ("cc1: fatal error: /x.o: No space left on device", OutOfSpaceError),
        ("t1.c:1:1: error: expected expression", BuildError),
    ],
)
def test_a_failing_compile_says_what_to_do(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, says: str, error: type[Exception]
) -> None:
    monkeypatch.setenv("GH_PAT", "hunter22")
    monkeypatch.setenv("TINY_STAGING_FAIL", f"{says} (hunter22)")
    with pytest.raises(error) as caught:
        tiny.run()
    assert f"{says} (***)" in str(caught.value)
    assert "staging of tiny-build" in str(caught.value)
    summary = json.loads((tiny.options().state / "run.json").read_text())
    assert summary["ok"] is False
    assert f"{says} (***)" in summary["error"]
    assert "hunter22" not in tiny.log_text() + str(tiny.seen) + str(caught.value) + summary["error"]


def test_a_refused_swap_has_an_error_of_its_own(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_FAIL", "swap")
    with pytest.raises(SwapRefused, match="core object dirty"):
        tiny.run()


def test_a_failing_package_test_is_no_package_and_what_passed_is_published(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_FAIL", "wrong")
    with pytest.raises(PackageTestError, match="test of tinypy"):
        tiny.run()
    published = [path.name for path in (tiny.options().packages / "linux-64").glob("*.conda")]
    assert [name.split("-")[0] for name in published] == ["tinylib"]
    monkeypatch.delenv("TINY_FAIL")
    assert [status for _, status in statuses(tiny)] == ["skipped", "built", "built"]


@pytest.mark.parametrize("faults", [2, 9])
def test_a_package_is_not_blamed_for_the_network(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    monkeypatch.setattr(work, "NETWORK_PAUSES", (0.1, 0.2))
    calls = tmp_path / "calls"
    fault = "echo 'curl: (6) Could not resolve host: conda.invalid'; exit 1"
    with_test(tiny, f"echo called >> {calls}; [ $(wc -l < {calls}) -gt {faults} ] || {{ {fault}; }}")
    if faults == 2:
        assert tiny.run().ok
    else:
        with pytest.raises(
            ProviderError, match="the network failed: curl: \\(6\\) Could not resolve host"
        ) as caught:
            tiny.run()
        assert caught.value.failure is not None
        assert caught.value.failure["kind"] == "network"
        assert not list(tiny.options().state.glob("tests/broken/*")), "nothing is wrong with it"
    assert calls.read_text().count("called") == 3
    assert sum("Could not resolve" in text for text in tiny.warnings()) == 2


def with_test(tiny: Tiny, text: str) -> None:
    """Give the library's package a test script of its own."""
    recipe = tiny.root / "recipe" / "recipe.yaml"
    plain = "      - package_contents:\n          files: [lib/libtiny.so]\n"
    own = "      - script:\n          file: check.sh\n"
    if own not in recipe.read_text():
        recipe.write_text(recipe.read_text().replace(plain, plain + own))
    (recipe.parent / "check.sh").write_text(text)


def test_a_package_is_tested_by_its_own_scripts_not_by_those_of_a_former_build_of_its_name(
    tiny: Tiny, tmp_path: Path
) -> None:
    with_test(tiny, "echo good\n")
    assert tiny.run(pythons=("3.12",)).ok  # the engine has the library unpacked from here on
    with_test(tiny, "echo broken\nexit 1\n")
    with pytest.raises(PackageTestError, match="test of tinylib"):
        tiny.run(pythons=("3.12",))
    with_test(tiny, f"echo good again > {tmp_path}/said\n")
    assert tiny.run(pythons=("3.12",)).ok
    assert (tmp_path / "said").read_text() == "good again\n"


def test_a_package_made_again_from_a_finished_staging_keeps_modes_and_links(tiny: Tiny) -> None:
    def library() -> dict[str, Entry]:
        (package,) = tiny.options().packages.rglob("tinylib-*.conda")
        return {name: entry for name, entry in entries(package).items() if not name.startswith("info/")}

    with_test(tiny, "true\n")
    assert tiny.run(pythons=("3.12",)).ok
    first = library()
    assert first["bin/tiny-program"].mode == "0o755"
    assert first["lib/libtiny.so.1"].link == "libtiny.so"
    with_test(tiny, "true # and nothing else\n")
    assert ("h", "built") in [(name[:1], status) for name, status in statuses(tiny, pythons=("3.12",))]
    assert decision(tiny)[0] == "reuse"
    assert library() == first


def test_what_a_build_leaves_among_the_packages_leads_the_driver_nowhere(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine\n")
    secret.chmod(0o600)
    elsewhere = tmp_path / "elsewhere" / ".tmp"
    elsewhere.mkdir(parents=True)
    script = tiny.root / "recipe" / "build_py.sh"
    plain = script.read_text()
    state = tiny.options().state
    links = (
        "out/linux-64/zz-1-0.conda",
        "out/zz",
        "out/linux-64/.tmp-zz",
        "finished",
        "out/.megabuild-inputs",
    )
    attack = [f"ln -sfn {secret} {state}/{link}" for link in links]
    attack += [f"ln -sfn {elsewhere.parent} {state}/out/osx-64", f"mkfifo {state}/out/pipe"]
    script.write_text("\n".join([plain, *attack]))
    first = tiny.run(pythons=("3.12",))
    assert first.ok
    script.write_text(f"{plain}\n# again\n")
    assert tiny.run(pythons=("3.12",)).ok
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("mine\n", 0o600)
    assert elsewhere.is_dir()
    assert not [link for link in links if (state / link).is_symlink()]
    assert not (state / "out" / "pipe").exists()
    assert all(Path(row.path).is_file() and not Path(row.path).is_symlink() for row in first.packages)


def test_a_build_cannot_write_to_what_is_published(tiny: Tiny) -> None:
    assert tiny.run(pythons=("3.12",)).ok
    before = published(tiny)
    script = tiny.root / "recipe" / "build_py.sh"
    out = tiny.options().state / "out" / "linux-64"
    spoil = f'for file in {out}/tinylib-*.conda; do printf x >> "$file"; done\n'
    script.write_text(script.read_text() + spoil)
    tiny.run(pythons=("3.11", "3.12"))
    assert {name: digest for name, digest in published(tiny).items() if name.startswith("tinylib")} == {
        name: digest for name, digest in before.items() if name.startswith("tinylib")
    }


def test_a_published_package_that_rots_is_made_again_although_its_date_stayed(built: Tiny) -> None:
    before = published(built)
    (package,) = built.options().packages.rglob("tinylib-*.conda")
    rot(package)
    assert not built.plan().missing, "a plan goes by dates"
    summary = built.run()
    assert summary.ok
    assert "is damaged and no longer published" in built.log_text()
    assert published(built) == before
    assert {row.sha256 for row in summary.packages} == set(before.values())


def test_a_date_that_no_package_can_have_is_refused_before_anything_is_built(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000000")
    with pytest.raises(PreflightError, match=r"SOURCE_DATE_EPOCH is '1700000000000'"):
        tiny.run()
    assert not tiny.options().state.exists()


def test_a_run_that_keeps_going_builds_what_it_can_and_fails_at_the_end(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_FAIL", "swap 3.11")
    with pytest.raises(MegabuildError):
        tiny.run(keep_going=True)
    summary = json.loads((tiny.options().state / "run.json").read_text())
    assert [row["status"] for row in summary["packages"]] == ["built", "missing", "built"]


def test_what_a_killed_run_has_built_but_not_tested_is_only_tested(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_TEST_SECONDS", "2")
    state = tiny.options().state
    with driver(tiny) as process:
        assert wait_for(lambda: list((state / "out" / "linux-64").glob("tinypy-*.conda")))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wait_for(lambda: not strays(state), seconds=20)
    library, *pythons = (status for _, status in statuses(tiny))
    assert library in ("built", "skipped")  # its test may have been over
    assert pythons == ["built"] * 2
    assert len([text for text in tiny.sentences() if text.endswith(": build script began")]) < 3
    assert "testing tinypy 1.0" in tiny.phases()


def test_a_package_is_tested_while_the_next_one_is_built(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_TEST_SECONDS", "2")
    assert tiny.run().ok
    assert tiny.status is not None
    spans = tiny.status.spans
    built = min(span.start for span in spans if span.what.startswith("tinypy 3.12"))
    assert built < min(span.end for span in spans if span.what == "testing tinypy 1.0")
    tested = [text for text in tiny.sentences() if ": tested in" in text]
    assert len(tested) == sum(span.what.startswith("testing ") for span in spans) == 3


def test_a_package_that_is_being_copied_for_its_test_is_in_no_other_test_s_environment(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = files.copy

    def copy(source: Path, target: Path) -> None:
        whole(source, target)
        if target.is_relative_to(tiny.options().state / "tests"):
            target.with_name(f".tmp-{target.name}").write_bytes(b"half a package")

    monkeypatch.setattr(files, "copy", copy)
    assert tiny.run().ok


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_failed_test_ends_the_builds_unless_they_are_to_go_on(tiny: Tiny, keep_going: bool) -> None:
    with_test(tiny, "echo broken\nexit 1\n")
    script = tiny.root / "recipe" / "build_py.sh"
    script.write_text(f"sleep 3\n{script.read_text()}")  # the test is over before
    with pytest.raises(PackageTestError, match="test of tinylib") as caught:
        tiny.run(keep_going=keep_going)
    assert caught.value.remedy.endswith(str(tiny.options().state / "tests" / "broken"))
    summary = json.loads((tiny.options().state / "run.json").read_text())
    # what needs a package that failed is tested, and not published without it
    assert [row["status"] for row in summary["packages"]] == ["failed", "missing", "missing"]
    assert not list(tiny.options().packages.rglob("*.conda"))
    assert sum(": built" in text for text in tiny.sentences(logging.INFO)) == (3 if keep_going else 1)
    broken = [path.name.split("-")[0] for path in (tiny.options().state / "tests" / "broken").iterdir()]
    assert broken == ["tinylib"]


def test_published_packages_and_their_index_are_not_believed_but_looked_into(built: Tiny) -> None:
    damaged = Path(built.run().packages[1].path)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    index = damaged.parent / "repodata.json"
    index.unlink()
    assert [status for _, status in statuses(built)] == ["skipped", "built", "skipped"]
    assert archive.read(damaged).package.name == "tinypy"
    assert built.warnings() == [f"{damaged.name} is damaged and no longer published"]
    for damage in (index.unlink, lambda: index.write_text(index.read_text()[:-50])):
        damage()
        assert [status for _, status in statuses(built)] == ["skipped"] * 3
        assert len(json.loads(index.read_text())["packages.conda"]) == 3
        assert "index" in built.warnings()[0]


def test_an_unsolvable_environment_is_named_before_anything_is_built(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = make_channel(tmp_path / "without", PACKAGES[1:])
    monkeypatch.setattr(planning, "provide", provider(without))
    with pytest.raises(PreflightError, match=r"staging: build environment .*tool"):
        tiny.plan()


def test_a_path_that_scripts_stumble_over_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    tiny.output = tmp_path / "my output"
    with pytest.raises(PreflightError, match="holds ' '"):
        tiny.run()


def test_a_source_without_a_hash_is_refused(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a real PyTorch takes on disk is checked as well, and this machine may have less.
    monkeypatch.setattr(preflight, "disk_free", lambda folder: 10**12)
    with pytest.raises(IntegrityError, match="no sha256"):
        tiny.run(rehearse=False, engine="host")


def test_only_one_run_at_a_time(tiny: Tiny) -> None:
    plan = tiny.plan()
    with driver(tiny, TINY_SECONDS="2") as process:
        lock = tiny.options().state / "lock.pid"
        assert wait_for(lambda: lock.exists() and lock.read_text() == str(process.pid))
        with pytest.raises(BusyError, match=str(process.pid)):
            tiny.run()
    assert plan.missing


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_however_the_driver_ends_nothing_of_it_is_left_and_the_next_run_goes_on(
    tiny: Tiny, number: signal.Signals
) -> None:
    state = tiny.options().state
    with driver(tiny, TINY_SECONDS="0.3") as process:
        assert wait_for(lambda: (state / "tree" / "build" / "t2.o").exists())
        process.send_signal(number)
        process.wait(timeout=60)
    assert wait_for(lambda: not strays(state), seconds=20)
    assert [status for _, status in statuses(tiny)] == ["built"] * 3
    assert decision(tiny)[0] == "resume"
    assert any(re.match(r"[2-9] of \d+ objects reused from tree", text) for text in tiny.sentences())


def test_a_closed_standard_input_of_the_terminal_does_not_matter(tiny: Tiny) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    saved = os.dup(0)
    os.dup2(reading, 0)
    try:
        assert tiny.run().ok
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        os.close(reading)
