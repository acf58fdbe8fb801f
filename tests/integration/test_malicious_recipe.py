"""What a recipe that means harm gets, in bubblewrap and in podman: each attempt is made by a build script.

The driver outside has all rights of the user, so nothing that a build leaves behind may make it do the build's work:
follow a link, wait for a pipe, hand a poisoned cache to another build.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from engines import working
from tiny import ROOT, Tiny, driver, wait_for

from megabuild.configs.config import load
from megabuild.engine.supervisor import end_strays
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine
from megabuild.plan import planning
from megabuild.plan.choose_isolation import rehearsal_image
from megabuild.run.launcher import LAUNCHER_FILES
from megabuild.run.outlook import look_ahead
from megabuild.run.session import execute
from megabuild.status.status import Status

_SECONDS = 30.0
#: Until a build has made its attempts: the driver first makes its environment, slowly on a busy machine.
_STARTING_SECONDS = 180.0
_STOPPING_SECONDS = 15.0
#: For a build that waits for ever after its attempts.
_WAITING_SECONDS = 5.0
_BUILT, _INDEX = "out/build_cache/staging_zz", "repodata.json"
#: What the driver reads, writes or sets modes of in a config's folder, and what it did in former layouts.
DRIVERS = {
    "its own files": (
        *("lock", "lock.pid", "run.json", "job.json", "outcome.json", "variant.yaml", *LAUNCHER_FILES),
        *("ccache-stats.log", "logs/latest.log", "preflight"),
    ),
    "its folders": ("out", "tree", "tmp"),
    "what is in them": (
        *("tree/.megabuild-stamp.json", "tmp/outcome.json", "tmp/ccache-stats.log"),
        *("out/bld/zz/work/conda_build.log", f"{_BUILT}/work_dir/conda_build.log", f"{_BUILT}/metadata.json"),
        *("out/test/test_zz/test/conda_build.log", "tmp/.tmpz/test_zz/test/conda_build.log"),
        *("out/.megabuild-inputs", "out/linux-64/zz.conda", f"out/linux-64/{_INDEX}", "out/noarch/zz"),
        *("out/linux-64/.tmp-zz", "out/osx-64", f"out/noarch/{_INDEX}", "out/broken/zz.conda"),
    ),
}
_PRIVATE = "the user's own\n"
_OURS = {name: f"/opt/megabuild/{name}" for name in ("state", "src", "channel", "objects")}
_ATTEMPT = re.compile(r"(?<!')::attempt:: (\S+) (.*)$", re.MULTILINE)


# podman's image takes a minute; test_isolation_real.py has quick tests of podman
@pytest.fixture(scope="module", params=["bubblewrap", pytest.param("podman", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name of an isolation that works here."""
    name = str(request.param)
    with pytest.MonkeyPatch.context() as patch:
        if name == "podman":
            for variable, value in request.getfixturevalue("podman_image").items():
                patch.setenv(variable, value)
            made_here = "make it with rehearsal/image/make-image.sh podman"
            working(
                Container(engine=Engine(name), image=rehearsal_image(), network=False, made_here=made_here)
            )
        else:
            working(Bubblewrap(root=Path("/"), network=False))
        yield name


@pytest.fixture
def tiny(tiny: Tiny, engine: str, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.delenv("RATTLER_CACHE_DIR", raising=False)
    monkeypatch.setenv("TINY_ENGINE", engine)
    return tiny


def armed(tiny: Tiny, attack: str, script: str = "build_py.sh") -> None:
    """Add to a build script what it should not do."""
    path = tiny.root / "recipe" / script
    path.write_text(f'{path.read_text()}\nset +e\nattempt() {{ echo "::attempt:: $*"; }}\n{attack}\ntrue\n')


def disarmed(tiny: Tiny) -> None:
    for name in ("build_staging.sh", "build_lib.sh", "build_py.sh"):
        shutil.copy(ROOT / "recipe" / name, tiny.root / "recipe" / name)


def ended(tiny: Tiny, after: Collection[str] = (), seconds: float = _SECONDS) -> int | None:
    """Run the driver in a process of its own; return its code, or None where it can no longer be stopped.

    A build may make its own engine wait, as it may wait itself; but the driver must not. It is stopped ``seconds``
    after the attempts named in ``after``.
    """

    def has_tried() -> bool:
        return process.poll() is not None or attempts(tiny).keys() >= set(after)

    with driver(tiny) as process:
        code = None
        wait_for(has_tried, _STARTING_SECONDS)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=_STOPPING_SECONDS)
    end_strays(tiny.options().state)
    return code


