"""What a run uploads to a store: finished packages, and the tree only if it is finished, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from stop_at_write import every_stop

from megabuild.engine import output_folder
from megabuild.plan import tree_reuse
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.run import store_lookup, store_transfer
from megabuild.run.progress import Progress
from megabuild.status.status import Status
from megabuild.store import server, tree_archive


@pytest.mark.parametrize(
    ("decision", "missing", "uploaded"),
    [
        ("reuse", (), True),
        ("reuse", ("pytorch",), False),
        ("resume", (), False),
        ("recompile", (), False),
        ("fresh", (), False),
        ("none", (), False),
    ],
)
def test_a_half_compiled_tree_is_not_uploaded(
    decision: str, missing: tuple[str, ...], uploaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[str] = []
    monkeypatch.setattr(store_transfer, "_put_file", lambda store, key, *_: put.append(key))
    monkeypatch.setattr(store_lookup, "staging_key", lambda plan: "the tree")
    monkeypatch.setattr(tree_archive, "pack", lambda folders, target: None)
    state = tmp_path / "state"
    (state / "out").mkdir(parents=True)
    plan = SimpleNamespace(all_items=(), staged_name="libtorch", options=SimpleNamespace(state=state))
    tree = Decision(use=TreeUse(decision), reasons=())
    progress = SimpleNamespace(existing=frozenset(), missing=missing, tree=tree)
    monkeypatch.setattr(Progress, "read", lambda plan: progress)
    environ = {server.STORE: str(tmp_path / "store"), server.WRITES: "1"}
    store_transfer.put(cast(Any, plan), environ, Status("x", state))
    assert put == ["the tree"] * uploaded


def finished(state: Path, name: str, fingerprint: Fingerprint) -> None:
    """A finished tree with its staging; both have a file of this name."""
    write(state / "tree/build" / name)
    tree_reuse.write(state / "tree", fingerprint)
    write(state / "out/build_cache/staging_1/prefix" / name)
    write(state / "out/build_cache/staging_1/metadata.json", "{}")
    output_folder.seal_stagings(state / "out")


def test_a_tree_that_is_being_fetched_never_has_another_staging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed anywhere, the next run takes nothing for finished, or the whole of what was fetched."""
    former, new = Fingerprint(source={"recipe": "1"}), Fingerprint(source={"recipe": "2"})
    finished(tmp_path / "here", "former", former)
    finished(tmp_path / "other", "new", new)
    stagings = output_folder.staging_caches(tmp_path / "other/out")
    folders = {f"stagings/{path.name}": path for path in stagings}
    tree_archive.pack({"tree": tmp_path / "other/tree", **folders}, tmp_path / "packed")
    store = server.Store(str(tmp_path / "store"), writes=True)
    for _ in store.put("key", tmp_path / "packed"):
        pass
    stored = store_lookup.Stored(staging=store.find("key"))
    monkeypatch.setattr(Progress, "read", lambda plan: SimpleNamespace(needs_staging=True))

    def fetch(state: Path) -> None:
        options = SimpleNamespace(state=state)
        plan = SimpleNamespace(all_items=(), staged_name="libtorch", options=options, staging=new)
        progress = cast(Any, SimpleNamespace(plan=plan, stored=stored, existing=frozenset()))
        store_transfer.fetch(progress, {server.STORE: store.address}, Status("x", state))

    for state in every_stop(tmp_path / "here", fetch):
        if tree_reuse.decide(state / "tree", state / "out", new).use is TreeUse.REUSE:
            assert (state / "tree/build/new").exists()
            assert (state / "out/build_cache/staging_1/prefix/new").exists()
        fetch(state)
        assert tree_reuse.decide(state / "tree", state / "out", new).use is TreeUse.REUSE
        assert (state / "out/build_cache/staging_1/prefix/new").exists()
