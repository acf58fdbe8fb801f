"""The operations that tests kill at each of their write-like calls: short, but with the product's own functions.

``python kill_operations.py`` reads sweeps from standard input, a line ``["OPERATION", "FOLDER", SECONDS]`` each, and
prints the report of each as a line of JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import slim_world
import tiny
import wheels_world
from inputs_world import World
from kill_sweep import Operation, Sweep
from small_files import write

import sync_tree
from conda_wheels import make_wheels, simple_index
from gpu_tools.slim import commands
from gpu_tools.slim.steps import SlimRequest
from groundwork import bootstrap, files, in_use
from groundwork.channel import Channel
from groundwork.keys import Key
from groundwork.network.cache import Cache
from groundwork.wheel_file import why_broken
from megabuild import cleaning, environments, upload
from megabuild.engine import archive
from megabuild.plan import planning
from megabuild.run import launcher
from megabuild.run.session import execute
from megabuild.status.status import Status
from megabuild.store import published, server
from tree_inputs.record import COMPLETE, STARTED


def tree(root: Path) -> dict[str, str]:
    """Kinds, modes and hashes of all entries below a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_dir():
            found[name] = "folder"
        else:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
            found[name] = f"{path.stat().st_mode & 0o777:o} {digest}"
    return found


def temporary(root: Path) -> list[str]:
    """Names of temporary files and folders that a kill left."""
    marks = (".tmp", ".scratch", ".removed", ".megabuild-scratch")
    return sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.name.startswith(marks) or path.name.endswith(".new") or "#" in path.name
    )


# sources


def prepare_sources(folder: Path) -> None:
    first = folder / "first"
    for sources, text in ((first, "old\n"), (folder / "kept", "new\n")):
        write(sources / "changed.h", text)
        write(sources / "same.h", "same\n")
    write(first / "gone" / "gone.h")
    write(first / "alias" / "a.h", "a folder\n")
    (first / "link").symlink_to("same.h")
    (folder / "kept" / "alias").symlink_to("gone")
    (folder / "kept" / "link").symlink_to("changed.h")
    sync_tree.sync(first, folder / "tree")
    write(folder / "tree" / "made.o", "made\n")
    shutil.copytree(folder / "kept", folder / "source", symlinks=True)


def sync(folder: Path) -> None:
    sync_tree.main([str(folder / "source"), str(folder / "tree")])


def sync_unpacked_again(folder: Path) -> None:
    shutil.rmtree(folder / "source", ignore_errors=True)
    shutil.copytree(folder / "kept", folder / "source", symlinks=True)
    sync(folder)


# a tree whose environment changed


def prepare_staged_tree(folder: Path) -> None:
    here = folder.with_name("here")  # a CMake tree has the paths of its folder
    world = World(here / "world")
    world.make()
    world.package("libvalue", "include/pack/value.h", "include/pack/asking.h")
    world.package("libnamed", "lib/libnamed.a")
    world.stage()
    world.header("pack/value.h", "#define VALUE 4\n")
    world.header("optional.h", "")
    world.archive("lib/libnamed.a", "named", 5)
    world.program("bin/generate", 'echo "#define GENERATED 6" >"$1"')
    (here / "world").rename(folder / "world")


def stage(folder: Path) -> None:
    World(folder / "world").stage()


def look_staged(folder: Path) -> dict[str, object]:
    world = World(folder / "world")
    installed = world.tree / "torch" / "include" / "pack"
    return {
        "says": world.says(),
        "record": (world.build / COMPLETE).exists(),
        "unfinished": (world.build / STARTED).exists(),
        "installed": sorted(path.name for path in installed.glob("*")),
    }


# packages

PACKAGES = (("pkg", "1.0"), ("pkg", "2.0"), ("other", "1.0"))


def prepare_packages(folder: Path) -> None:
    for name, version in PACKAGES:
        tiny.make_package(folder / "spare" / "linux-64", name, version, "0")
    old = tiny.make_package(folder / "old" / "linux-64", "pkg", "1.0", "0", {"share/x": "old"})
    tiny.publish(folder / "packages" / "c", [old])


def publish(folder: Path) -> None:
    channel = folder / "packages" / "c"
    published.repair(channel, "linux-64")
    records = published.records(channel)
    names = [f"{name}-{version}-0.conda" for name, version in PACKAGES]
    missing = []
    for name in names:
        if not published.is_published(channel, records.get(name), "new"):
            built = write(
                folder / "out" / "linux-64" / name, (folder / "spare" / "linux-64" / name).read_bytes()
            )
            missing.append(archive.read(built))
    if missing:
        fingerprints = dict.fromkeys(names, "new")
        published.publish(channel, missing, platform="linux-64", fingerprints=fingerprints, seconds={})


