"""What `megabuild configs` finds: the list of configs, and which files are out of step with the matrix."""

from __future__ import annotations

from pathlib import Path

from megabuild.cli.text import picked, table
from megabuild.configs.config import Config, available, load, select
from megabuild.errors import ConfigError
from megabuild.result import Result

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


def compared(root: Path, *, write: bool) -> Result:
    """Compare ``.ci_support`` with the matrix, which is a failure where they differ; or bring it in step."""
    from megabuild.configs import matrix  # the engine takes a moment to import

    states = matrix.write(root) if write else matrix.outdated(root)
    lines = [f"{state:8} {name}" for name, state in states.items()]
    failed = bool(states) and not write
    if failed:
        lines += [
            f"error: {len(states)} files in .ci_support are not in step with conda_build_config.yaml",
            "  run: python scripts/megabuild configs --write",
        ]
    code = ConfigError.exit_code if failed else 0
    return Result(format="configs-check", document={"outdated": states}, lines=lines, exit_code=code)
