"""Runs of the tiny megabuild in which nothing goes wrong: built, fetched from a store, and with nothing to do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import future
import pytest
from rattler import AboutJson
from rattler.package_streaming import extract
from small_files import write
from tiny import PACKAGES, ROOT, Tiny, make_channel, make_package, provider

from groundwork.errors import IntegrityError
from groundwork.files import remove
from groundwork.machine import machine_platform
from megabuild.configs.render import PlannedPackage
from megabuild.engine import archive
from megabuild.isolation.base import Host
from megabuild.isolation.engine import Engine
from megabuild.plan import object_cache, planning
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.last_run import RunKind
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run.plan_report import plan_lines, staging_sentence
from megabuild.store import server
from megabuild.store.published import records

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A tiny megabuild with a store that is still empty."""
    for name in ("CPU_COUNT", "MAX_JOBS", "MEGABUILD_CACHE", "TORCH_CCACHE"):
        monkeypatch.delenv(name, raising=False)
    channel = make_channel(tmp_path / "channel")
    monkeypatch.setattr(planning, "choose_provider", provider(channel))
    monkeypatch.setenv(server.STORE, str(tmp_path / "store"))
    shutil.copytree(ROOT, tmp_path / "root")
    return Tiny(output=tmp_path / "output", channel=channel, root=tmp_path / "root")


def published(tiny: Tiny) -> dict[str, tuple[str, str]]:
    """SHA-256 and fingerprint of the published packages, by file name."""
    found = records(tiny.options().packages)
    return {name: (record.sha256, record.fingerprint) for name, record in found.items()}


