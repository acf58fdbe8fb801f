"""Licence texts of a source tree and of what it vendors."""

from __future__ import annotations

from pathlib import Path

from small_files import write

import gather_licences


def test_texts_at_any_depth_and_nothing_of_such_a_name(tmp_path: Path) -> None:
    tree, target = tmp_path / "tree", tmp_path / "licenses"
    vendored = {"third_party/a/LICENSE.txt", "third_party/b/COPYING.LESSER", "third_party/c/LICENCE-MIT"}
    texts = {"LICENSE", "NOTICE", *vendored}
    others = {f"third_party/a/license.{end}" for end in ("py", "h")} | {
        "licenses/LICENSE",
        "build/LICENSE",
        "setup.py",
    }
    for name in texts | others:
        write(tree / name, name)
    write(target / "of-a-former-run")
    assert gather_licences.main([str(target), str(tmp_path / "out")]) == 1, "no licence"
    assert gather_licences.main([str(tree), str(target)]) == 0
    assert {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()} == texts