def attempts(tiny: Tiny) -> dict[str, str]:
    """What the scripts tried, with what became of it."""
    log = "".join(path.read_text() for path in sorted((tiny.options().state / "logs").glob("tiny-*.log")))
    return {match[1]: match[2] for match in _ATTEMPT.finditer(log)}


@pytest.fixture
def canaries(tmp_path: Path) -> Path:
    """A folder of private files, outside of everything that is mounted."""
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(parents=True, mode=0o700)
    return folder


def canary(folder: Path, name: str) -> Path:
    path = folder / name.replace("/", "+")
    path.write_text(_PRIVATE)
    path.chmod(0o600)
    os.utime(path, (1, 1))
    return path


def fallen(canaries: Path) -> dict[str, str]:
    """Private files that something happened to, with what."""
    found = {}
    for path in canaries.iterdir():
        status = path.lstat()
        if (status.st_mode & 0o7777, status.st_mtime, path.read_text()) != (0o600, 1.0, _PRIVATE):
            found[path.name] = f"{status.st_mode & 0o7777:o} {path.read_text()[:60]!r}"
    return found


def replaced(name: str, how: str) -> str:
    """Shell words that put something in the place of a file or folder of the config's, and say how that went."""
    path = f'"$(dirname "$TORCH_TREE")/{name}"'
    away = f"if [ -d {path} ]; then mv -T {path} {path}.away; else rm -f {path}; fi"
    return f"mkdir -p $(dirname {path}); {away}; {how} {path}; attempt {name} $?"


@pytest.mark.parametrize("group", DRIVERS)
@pytest.mark.parametrize("how", ["link", "pipe"])
def test_links_to_private_files_and_pipes_lead_the_driver_nowhere(
    tiny: Tiny, canaries: Path, how: str, group: str
) -> None:
    names = DRIVERS[group]
    made = {name: "mkfifo" if how == "pipe" else f"ln -sT {canary(canaries, name)}" for name in names}
    armed(tiny, "\n".join(replaced(name, command) for name, command in made.items()))
    finishes = group.startswith("its")
    first = ended(tiny, names, _SECONDS if finishes else _WAITING_SECONDS)
    disarmed(tiny)
    second = ended(tiny)
    assert attempts(tiny).keys() == set(names)
    assert not fallen(canaries)
    assert None not in (first, second), "the driver waits for ever"
    if finishes:
        assert (first, second) == (0, 0)


def test_nothing_of_the_users_is_seen_or_written(
    tiny: Tiny, engine: str, canaries: Path, tmp_path: Path
) -> None:
    folders = (Path.home(), *("/home", "/root", "/srv", "/mnt", "/media", "/var/lib"))
    writes = ("/usr", "/etc", "/opt/megabuild", "/opt/megabuild/recipe", *_OURS.values(), tiny.output)
    tries = {
        "secret": f"cat {canary(canaries, 'id_ed25519')}",
        **{f"list:{folder}": f"ls -A {folder} 2>/dev/null | grep ." for folder in folders},
        "shadow": "grep -q . /etc/shadow",
        "keys": "cat /etc/ssh/*_key /etc/ssl/private/* /etc/gshadow",
        "network": "timeout 5 bash -c ': </dev/tcp/1.1.1.1/53'",
        **{f"write:{place}": f"touch {place}/written" for place in writes},
        "write:core_pattern": "f=/proc/sys/kernel/core_pattern; cp $f /tmp/same && cat /tmp/same >$f",
        **{
            f"open:{name}": f"eval ': >>/proc/{name}'"
            for name in ("sysrq-trigger", "irq/default_smp_affinity")
        },
        "write:launcher": 'echo "#!/bin/sh" >"$TORCH_CCACHE"',
        "write:variant": f"echo >{_OURS['state']}/variant.yaml",
        "write:job": f"echo >{_OURS['state']}/job.json",
    }
    lines = [f"{command} >/dev/null 2>&1; attempt {name} $?" for name, command in tries.items()]
    armed(tiny, "\n".join(lines), script="build_staging.sh")
    before = {path: path.read_bytes() for path in sorted((tiny.root / "recipe").iterdir())}
    assert ended(tiny) == 0
    tried = attempts(tiny)
    got = {name for name, code in tried.items() if code == "0"}
    if engine == "podman":  # a container's own files are its own: they go with it
        own = (
            "list:",
            "shadow",
            "keys",
            *(f"write:{place}" for place in ("/usr", "/etc", "/opt", tiny.output)),
        )
        got = {name for name in got if not name.startswith(own)}
    assert tried.keys() == tries.keys()
    assert not got
    assert before == {path: path.read_bytes() for path in sorted((tiny.root / "recipe").iterdir())}
    assert not list(tmp_path.rglob("written"))


