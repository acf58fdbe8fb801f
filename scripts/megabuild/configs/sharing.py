"""Which configs compile the same objects, and the order in which later configs find most of them in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from groundwork.errors import ConfigError
from megabuild.configs.config import Config, load

#: Keys that change every object.
_TOOLCHAIN = (
    "provider", "torch_version", "target_platform", "c_compiler", "c_compiler_version", "cxx_compiler",
    "cxx_compiler_version", "c_stdlib", "c_stdlib_version",
)  # fmt: skip


def find_sharing(config: Config, compiled: Iterable[Config], overrides: Mapping[str, Sequence[str]]) -> str:
    """Return the name of a compiled config with nearly the same objects, or ""; ``overrides`` apply to all."""
    for other in compiled:
        alike = other.accelerator == config.accelerator and other.name != config.name
        if alike and toolchain(other, overrides) == toolchain(config, overrides):
            return other.name
    return ""


def toolchain(config: Config, overrides: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return all that objects of two configs must have in common."""
    return tuple(tuple(overrides.get(key, config.variant.get(key, ()))) for key in _TOOLCHAIN)


def sort_for_sharing(root: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return a repository's config names, those of one toolchain together: CPU before CUDA, MKL before another BLAS.

    Configs that cannot be read come last: each has an error of its own when it is built.
    """
    configs, unreadable = [], []
    for name in names:
        try:
            configs.append(load(root, name))
        except ConfigError:
            unreadable.append(name)
    toolchains = list(dict.fromkeys(toolchain(config, {}) for config in configs))
    configs.sort(
        key=lambda config: (
            toolchains.index(toolchain(config, {})),
            [int(part) for part in (config.cuda_version or "0").split(".")],
            config.blas != "mkl",
        )
    )
    return (*(config.name for config in configs), *unreadable)
