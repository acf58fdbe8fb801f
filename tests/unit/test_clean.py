"""What builds have left: found, told, and removed, and everything else left alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from calling import call

from command_line.run_command import Invocation
from groundwork import files, in_use
from groundwork.errors import ConfigError
from megabuild.cleaning.clean import Choice, remove
from megabuild.cleaning.kinds import KINDS
from megabuild.cleaning.survey import Item, freed, measure, survey
from megabuild.plan import published, tree_reuse
from megabuild.providers.local.store import MADE_OF

DAY = 86400.0
RUN, KEY, STORED = "linux_64_cpu", "0123456789abcdef", "a" * 64


def put(path: Path, size: int = 1000, *, days: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    used = time.time() - days * DAY
    os.utime(path, (used, used))
    return path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    output = tmp_path / "output"
    run = output / RUN
    put(run / "lock", 0)
    put(run / "tree" / tree_reuse.STAMP)
    put(run / "tree" / "build" / "a.o", 300_000, days=40)
    put(run / "out" / "build_cache" / "b", 200_000)
    put(run / "logs" / "old.log", days=100)
    put(run / "logs" / "new.log", days=100)
    (run / "logs" / "latest.log").symlink_to("new.log")
    put(run / "runs" / "1.json", days=10)
    (run / "run.json").write_text(json.dumps({"staging_seconds": 7200.0}))
    put(output / "packages" / RUN / published.RECORDS, days=400)
    put(output / "packages" / RUN / "linux-64" / "libtorch.conda", 50_000, days=400)
    put(output / "not-ours" / "tree" / "precious", days=400)
    put(output / "logs" / "crash-1.txt", days=91)
    return output


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    with in_use.using(cache):
        pass
    for key in (KEY, KEY[::-1]):
        put(cache / "channel/channels" / key / "noarch" / "repodata.json", days=50)
        (cache / "channel/channels" / key / MADE_OF).write_text(json.dumps({"x.conda": STORED}))
        os.utime(cache / "channel/channels" / key / MADE_OF, (0, time.time() - 50 * DAY))
    put(cache / "channel/store" / STORED / "x.conda", days=50)
    put(cache / "objects" / RUN / "0" / "o", 100_000, days=3)
    put(cache / "objects" / "shared" / "0" / "o", days=3)
    put(cache / "objects" / "zstd-feedstock-0123abcd" / "linux_64_" / "o", days=3)
    put(cache / "debian" / KEY / "usr" / "bin" / "g++", days=200)
    put(cache / "debian" / "lock", 0)
    return cache


def chosen(output: Path, cache: Path, **choice: object) -> list[Item]:
    return Choice(**choice).of(survey(output, cache))  # type: ignore[arg-type]


def names(items: Iterable[Item]) -> set[tuple[str, str]]:
    return {(item.kind.name, item.path.name) for item in items}


def test_what_expires_by_itself_is_old_and_needed_by_nobody(output: Path, cache: Path) -> None:
    assert names(chosen(output, cache)) == {
        ("logs", "old.log"), ("logs", "crash-1.txt"), ("channels", KEY), ("channels", KEY[::-1]),
        ("channel-packages", STORED),
    }  # fmt: skip


def test_a_channel_that_a_published_package_needs_stays(output: Path, cache: Path) -> None:
    published.note_channels(output / "packages" / RUN, [cache / "channel/channels" / KEY])
    assert names(chosen(output, cache)) & {("channels", KEY), ("channel-packages", STORED)} == set()
    assert ("channels", KEY[::-1]) in names(chosen(output, cache))
    assert ("channels", KEY) not in names(chosen(output, cache, older=DAY))
    (item,) = chosen(output, cache, kinds=("channels",), older=DAY)[:1]
    assert item.needed_by == (RUN,)


def test_a_channel_that_another_checkout_s_packages_need_stays(
    tmp_path: Path, output: Path, cache: Path
) -> None:
    other = tmp_path / "elsewhere"
    put(other / "packages" / "x" / published.RECORDS)
    published.note_channels(other / "packages" / "x", [cache / "channel/channels" / KEY])
    in_use.note_output(cache, other)
    assert ("channels", KEY) not in names(chosen(output, cache))


def test_packages_go_only_by_their_name_and_what_is_not_ours_never(output: Path, cache: Path) -> None:
    everything = chosen(output, cache, older=0.0)
    assert "packages" not in {item.kind.name for item in everything}
    assert names(chosen(output, cache, kinds=("packages",))) == {("packages", RUN)}
    done = remove(everything, output, cache)
    assert not done.kept
    assert (output / "not-ours" / "tree" / "precious").exists()
    assert (output / "packages" / RUN / "linux-64" / "libtorch.conda").exists()
    assert (output / RUN / "logs" / "latest.log").exists(), "with the log that it points to"
    assert (output / RUN / "run.json").exists()
    assert (cache / "debian" / "lock").exists()
    assert not (output / RUN / "tree").exists()


def test_a_choice_narrows_by_config_kind_and_age(output: Path, cache: Path) -> None:
    assert names(chosen(output, cache, configs=(RUN,), kinds=("tree", "objects"))) == {
        ("tree", "tree"), ("objects", RUN),
    }  # fmt: skip
    assert names(chosen(output, cache, kinds=("objects",), older=4 * DAY)) == set()
    with pytest.raises(ConfigError, match="nothing here belongs to osx") as raised:
        chosen(output, cache, configs=("osx",))
    runs = f"{RUN}, zstd-feedstock-0123abcd/linux_64_"
    assert raised.value.remedy == f"there is something of: {runs}", "and of no key in the cache"


def test_another_feedstock_s_objects_are_told_by_run(output: Path, cache: Path) -> None:
    owners = {item.owner: item.lock for item in survey(output, cache, ["objects"])}
    own = "zstd-feedstock-0123abcd/linux_64_"
    assert owners == {RUN: RUN, own: own, in_use.SHARED: in_use.SHARED}


def test_what_a_run_holds_stays(output: Path, cache: Path) -> None:
    items = chosen(output, cache, older=0.0)
    with files.FileLock(output / RUN / "lock"), in_use.using(cache, RUN):
        done = remove(items, output, cache)
    assert set(done.kept.values()) == {"in use"}
    assert (output / RUN / "tree").exists()
    assert (cache / "objects" / RUN).exists()
    # another feedstock's objects, and the crash file, are nobody's at the moment
    assert names(done.removed) == {("objects", "linux_64_"), ("logs", "crash-1.txt")}


def test_users_share_and_whoever_cleans_is_alone(cache: Path) -> None:
    with in_use.using(cache), in_use.using(cache, "other"), in_use.alone(cache, RUN) as free:
        assert free
    with in_use.using(cache, RUN), in_use.alone(cache, RUN) as free:
        assert not free


def test_a_folder_that_was_only_named_as_cache_is_not_cleaned(output: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    put(home / "objects" / "thesis" / "precious", days=400)
    assert not [item for item in survey(output, home) if item.path.is_relative_to(home)]


def test_links_are_left_alone(output: Path, cache: Path, tmp_path: Path) -> None:
    precious = put(tmp_path / "precious" / "file", days=400)
    (output / RUN / "tmp").symlink_to(precious.parent)
    (cache / "sdists").symlink_to(precious.parent)
    (cache / "objects" / "linked").symlink_to(precious.parent)
    put(output / RUN / "out" / "inside", 10)
    (output / RUN / "out" / "link").symlink_to(precious.parent)
    remove(chosen(output, cache, older=0.0), output, cache)
    assert precious.exists()
    assert not (output / RUN / "out").exists()


def test_what_is_mounted_or_cannot_be_read_stays(
    output: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = str(output / RUN / "out" / "build_cache")
    scandir = os.scandir

    def refusing(path: str) -> object:
        if path == closed:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    items = chosen(output, cache, kinds=("work",))
    done = remove(items, output, cache)
    assert list(done.kept.values()) == [f"{closed}: Permission denied"]
    assert (output / RUN / "out" / "build_cache" / "b").exists()


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="Linux's list of mounts")
def test_mount_points_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.scandir", lambda path: [])
    assert measure(Path("/proc")).trouble == "something is mounted at /proc"
    assert not measure(Path(__file__)).trouble


def test_what_has_another_name_elsewhere_is_not_freed(output: Path, cache: Path) -> None:
    wheel = put(cache / "wheels" / "torch.whl", 400_000)
    (cache / "torch-wheels" / "2.13.0-cpu").mkdir(parents=True)
    os.link(wheel, cache / "torch-wheels" / "2.13.0-cpu" / "torch.whl")
    both = survey(output, cache, ["downloads"])
    assert {item.path.name for item in both} == {"torch.whl", "2.13.0-cpu"}
    assert freed([item for item in both if item.path.name == "torch.whl"]) < 10_000
    assert 400_000 <= freed(both) < 420_000


def test_a_file_with_two_names_in_a_folder_is_counted_once(tmp_path: Path) -> None:
    os.link(put(tmp_path / "a" / "1", 400_000), tmp_path / "a" / "2")
    assert 400_000 <= measure(tmp_path / "a").size < 420_000


def test_the_command_shows_first_and_removes_when_told(
    output: Path, cache: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(cache))
    shown = call(invocation, "clean", "--kind", "tree", "-o", str(output))
    assert shown.exit_code == 0
    assert "goes" in shown.stdout
    assert "the last compile took 2:00 h" in shown.stdout
    line = next(
        line for line in shown.stdout.splitlines() if line.endswith(f"clean --kind tree -o {output} --apply")
    )
    python, program, *_ = line.split()
    assert python == "python3", "in a checkout nothing is on the PATH"
    assert program.endswith("scripts/megabuild")
    assert max(map(len, shown.stdout.splitlines()[:-1])) <= 80
    assert (output / RUN / "tree").exists()
    done = call(invocation, "clean", "--kind", "tree", "--apply", "--json", "-o", str(output))
    document = json.loads(done.stdout)
    assert document["applied"] is True
    assert [item["path"] for item in document["items"] if item["removed"]] == [str(output / RUN / "tree")]
    assert document["freed_bytes"] >= 300_000
    assert not (output / RUN / "tree").exists()


@pytest.mark.parametrize("words", [("--older", "soon"), ("--older", "3"), ("--kind", "everything")])
def test_what_is_no_choice_is_refused(
    output: Path, cache: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(cache))
    assert call(invocation, "clean", *words, "--apply", "-o", str(output)).exit_code == 2
    assert (output / RUN / "tree").exists()


def test_where_nothing_was_built_there_is_nothing(tmp_path: Path) -> None:
    assert survey(tmp_path / "none", tmp_path / "nothing") == []


def test_every_kind_says_what_it_is_and_what_it_costs() -> None:
    assert all(kind.what and kind.costs for kind in KINDS.values())
