"""The driver under attack, over a megabuild of seconds: killed at five moments, and with any file of its own damaged.

Whatever was done to it, the next plain run must end well with the same packages, byte for byte.
MEGABUILD_TEST_SEED gives other moments, MEGABUILD_TEST_KILLS more of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from package_files import published, rot
from tiny import ROOT, Tiny, build_with, driver, make_channel, wait_for

from groundwork.files import sha256
from megabuild.engine.supervisor import strays
from megabuild.run.launcher import LAUNCHER_FILES

KILLS = int(os.environ.get("MEGABUILD_TEST_KILLS", "5"))
Contents = Mapping[str, object]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiny]:
    """One output folder and one cache of the engine's, for all attacks."""
    base = tmp_path_factory.mktemp("attack")
    with pytest.MonkeyPatch.context() as patch:
        channel = make_channel(base / "channel")
        build_with(channel, patch)
        shutil.copytree(ROOT, base / "root")
        yield Tiny(output=base / "output", channel=channel, root=base / "root")


@pytest.fixture(scope="module")
def undisturbed(tiny: Tiny) -> Contents:
    assert tiny.run().ok
    found = published(tiny.options().packages)
    assert len(found) == 2 * 3
    return found


def changed(tiny: Tiny) -> None:
    """Change a script so that the next run makes the Python packages anew, out of the staging that is there."""
    with (tiny.root / "recipe" / "build_py.sh").open("a") as script:
        script.write("# again\n")


def flip_in_place(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)


def flip(path: Path) -> None:
    shutil.copy(path, path.with_name("alone"))  # not in the files that are linked to it
    path.with_name("alone").replace(path)
    flip_in_place(path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


STATE, PUBLISHED = "tiny-rehearsal", "packages/tiny-rehearsal"
DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    *((f"{PUBLISHED}/linux-64/tinylib-*.conda", how) for how in (flip, flip_in_place, rot, cut, empty, lose)),
    *((f"{PUBLISHED}/linux-64/tinypy-*.conda", how) for how in (flip, flip_in_place, rot, cut, lose)),
    *((f"{PUBLISHED}/linux-64/repodata.json", how) for how in (cut, empty, lose)),
    *((f"{PUBLISHED}/noarch/repodata.json", how) for how in (cut, lose)),
    *((f"{PUBLISHED}/.megabuild-packages.json", how) for how in (cut, empty, lose)),
    *((f"{STATE}/out/linux-64/tinylib-*.conda", how) for how in (flip, cut, lose)),
    *((f"{STATE}/out/linux-64/repodata.json", how) for how in (cut, lose)),
    *((f"{STATE}/out/.megabuild-inputs", how) for how in (cut, lose)),
    *((f"{STATE}/out/build_cache/staging_*/metadata.json", how) for how in (cut, empty, lose)),
    *((f"{STATE}/stagings.json", how) for how in (cut, lose)),
    *((f"{STATE}/out/build_cache/staging_*/prefix/lib/*.so", how) for how in (cut, empty)),
    *((f"{STATE}/tree/build/t3.o", how) for how in (flip, empty, lose)),
    (f"{STATE}/tree/build", lose),
    (f"{STATE}/tree", lose),
    *((f"{STATE}/tree/.megabuild-stamp.json", how) for how in (cut, empty, lose)),
    *((f"{STATE}/{name}", how) for name in ("run.json", "job.json") for how in (cut, empty)),
    *((f"{STATE}/{name}", lose) for name in ("lock", "variant.yaml", *LAUNCHER_FILES, "logs")),
]


def test_a_package_that_was_half_unpacked_is_unpacked_again(tiny: Tiny, undisturbed: Contents) -> None:
    """As a kill left it: the lock names the new content, and of the former one the libraries are gone."""
    (package,) = (tiny.options().packages / "linux-64").glob("tinylib-*")
    folder = tiny.output / "cache" / "rattler" / f"{STATE}-host" / "pkgs" / package.stem
    shutil.copytree(folder, folder.with_name(f".{folder.name}a1B2c3"))
    shutil.rmtree(folder / "lib")
    folder.with_name(f"{folder.name}.lock").write_bytes(bytes(8) + bytes.fromhex(sha256(package)))
    changed(tiny)
    assert tiny.run().ok
    assert published(tiny.options().packages) == undisturbed


@pytest.mark.long
@pytest.mark.parametrize(
    ("pattern", "how"), DAMAGES, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_any_file_may_be_damaged(
    tiny: Tiny, undisturbed: Contents, pattern: str, how: Callable[[Path], None]
) -> None:
    victims = sorted(tiny.output.glob(pattern))
    assert victims, f"there is no {pattern}"
    how(victims[0])
    changed(tiny)
    assert tiny.run(cpu_count=2).ok
    assert published(tiny.options().packages) == undisturbed
    assert tiny.run().ok
    assert not tiny.phases(), "the run after that has nothing to do"


@pytest.mark.long  # many builds
def test_a_driver_killed_at_any_moment_leaves_nothing_that_a_plain_run_does_not_finish(
    tiny: Tiny, undisturbed: Contents
) -> None:
    chance = random.Random(int(os.environ.get("MEGABUILD_TEST_SEED", "20261121")))
    state = tiny.options().state

    def fresh() -> None:
        for folder in (state, tiny.options().packages):
            shutil.rmtree(folder, ignore_errors=True)

    fresh()
    began = time.monotonic()
    with driver(tiny, TINY_SECONDS="0.1") as process:
        assert process.wait() == 0
    seconds = time.monotonic() - began
    killed = 0
    for number in range(KILLS):
        share = (number + chance.random()) / KILLS
        for _ in range(5):
            fresh()
            with driver(tiny, TINY_SECONDS="0.1") as process:
                time.sleep(share * seconds)
                running = process.poll() is None
                process.send_signal(signal.SIGKILL)
                process.wait()
            assert wait_for(lambda: not strays(state), 20), f"killed at {share:.0%}: something is left"
            assert tiny.run().ok, f"killed at {share:.0%}"
            assert published(tiny.options().packages) == undisturbed, f"killed at {share:.0%}"
            if running:
                killed += 1
                break
            seconds *= 0.9  # the machine was busier when the undisturbed run was timed
    assert killed >= KILLS * 3 // 4