@pytest.fixture
def other(tiny: Tiny) -> Tiny:
    """Another config with an output folder of its own, and the same caches."""
    shutil.copytree(tiny.root, tiny.root.parent / "other-root")
    root = tiny.root.parent / "other-root"
    return Tiny(output=tiny.output.parent / "other", channel=tiny.channel, root=root)


def run(tiny: Tiny, name: str, *, own: bool = True) -> str:
    """Build one Python of a config by this name with the common caches; return the log.

    `own`: the recipe is the project's, not another feedstock's.
    """
    configs = tiny.root / ".ci_support"
    if not (configs / f"{name}.yaml").exists():
        shutil.copy(configs / "tiny.yaml", configs / f"{name}.yaml")
    cache, engine = tiny.output.parent / "cache", os.environ["TINY_ENGINE"]
    options = tiny.options(cache=cache, engine=Engine(engine), pythons=("3.12",), own=own)
    options = replace(options, config=load(tiny.root, name))
    plan = planning.make_plan(options, lambda text: None)
    execute(look_ahead(plan, {}, print), Status(options.run_name, options.state))
    return (options.state / "logs" / "latest.log").read_text()


def test_a_package_poisoned_by_one_config_is_in_no_other_ones_environment(tiny: Tiny, other: Tiny) -> None:
    notes = "/opt/megabuild/rattler/pkgs/python-*/share/python/note"
    armed(tiny, f'for file in {notes}; do echo poisoned >>"$file"; done')
    armed(other, 'attempt python "$(tr "\\n" " " <"$PREFIX/share/python/note")"')
    run(tiny, "tiny")
    said = [line for line in run(other, "other").splitlines() if "::attempt:: python" in line]
    assert [line for line in said if "3.12.1" in line], said
    assert not [line for line in said if "poisoned" in line]


_SOURCES = """
mkdir -p /tmp/work && cd /tmp/work
echo 'const char *word(void) { return "poisoned"; }' >evil.c
echo 'const char *word(void) { return "good"; }' >good.c
compile() { rm -f "$1.o"; "$TORCH_CCACHE" cc -c "$1.c" -o "$1.o"; }
word() { compile good; attempt word "$(grep -aoE 'good|poisoned' good.o | head -n 1)"; }
"""
#: Has what one file was compiled to be found as the other's, wherever objects are kept.
_POISON = """
touch mark && sleep 0.1 && compile evil
evil="$(find "$(sed -n 's/^CCACHE_DIR=//p' "$TORCH_CCACHE")" -name '*R' -newer mark)"
compile good
for good in $(find /opt/megabuild/*/ -name '*R' -o -path '*objects*' -type f); do cp -f "$evil" "$good"; done
word
"""


#: Lists all objects in reach, after one of its own.
_STEAL = """
compile evil
attempt objects "$(find /opt/megabuild -name '*R' -exec grep -l good {} + 2>/dev/null | wc -l)"
"""


def need_ccache(engine: str) -> None:
    if engine == "bubblewrap" and not (shutil.which("ccache") and shutil.which("cc")):
        pytest.skip("there is no cc or no ccache on this machine")