def look_published(folder: Path) -> dict[str, object]:
    channel = folder / "packages" / "c"
    records = {name: record.fingerprint for name, record in published.records(channel).items()}
    index = json.loads((channel / "linux-64" / "repodata.json").read_text())
    listed = {name: entry["sha256"] for name, entry in index["packages.conda"].items()}
    packages = {path.name: files.sha256(path) for path in (channel / "linux-64").glob("*.conda")}
    return {"records": records, "index": listed, "packages": packages}


def prepare_upload(folder: Path) -> None:
    prepare_packages(folder)
    publish(folder)


#: A server that keeps whole files only, as the real one.
_SERVER = """
import os, shutil, sys
server, label, package = sys.argv[1:]
target = os.path.join(server, os.path.basename(package))
if os.path.exists(target):
    sys.exit(f"{os.path.basename(package)} already exists")
shutil.copy(package, target + ".part")
os.rename(target + ".part", target)
"""


def upload_all(folder: Path) -> None:
    upload._UPLOAD = _SERVER
    release = [
        upload._read(path, path.stat().st_size)
        for path in sorted((folder / "packages" / "c" / "linux-64").glob("*.conda"))
    ]
    (folder / "server").mkdir(exist_ok=True)
    upload.upload(release, str(folder / "server"), "main", scratch=folder / "scratch")


# a whole build


def prepare_build(folder: Path) -> None:
    tiny.make_channel(folder / "channel")
    shutil.copytree(tiny.ROOT, folder / "root")
    (folder / "output").mkdir()


def build(folder: Path) -> None:
    # processes of a killed driver end by themselves, in two seconds
    while subprocess.run(["pgrep", "-f", f"{folder}/"], capture_output=True, check=False).stdout:
        time.sleep(0.1)
    planning.__dict__["choose_provider"] = tiny.provider(folder / "channel")
    one = tiny.Tiny(output=folder / "output", channel=folder / "channel", root=folder / "root")
    outlook = one.outlook()
    execute(outlook, Status(outlook.options.run_name, outlook.options.state))


def look_built(folder: Path) -> dict[str, str]:
    packages = folder / "output" / "packages"
    return {path.name: files.sha256(path) for path in packages.rglob("*.conda")}


# the store


def prepare_store(folder: Path) -> None:
    write(folder / "file", b"0123456789" * 450)
    (folder / "store").mkdir()


def put(folder: Path) -> None:
    server._PART = 1000
    for _ in server.Store(str(folder / "store"), writes=True).put("trees/abc", folder / "file"):
        pass


def look_stored(folder: Path) -> dict[str, str]:
    """Without the temporary files of obstore, ``NAME#1``, which nothing reads."""
    return {name: entry for name, entry in tree(folder / "store").items() if "#" not in name}


def prepare_stored(folder: Path) -> None:
    prepare_store(folder)
    put(folder)


def fetch(folder: Path) -> None:
    store = server.Store(str(folder / "store"))
    found = store.find("trees/abc")
    assert found is not None
    for _ in store.fetch(found, write(folder / "got" / ".keep").with_name("file")):
        pass


# files and caches


def prepare_files(folder: Path) -> None:
    write(folder / "a", b"x" * 100_000)
    write(folder / "old" / "file")


def use_files(folder: Path) -> None:
    files.write(folder / "written", "new", mode=0o644)
    files.copy(folder / "a", folder / "copy")
    files.link(folder / "a", folder / "linked")
    assert files.verified(folder / "a", files.sha256(folder / "a"))
    if (folder / "old").exists():
        files.remove(folder / "old")
    with files.scratch(folder / "scratch") as scratch:
        write(scratch / "x")


def look_files(folder: Path) -> dict[str, str]:
    found = tree(folder)
    return {name: found.get(name, "missing") for name in ("written", "copy", "linked", "old", "a")}


@dataclass(frozen=True, kw_only=True)
class Page(Key):
    """The key of an answer."""

    name: str


def use_cache(folder: Path) -> None:
    cache = Cache(folder / "cache")
    for name in ("a", "b"):
        content = name.encode() * 5000
        assert cache.cached(Page(name=name), 1e9, partial(bytes, content)).data == content