def test_packages_are_built_once_and_fetched_elsewhere(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(server.WRITES, "1")
        summary = tiny.run()
    assert ([row.status for row in summary.packages], summary.error) == (["built"] * 3, "")
    assert summary.swaps == {"3.11": {"steps": 3, "core": 0}, "3.12": {"steps": 3, "core": 0}}
    assert len([text for text in tiny.sentences() if ": tested in" in text]) == 3
    assert "[1/6 0.5s] Building C object" in tiny.log_text()
    assert "checked disk" in tiny.log_text(), "the driver's sentences, too"
    (library,) = tiny.options().packages.glob("*/tinylib-*")
    extract(library, tiny.output / "library")
    assert AboutJson.from_package_directory(tiny.output / "library").channels == [], (
        "a folder of this machine"
    )
    state, built = tiny.options().state, published(tiny)
    assert json.loads((state / "run.json").read_text())["ok"] is True
    ended = json.loads((state / "state.json").read_text())
    assert (ended["status"], ended["exit_code"], ended["activities"]) == ("done", 0, [])
    assert set(ended["packages"].values()) == {"published"}
    costs = tiny.plan().last_runs.runs[RunKind.SCRATCH]
    assert (costs.compiled, costs.seconds > 0, costs.install > 0) == (ObjectCounts(core=6), True, True)

    before = (state / "run.json").read_bytes()
    assert [row.status for row in tiny.run().packages] == ["skipped"] * 3
    assert (state / "run.json").read_bytes() == before

    shutil.rmtree(tiny.output)
    assert set(tiny.outlook().progress.stored.packages) == set(built)
    assert tiny.run().ok
    assert not [text for text in tiny.sentences() if ": built" in text]
    assert published(tiny) == built

    # without its parts, a package is built on the stored tree
    (record,) = tiny.output.with_name("store").glob("*/packages/*/*py312*.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "parts": []}))
    shutil.rmtree(tiny.output)
    assert tiny.run().ok
    assert len([text for text in tiny.sentences() if ": built" in text]) == 1
    assert [decision for decision, _ in tiny.decisions()] == ["reuse"]
    assert len(tiny.warnings()) == 1

    # a clock that was ahead
    future.send(state / "tree", 86400)
    (package,) = tiny.options().packages.glob("*/*py312*")
    package.unlink()
    assert tiny.run().ok
    assert any(str(state / "tree") in text for text in tiny.warnings())
    assert published(tiny) == built


def test_a_plan_does_not_call_a_finished_compile_unfinished(tiny: Tiny) -> None:
    tiny.run()
    common = tiny.root / "recipe" / "common.sh"
    common.write_text(common.read_text() + "true\n")
    progress = tiny.outlook().progress
    assert progress.tree.use is TreeUse.RESUME
    assert staging_sentence(progress).startswith(
        "tiny-build is compiled completely; only objects that the change"
    )
    remove(tiny.options().state / "out" / "build_cache")  # as a run that was stopped after it began anew
    assert "continues where it stopped" in staging_sentence(tiny.outlook().progress)


def test_another_build_number_stages_and_compiles_nothing(tiny: Tiny) -> None:
    tiny.run()
    recipe = tiny.root / "recipe" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("build: 0", "build: 1"))
    assert tiny.outlook().progress.tree.use is TreeUse.REUSE
    summary = tiny.run()
    assert [row.status for row in summary.packages] == ["built"] * 3
    assert all(row.package.build_string.endswith("_1") for row in summary.packages)
    assert [decided for decided, _ in tiny.decisions()] == ["reuse"]
    assert set(tiny.plan().last_runs.runs) == {RunKind.SCRATCH, RunKind.REPACK}
    assert "Building C object" not in tiny.log_text()
    assert "tiny-build: configure" not in tiny.phases()


def test_a_tested_package_that_is_refused_has_failed_and_no_other(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = archive.verify

    def refuse(planned: PlannedPackage, path: Path) -> archive.Archive:
        if planned.python == "3.12":
            raise IntegrityError("holds another package's files")
        return verify(planned, path)

    monkeypatch.setattr(archive, "verify", refuse)
    with pytest.raises(IntegrityError):
        tiny.run()
    state = tiny.options().state
    rows = json.loads((state / "run.json").read_text())["packages"]
    failed = {
        row["build_string"][:5]: (row["status"], row["note"]) for row in rows if row["name"] == "tinypy"
    }
    assert failed == {"py311": ("built", ""), "py312": ("failed", "holds another package's files")}
    packages = json.loads((state / "state.json").read_text())["packages"]
    assert [(name[:12], how) for name, how in packages.items()] == [
        ("tinylib-1.0-", "published"), ("tinypy-1.0-p", "published"), ("tinypy-1.0-p", "failed"),
    ]  # fmt: skip


#: The tiny recipe's staging, with a package that requires idna, and the record of a tree as PyTorch's recipe writes it.
_REQUIREMENTS = "      build:\n        - tool\n"
_RECORD = """
cat >"$TORCH_TREE/build/environment-inputs.json" <<END
{"version": 1, "packages": [{"source": "host", "name": "headers", "role": "objects", "objects": {"core": 2}}],
 "objects": {"core": 6}}
END
"""


def record_objects(tiny: Tiny) -> None:
    """Have the recipe record its objects, of which two read headers of a package."""
    recipe = tiny.root / "recipe" / "recipe.yaml"
    host = "      host:\n        - headers\n"
    recipe.write_text(recipe.read_text().replace(_REQUIREMENTS, _REQUIREMENTS + host, 1))
    staging = recipe.with_name("build_staging.sh")
    staging.write_text(staging.read_text() + _RECORD)
    make_channel(tiny.channel, (("headers", "5.0", "0"), *PACKAGES))


def test_the_objects_of_a_tree_from_the_store_are_not_expected_in_the_cache(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_objects(tiny)
    with monkeypatch.context() as patch:
        patch.setenv(server.WRITES, "1")
        tiny.run()
    (record,) = tiny.output.with_name("store").glob("*/packages/*/*py312*.json")
    record.unlink()
    shutil.rmtree(tiny.output)  # as another machine
    assert tiny.run().ok
    assert [decision for decision, _ in tiny.decisions()] == ["reuse"]
    monkeypatch.delenv(server.STORE)
    cache = tiny.options().cache
    write(cache / "objects" / tiny.options().objects_names.on_host / "0" / "of the bindings")
    elsewhere = replace(tiny, output=tiny.output.with_name("another"))
    assert "built from scratch" in staging_sentence(elsewhere.outlook(cache=cache).progress)
    for folder in (tiny.options().state / "tree", tiny.options().state / "out", tiny.options().packages):
        remove(folder)
    progress = tiny.outlook().progress
    assert ("built from scratch" in staging_sentence(progress), progress.kind) == (True, RunKind.SCRATCH)
    assert tiny.run().ok
    remove(tiny.options().state / "tree")
    remove(tiny.options().packages)
    assert "every object exists" in staging_sentence(tiny.outlook().progress), "they were compiled here"
    assert "every object exists" in staging_sentence(elsewhere.outlook(cache=cache).progress)


def test_another_output_folder_has_the_objects_of_the_last_staging(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(server.STORE)
    record_objects(tiny)
    assert staging_sentence(tiny.outlook().progress) == "tiny-build is built from scratch (not compiled yet)"
    tiny.run()
    here = tiny
    cache = tiny.options().cache

    def fill_caches() -> None:  # the tiny compiler uses no ccache
        for name in here.options().objects_names:
            write(cache / "objects" / name / "0" / "1" / "23R")

    fill_caches()
    tiny = replace(tiny, output=tiny.output.with_name("another"))
    progress = tiny.outlook(cache=cache).progress
    assert staging_sentence(progress) == (
        "tiny-build is rebuilt with objects from the object cache; every object exists: links and packages only"
        " (not compiled in this output folder yet)"
    )
    assert progress.kind is RunKind.REBUILD
    isolated = tiny.outlook(cache=cache, engine=Engine.BUBBLEWRAP).progress
    assert "built from scratch" in staging_sentence(isolated), "they are in the cache of builds on the host"
    make_channel(tiny.channel, (("headers", "6.0", "0"), *PACKAGES))
    sentence = staging_sentence(tiny.outlook(cache=cache).progress)
    assert "at most 2 of 6 objects are compiled again: 2 of libtorch" in sentence
    shutil.rmtree(cache / "objects")
    assert "built from scratch" in staging_sentence(tiny.outlook(cache=cache).progress), "objects are gone"
    make_channel(tiny.channel, (("headers", "5.0", "0"), *PACKAGES))
    fill_caches()
    object_cache.identify(here.options(), Host())
    assert "built from scratch" in staging_sentence(tiny.outlook(cache=cache).progress), "of other configs"
    remove(here.options().state / "tree")
    remove(here.options().state / "out")
    remove(here.options().packages)
    progress = here.outlook().progress
    assert ("built from scratch" in staging_sentence(progress), progress.kind) == (True, RunKind.SCRATCH)


def test_a_changed_package_of_no_object_builds_nothing_and_a_header_keeps_the_tree(tiny: Tiny) -> None:
    recipe = tiny.root / "recipe" / "recipe.yaml"
    host = "      host:\n        - headers\n        - requests\n"
    recipe.write_text(recipe.read_text().replace(_REQUIREMENTS, _REQUIREMENTS + host, 1))
    staging = recipe.with_name("build_staging.sh")
    staging.write_text(staging.read_text() + _RECORD)

    def provide(idna: str, headers: str) -> None:
        make_package(tiny.channel / "linux-64", "requests", "2.0", "0", depends=["idna"])
        make_package(tiny.channel / "linux-64", "idna", idna, "0")
        make_channel(tiny.channel, (("headers", headers, "0"), *PACKAGES))

    provide("3.7", "5.0")
    tiny.run()
    kept = published(tiny)
    provide("3.10", "5.0")
    outlook = tiny.outlook()
    assert outlook.progress.is_done
    assert "no object depends on the change of idna 3.7 -> 3.10" in plan_lines(outlook)
    remove(tiny.options().state / "tree")
    remove(tiny.options().state / "out")
    assert tiny.outlook().progress.is_done, "nor without its tree"
    tiny.run()
    assert published(tiny) == kept

    recipe.write_text(recipe.read_text().replace("build: 0", "build: 1"))
    tiny.run()
    provide("3.11", "6.0")
    progress = tiny.outlook().progress
    assert (progress.tree.use, progress.tree.is_complete) == (TreeUse.RESUME, True)
    assert progress.tree.reasons == ("headers 5.0 -> 6.0",)
    assert staging_sentence(progress) == (
        "tiny-build is compiled completely; at most 2 of 6 objects are compiled again: 2 of libtorch"
        " (headers 5.0 -> 6.0)"
    )
    assert tiny.run().ok
    assert set(tiny.plan().last_runs.runs) == {RunKind.SCRATCH, RunKind.REBUILD}
    assert "Building C object" not in tiny.log_text(), "the tree is kept"
