"""Files that conda-smithy expects, or would write over."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML


def test_the_licence_stands_a_rerender(repository: Path) -> None:
    """conda-smithy removes a root file LICENSE, through links, and writes LICENSE.txt unless told not to."""
    root, packed = repository / "LICENSE.txt", repository / "recipe" / "LICENSE"
    assert not (repository / "LICENSE").is_symlink()
    assert not (repository / "LICENSE").exists()
    assert not root.is_symlink()
    assert not packed.is_symlink()
    assert packed.read_bytes()
    assert root.read_bytes() == packed.read_bytes()
    assert "LICENSE.txt" in YAML(typ="safe").load(repository / "conda-forge.yml")["skip_render"]
