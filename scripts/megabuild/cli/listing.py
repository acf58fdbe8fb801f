"""The list of configs, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from megabuild.cli.text import table
from megabuild.configs.config import Config


def describe(configs: Sequence[Config]) -> list[str]:
    """Return one line per config: its name, and what tells it from others."""
    rows = [
        (
            config.name,
            config.torch_version,
            f"CUDA {config.cuda_version}" if config.cuda_version else "CPU",
            config.blas,
            f"{config.pythons[0]}-{config.pythons[-1]}",
            config.provider,
        )
        for config in configs
    ]
    heads = ("config", "PyTorch", "accelerator", "BLAS", "Pythons", "provider")
    return table(heads, rows)


def document(configs: Sequence[Config]) -> list[dict[str, Any]]:
    """Return the configs as JSON values."""
    return [
        {
            "name": config.name,
            "platform": config.platform,
            "torch_version": config.torch_version,
            "accelerator": config.accelerator,
            "cuda_version": config.cuda_version,
            "blas": config.blas,
            "provider": config.provider,
            "pythons": list(config.pythons),
            "docker_image": config.docker_image or None,
        }
        for config in configs
    ]
