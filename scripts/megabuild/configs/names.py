"""Names of configs: ``<platform>_<cpu|cudaNNN>[_<blas or provider>]``, such as ``linux_64_cuda130_generic``."""

from __future__ import annotations

#: Every platform a config can be for, as a config name spells it, with conda's name for it.
PLATFORMS = {
    "linux_64": "linux-64",
    "linux_aarch64": "linux-aarch64",
    "osx_64": "osx-64",
    "osx_arm64": "osx-arm64",
}


def config_name(platform: str, cuda_version: str | None, suffix: str = "") -> str:
    """Put a config's name together.

    Parameters
    ----------
    platform:
        conda's platform, ``linux-64``.
    cuda_version:
        ``13.0``, or None for a CPU build.
    suffix:
        What tells the config from its siblings: ``generic`` or a provider; empty for the plain one.
    """
    parts = [platform.replace("-", "_"), accelerator(cuda_version)]
    return "_".join([*parts, suffix] if suffix else parts)


def accelerator(cuda_version: str | None) -> str:
    """Return ``cpu``, or ``cuda130`` for CUDA 13.0."""
    return f"cuda{cuda_version.replace('.', '')}" if cuda_version else "cpu"
