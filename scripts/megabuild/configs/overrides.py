"""Narrowing a config: overriding keys without tearing apart the ones that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from groundwork.arch_list import cuda_archs as cuda_archs
from groundwork.arch_list import unknown_arch
from groundwork.errors import UsageError
from megabuild.configs.config import Config, python_version

CHANNELS = "channel_sources"


def complete(config: Config, overrides: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Add to ``overrides``, new values by key of a config that is narrowed, what keeps zipped keys in step.

    Where an overridden key is zipped with others and its new values are all among its old ones, the others are cut
    down to the same rows. Any other length would be refused by the engine, so it is refused here, with a reason.

    Raises UsageError: A zipped key would get another number of values than its partners, and they are not a choice of
        its old ones.
    """
    result = {key: tuple(values) for key, values in overrides.items()}
    for group in config.zip_keys:
        for key in group:
            if key not in overrides:
                continue
            old, new = config.variant[key], result[key]
            if all(value in old for value in new):
                rows = [old.index(value) for value in new]
                for partner in group:
                    result.setdefault(partner, tuple(config.variant[partner][row] for row in rows))
            elif len(new) != len(old) and any(
                len(result.get(other, config.variant[other])) != len(new) for other in group
            ):
                raise UsageError(
                    f"{config.name}: {len(new)} values for '{key}', but it is zipped with {', '.join(group)}",
                    f"choose among its values: {', '.join(old)}",
                )
    return result


def without_channels(config: Config) -> Config:
    """Return a config that leaves it to whoever builds it which channels are used.

    The engine hashes the key into the names of packages whose recipe does not ignore it.
    """
    groups = (tuple(key for key in group if key != CHANNELS) for group in config.zip_keys)
    return replace(
        config,
        variant={key: values for key, values in config.variant.items() if key != CHANNELS},
        zip_keys=tuple(group for group in groups if len(group) > 1),
    )


def chosen(config: Config, overrides: Mapping[str, Sequence[str]]) -> Config:
    """Return a config with other values in its variant; see :func:`complete`."""
    return replace(config, variant={**config.variant, **complete(config, overrides)})


def other_torch(config: Config, version: str, digest: str | None) -> Config:
    """Return a config for another version of PyTorch: a release, or where wheels are taken, a nightly build, too.

    ``digest`` is the sha256 of its official tarball, where one is downloaded.

    Raises UsageError: That is no version, or no sha256.
    """
    nightly = r"(\.dev\d{8})?" if config.provider == "wheel" else ""
    if not re.fullmatch(rf"\d+\.\d+\.\d+{nightly}", version):
        example = "'2.15.0'" + (", or '2.16.0.dev20261120' for a nightly build" if nightly else "")
        raise UsageError(f"'{version}' is not a release of PyTorch", f"write it like {example}")
    if version == config.torch_version and digest is None:
        return config
    if digest is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise UsageError(f"'{digest}' is not a sha256", f"give the one of pytorch-v{version}.tar.gz")
    changed = {"torch_version": (version,), "torch_sha256": (digest or "None",)}
    return replace(config, torch_version=version, variant={**config.variant, **changed})


def python_pins(config: Config, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the config's pins for Python versions such as ``3.12`` (also ``312``, ``py312``; none: all), in its order.

    Raises UsageError: The config has no such Python.
    """
    pins = {python_version(pin): pin for pin in config.variant["python"]}
    wanted = {_normalise(version) for version in versions} or set(pins)
    unknown = sorted(wanted - set(pins))
    if unknown:
        raise UsageError(f"{config.name} has no Python {', '.join(unknown)}", f"it has {', '.join(pins)}")
    return tuple(pin for version, pin in pins.items() if version in wanted)


def _normalise(version: str) -> str:
    digits = version.removeprefix("py").removeprefix("cp")
    return f"{digits[0]}.{digits[1:]}" if digits[:1].isdigit() and "." not in digits else digits


def arch_list(config: Config, text: str) -> str:
    """Return CUDA architectures, however they are written, as configs have them: ``9.0;12.0+PTX``.

    Raises UsageError: The config is for CPUs, or the text holds something else.
    """
    if config.cuda_version is None:
        raise UsageError(f"{config.name} is for CPUs", "an arch list goes with a CUDA config")
    if not (archs := cuda_archs(text)):
        raise unknown_arch(text)
    return ";".join(archs)
