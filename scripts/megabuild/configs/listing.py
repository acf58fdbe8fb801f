"""What `megabuild configs` finds: the list of configs."""

from __future__ import annotations

from pathlib import Path

from groundwork.result import Result
from groundwork.text import picked, table
from megabuild.configs.config import Config, available, load, select

_HEADS = ("config", "PyTorch", "accelerator", "BLAS", "Pythons", "provider")


def listed(root: Path, pattern: str | None) -> Result:
    """Return the configs of a repository whose names match a glob pattern."""
    names = select(available(root), pattern) if pattern else available(root)
    found = [load(root, name) for name in names]
    return Result(
        format="configs",
        document={"configs": [_document(config) for config in found]},
        lines=table(_HEADS, [_row(config) for config in found]),
    )


def _row(config: Config) -> tuple[str, ...]:
    """Return what tells a config from the others."""
    cuda = f"CUDA {config.cuda_version}" if config.cuda_version else "CPU"
    pythons = f"{config.pythons[0]}-{config.pythons[-1]}"
    return (config.name, config.torch_version, cuda, config.blas, pythons, config.provider)


def _document(config: Config) -> dict[str, object]:
    known = picked(config, "name platform torch_version accelerator cuda_version blas provider pythons")
    return {**known, "docker_image": config.docker_image or None}