def test_another_feedstock_neither_reads_nor_changes_the_project_s_objects(
    tiny: Tiny, other: Tiny, engine: str
) -> None:
    need_ccache(engine)

    def said(log: str, name: str) -> str:
        return next(match[2] for match in _ATTEMPT.finditer(log) if match[1] == name)

    armed(other, _SOURCES + "word", script="build_staging.sh")
    assert said(run(other, "first"), "word") == "good"
    objects = other.output.parent / "cache" / "objects"
    before = {path: path.read_bytes() for path in objects.rglob("*R")}
    armed(tiny, _SOURCES + _STEAL + _POISON, script="build_staging.sh")
    attack = run(tiny, "tiny", own=False)
    assert said(attack, "word") == "poisoned", "the attack itself does nothing"
    assert said(attack, "objects") == "0"
    assert before.items() <= {path: path.read_bytes() for path in objects.rglob("*R")}.items()
    assert said(run(other, "second"), "word") == "good"


#: Writes a configuration of ccache's that names a program, by its path inside and by the one outside.
_PLANT = """
cache="$(sed -n 's/^CCACHE_DIR=//p' "$TORCH_CCACHE")"
outside="$(awk -v folder="$cache" '$5 == folder {print $4}' /proc/self/mountinfo)"
printf '#!/bin/sh\\ntouch "${0%%/*}/evil-ran"\\nexec "$@"\\n' >"$cache/evil" && chmod 755 "$cache/evil"
folder="$SEEN_FROM"
printf '%s = %s/evil\\n' prefix_command "$folder" prefix_command_cpp "$folder" >"$cache/ccache.conf"
attempt planted "$folder"
"""


@pytest.mark.parametrize("seen_from", ["outside", "cache"])
def test_a_program_planted_in_the_object_cache_runs_neither_outside_nor_in_another_build(
    tiny: Tiny, other: Tiny, engine: str, seen_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_ccache(engine)
    armed(tiny, _PLANT.replace("SEEN_FROM", seen_from), script="build_staging.sh")
    assert "::attempt:: planted /" in run(tiny, "tiny")
    objects = tiny.output.parent / "cache" / "objects"
    assert len(list(objects.rglob("ccache.conf"))) == 1
    for name in (engine, "host"):
        monkeypatch.setenv("TINY_ENGINE", name)
        armed(other, f"{_SOURCES}word", script="build_staging.sh")
        assert "::attempt:: word good" in run(other, name)
        assert not list(objects.rglob("evil-ran")), name
        disarmed(other)


def test_a_build_on_the_host_uses_no_object_of_an_isolated_build(
    tiny: Tiny, other: Tiny, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_ccache(engine)
    armed(tiny, _SOURCES + _POISON, script="build_staging.sh")
    assert "::attempt:: word poisoned" in run(tiny, "tiny"), "the attack itself does nothing"
    monkeypatch.setenv("TINY_ENGINE", "host")
    armed(other, f"{_SOURCES}word", script="build_staging.sh")
    assert "::attempt:: word good" in run(other, "other")


def test_a_build_on_the_host_finds_nothing_that_an_isolated_build_of_its_config_left(
    tiny: Tiny, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("out/planted", "tmp/planted", "tree/planted")
    armed(
        tiny, "".join(f"touch /opt/megabuild/state/{place}\n" for place in places), script="build_staging.sh"
    )
    run(tiny, "tiny")
    state = tiny.options().state
    assert any((state / place).exists() for place in places), "the attack itself does nothing"
    monkeypatch.setenv("TINY_ENGINE", "host")
    armed(tiny, "attempt another", script="build_staging.sh")
    assert "::attempt:: another" in run(tiny, "tiny")
    assert not any((state / place).exists() for place in places)


def test_configs_of_one_recipe_share_objects(tiny: Tiny, other: Tiny, engine: str) -> None:
    """That is why a recipe that nobody trusts needs a cache of its own (docs/isolation.md)."""
    need_ccache(engine)
    armed(tiny, f"{_SOURCES}compile good", script="build_staging.sh")
    run(tiny, "tiny")
    objects = tiny.output.parent / "cache" / "objects"
    before = set(objects.rglob("*R"))
    armed(other, f"{_SOURCES}compile good", script="build_staging.sh")
    run(other, "other")
    assert before
    assert set(objects.rglob("*R")) == before
