"""The configs that there are, as text and as JSON."""

from __future__ import annotations

from pathlib import Path

from megabuild.configs.config import available, load, select
from megabuild.result import Result
from megabuild.text import picked, table

_HEADS = ("config", "PyTorch", "accelerator", "BLAS", "Pythons", "provider")
_KEYS = "name platform torch_version accelerator cuda_version blas provider pythons"


def listed(root: Path, pattern: str | None) -> Result:
    """Return all configs, or those whose name matches, with what tells them apart."""
    found = [load(root, name) for name in names(root, pattern)]
    rows = [
        (
            config.name,
            config.torch_version,
            f"CUDA {config.cuda_version}" if config.cuda_version else "CPU",
            config.blas,
            f"{config.pythons[0]}-{config.pythons[-1]}",
            config.provider,
        )
        for config in found
    ]
    documents = [{**picked(config, _KEYS), "docker_image": config.docker_image or None} for config in found]
    return Result(format="configs", document={"configs": documents}, lines=table(_HEADS, rows))


def names(root: Path, pattern: str | None) -> tuple[str, ...]:
    """Return the names of all configs, or of those that match."""
    return select(available(root), pattern) if pattern else available(root)