def set_objects_up(folder: Path) -> None:
    launcher.write_launcher(folder, inside="/state", folder="objects", heavy_jobs=2)
    with in_use.shared_lock(folder / "cache", "own"):
        write(folder / "cache" / "objects" / "own" / "object")


def prepare_kept(folder: Path) -> None:
    from wheel_files import make_wheel

    make_wheel(folder / "spare", "a-1-py3-none-any.whl", {"a.py": b"x" * 100_000})
    (folder / "kept").mkdir()


def keep_wheel(folder: Path) -> None:
    """As install-pyg: a kept wheel that is whole is used, or else compiled again."""
    kept = next((path for path in (folder / "kept").glob("*.whl") if not why_broken(path)), None)
    if kept is None:
        with files.scratch(folder / "work") as work:
            wheel = Path(shutil.copy(folder / "spare" / "a-1-py3-none-any.whl", work))
            files.move(wheel, folder / "kept" / wheel.name)


# slim and clean


def prepare_environment(folder: Path) -> None:
    slim_world.environment(folder / "env")


def slim(folder: Path, *, keep_originals: bool = True) -> None:
    request = SlimRequest()
    commands.apply(folder / "env", request, print, checks=None, keep_originals=keep_originals)


def prepare_slimmed(folder: Path) -> None:
    prepare_environment(folder)
    slim(folder)


def undo(folder: Path) -> None:
    if (folder / "env" / ".megabuild-slim").is_dir():  # or it has ended
        commands.undo(folder / "env")


def forget(folder: Path) -> None:
    if (folder / "env" / ".megabuild-slim").is_dir():
        commands.forget(folder / "env")


def look_environment(folder: Path) -> dict[str, str]:
    return {name: entry for name, entry in tree(folder / "env").items() if "manifest.json" not in name}


def prepare_clean(folder: Path) -> None:
    for run in (folder / "output", folder / "output" / "run"):
        in_use.mark(run)
    for name in ("out/a", "tree/b", "tmp/c"):
        write(folder / "output" / "run" / name)
    write(folder / "output" / "wheels" / "run" / "simple" / "x")
    with in_use.shared_lock(folder / "cache"):
        for name in ("objects/own/0/o", "rattler/run/pkgs/x", "sdists/a/b", "environments/b/c", "ccache/c/d"):
            write(folder / "cache" / name)


def clean(folder: Path) -> None:
    for item in list(cleaning.find_items(folder / "output", folder / "cache")):
        cleaning.remove(item, folder / "cache")


def look_cleaned(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and "in-use" not in path.parts)


# wheels and environments


def prepare_index(folder: Path) -> None:
    from wheel_files import make_wheel

    for name in ("old", "new"):
        make_wheel(folder / name, "a-1-py3-none-any.whl", {"a.py": name.encode()})
    (folder / "wheels").mkdir()
    publish_index(folder, "old")


def publish_index(folder: Path, name: str = "new") -> None:
    wheel = folder / name / "a-1-py3-none-any.whl"
    digest = files.sha256(wheel)
    entry = simple_index.index_entry(wheel, project="a", python=None, package=digest, inputs=digest)
    simple_index.remove_former(folder / "wheels")
    if simple_index.read(folder / "wheels") != (entry,):
        simple_index.publish(folder / "wheels", {entry: wheel})


def look_index(folder: Path) -> dict[str, object]:
    current = tree(folder / "wheels" / "simple")
    return {**current, "indexes": len(list((folder / "wheels").glob(".simple-*")))}


def prepare_wheels(folder: Path) -> None:
    wheels_world.make(folder)


def make_all_wheels(folder: Path) -> None:
    output = next(folder.rglob("packages")).parent
    request = make_wheels.Request(
        output=output,
        config=wheels_world.CONFIG,
        pythons=(),
        names=(),
        cache=folder / "cache",
        date=wheels_world.DATE,
    )
    make_wheels.make(request, print)


def look_wheels(folder: Path) -> dict[str, object]:
    (simple,) = folder.glob("**/wheels/*/simple")
    return {**tree(simple), "indexes": len(list(simple.parent.glob(".simple-*")))}


def prepare_channel(folder: Path) -> None:
    tiny.make_channel(folder / "channel")
    made = tiny.make_package(folder / "made" / "linux-64", "lib", "1", "0", depends=["tool"])
    tiny.publish(folder / "output" / "packages" / "c", [made])


