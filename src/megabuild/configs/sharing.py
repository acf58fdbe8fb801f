"""Which configs compile the same objects, and the order in which later configs find most of them in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.version import Version

from groundwork.errors import ConfigError
from megabuild.configs.config import Config, load

_FASTEST_BLAS = "mkl"
#: Keys that change every object.
_TOOLCHAIN = (
    "provider", "torch_version", "target_platform", "c_compiler", "c_compiler_version", "cxx_compiler",
    "cxx_compiler_version", "c_stdlib", "c_stdlib_version",
)  # fmt: skip


def find_sharing(config: Config, compiled: Iterable[Config], overrides: Mapping[str, Sequence[str]]) -> str:
    """Return the name of a compiled config with nearly the same objects, or ""; ``overrides`` apply to all."""
    own = toolchain(config, overrides)
    for other in compiled:
        is_alike = other.accelerator == config.accelerator and toolchain(other, overrides) == own
        if is_alike and other.name != config.name:
            return other.name
    return ""


def toolchain(config: Config, overrides: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return all that objects of two configs must have in common."""
    values = {**config.variant, **overrides}
    return tuple(tuple(values.get(key, ())) for key in _TOOLCHAIN)


def group_by_toolchain(configs: Iterable[Config], overrides: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the names of configs in groups, in the given order; configs of two groups share no objects."""
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for config in configs:
        groups.setdefault(toolchain(config, overrides), []).append(config.name)
    return list(groups.values())


def sort_for_sharing(root: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return a repository's config names, those of one toolchain together: CPU before CUDA, MKL before another BLAS.

    Configs that cannot be read come last: each has an error of its own when it is built.
    """
    configs: list[Config] = []
    unreadable: list[str] = []
    for name in names:
        try:
            configs.append(load(root, name))
        except ConfigError:
            unreadable.append(name)
    toolchains = list(dict.fromkeys(toolchain(config, {}) for config in configs))

    def order(config: Config) -> tuple[int, Version, bool]:
        cuda = Version(config.cuda_version or "0")
        return toolchains.index(toolchain(config, {})), cuda, config.blas != _FASTEST_BLAS

    names_in_order = [config.name for config in sorted(configs, key=order)]
    return (*names_in_order, *unreadable)
