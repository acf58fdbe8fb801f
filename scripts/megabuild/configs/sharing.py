"""Which configs compile the same objects, and the order in which later configs find most of them in the cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork.errors import ConfigError
from megabuild.configs.config import Config, load

#: Keys that change every object.
_TOOLCHAIN = (
    "provider", "torch_version", "target_platform", "c_compiler", "c_compiler_version", "cxx_compiler",
    "cxx_compiler_version", "c_stdlib", "c_stdlib_version",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SharedObjects:
    """The part of a config's compile that another config has done, each from 0 to 1."""

    config: str = ""  #: name of the other config; empty if there is none
    core: float = 0.0  #: of the C++ that a config for CPUs compiles, without the bindings
    bindings: float = 0.0  #: of each Python's bindings
    cuda: float = 0.0  #: of all that only CUDA adds


#: Measured on PyTorch 2.6 (docs/lab/measurements.md, "Objects that configs share").
_OTHER_BLAS = {"core": 0.97, "bindings": 0.97, "cuda": 0.97}
_OTHER_ACCELERATOR = {"core": 0.99, "bindings": 0.5}


def shared_objects(
    config: Config, compiled: Iterable[Config], overrides: Mapping[str, Sequence[str]]
) -> SharedObjects:
    """Return the most that a config shares with one of those that are compiled; ``overrides`` apply to all."""
    best = SharedObjects()
    for other in compiled:
        if other.name == config.name or toolchain(other, overrides) != toolchain(config, overrides):
            continue
        same_accelerator = other.accelerator == config.accelerator
        shares = _OTHER_BLAS if same_accelerator else _OTHER_ACCELERATOR
        best = max(best, SharedObjects(config=other.name, **shares), key=lambda shared: shared.bindings)
    return best


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