def create_environment(folder: Path) -> None:
    if (folder / "env" / environments.ACTIVATE).exists() and not environments._is_unfinished(folder / "env"):
        return  # killed after its end
    channel = folder / "output" / "packages" / "c"
    more = [Channel.of_folder(folder / "channel")]
    solution = environments.solve(channel, ["lib"], more=more, platform="linux-64")
    environments.create(folder / "env", solution, cache=folder / "cache", report=print)


def look_created(folder: Path) -> list[str]:
    return sorted(name for name in tree(folder / "env") if name != environments._LOCK)


def prepare_bootstrap(folder: Path) -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        write(folder / name)


def set_up(folder: Path) -> None:
    python = bootstrap.ensure(folder, "run")
    subprocess.run([python, "-c", "import pip"], check=True)


def look_set_up(folder: Path) -> dict[str, int]:
    made = folder / ".venv"
    return {
        "pythons": len(list(made.glob("*/bin/python"))),
        "stamps": len(list(made.glob(f"*/{bootstrap.STAMP}"))),
    }


def nothing(folder: Path) -> None:
    """Begin with an empty folder."""


OPERATIONS = {
    "sync": Operation(
        prepare=prepare_sources, run=sync, look=lambda folder: tree(folder / "tree"),
        leftovers=lambda folder: temporary(folder / "tree"),
    ),
    "sync-unpacked-again": Operation(
        prepare=prepare_sources, run=sync, again=sync_unpacked_again, look=lambda folder: tree(folder / "tree"),
        leftovers=lambda folder: temporary(folder / "tree"),
    ),
    "stage": Operation(
        prepare=prepare_staged_tree, run=stage, look=look_staged, only_driver=True,
        leftovers=lambda folder: temporary(folder / "world" / "tree"),
    ),
    "publish": Operation(
        prepare=prepare_packages, run=publish, look=look_published,
        leftovers=lambda folder: temporary(folder / "packages"),
    ),
    "upload": Operation(prepare=prepare_upload, run=upload_all, look=lambda folder: tree(folder / "server")),
    "build": Operation(
        prepare=prepare_build, run=build, look=look_built, below="output", only_driver=True,
        leftovers=lambda folder: temporary(folder / "output" / "packages"),
    ),
    "store-put": Operation(prepare=prepare_store, run=put, look=look_stored, leftovers=temporary),
    "store-fetch": Operation(
        prepare=prepare_stored, run=fetch, look=lambda folder: tree(folder / "got").get("file", "")
    ),
    "files": Operation(prepare=prepare_files, run=use_files, look=look_files, leftovers=temporary),
    "audit-cache": Operation(prepare=nothing, run=use_cache, look=lambda folder: len(tree(folder / "cache")) >= 2),
    "object-cache": Operation(
        prepare=nothing, run=set_objects_up,
        look=lambda folder: {name: entry for name, entry in tree(folder).items() if not name.endswith(".new")},
        leftovers=temporary,
    ),
    "kept-wheel": Operation(prepare=prepare_kept, run=keep_wheel, look=lambda folder: tree(folder / "kept")),
    "slim-apply": Operation(prepare=prepare_environment, run=slim, look=look_environment, below="env"),
    "slim-apply-undo": Operation(
        prepare=prepare_environment, run=slim, again=undo, look=look_environment, below="env"
    ),
    "slim-undo": Operation(
        prepare=prepare_slimmed, run=undo, look=look_environment, below="env"
    ),
    "slim-forget": Operation(
        prepare=prepare_slimmed, run=forget, look=look_environment, below="env"
    ),
    "clean": Operation(prepare=prepare_clean, run=clean, look=look_cleaned, leftovers=temporary),
    "wheels-index": Operation(prepare=prepare_index, run=publish_index, look=look_index),
    "wheels": Operation(prepare=prepare_wheels, run=make_all_wheels, look=look_wheels),
    "env-create": Operation(prepare=prepare_channel, run=create_environment, look=look_created),
    "bootstrap": Operation(prepare=prepare_bootstrap, run=set_up, look=look_set_up),
}  # fmt: skip


def report_sweep(operation: str, folder: str, seconds: float) -> Any:
    """Sweep in a process of its own, which has the modules: to import them takes longer than most sweeps."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
        try:
            report = asdict(Sweep(OPERATIONS[operation], Path(folder)).run(seconds))
        except BaseException:
            report = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(report).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        report = json.loads(pipe.read() or '{"error": "the process of the sweep was killed"}')
    os.waitpid(child, 0)
    return report


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(report_sweep(*json.loads(line))), flush=True)
