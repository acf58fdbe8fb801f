"""What a run uploads to a store: finished packages, and the tree only if it is finished, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

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
