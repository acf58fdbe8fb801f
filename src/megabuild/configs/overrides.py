"""Overrides keys of a config, and keeps zipped keys in step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from groundwork.errors import UsageError
from groundwork.names import cuda_archs, unknown_arch
from megabuild.configs.config import Config, python_version
from megabuild.configs.provider_name import ProviderName

CHANNELS = "channel_sources"


@dataclass(frozen=True, kw_only=True)
class Tarball:
    """A release's pytorch-vVERSION.tar.gz."""

    sha256: str
    source: str  #: who publishes the sha256
    is_confirmed: bool  #: builds have compared it with the file


TARBALLS = {
    "2.13.0": Tarball(
        sha256="66614a19060f69cfd63cd0295f65a1241bd15df2fa65c60ae51066c11c2ce812",
        source="conda-forge's recipe, pytorch-cpu-feedstock 74dd3d46",
        is_confirmed=True,
    ),
    "2.14.1": Tarball(
        sha256="d0ebad9ca4219959b29b7ad9ab6469fe49a3d668f8b5a62dd115f02f3a914447",
        source="one copy of Homebrew's formula, not compared with the file",
        is_confirmed=False,
    ),
}


def complete(config: Config, overrides: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return ``overrides`` (new values by key), completed by overrides that keep zipped keys in step.

    If all new values of a zipped key are among its old ones, its partners are reduced to the same rows.

    Raises UsageError: A zipped key would get another number of values than its partners; the engine refuses that.
    """
    result = {key: tuple(values) for key, values in overrides.items()}
    for group in config.zip_keys:
        for key in group:
            if key in overrides:
                _keep_in_step(config, group, key, result)
    return result


def _keep_in_step(config: Config, group: Sequence[str], key: str, result: dict[str, tuple[str, ...]]) -> None:
    """Complete ``result``, which has new values of ``key``, by the same rows of the keys zipped with it."""
    old = config.variant[key]
    new = result[key]
    if set(new) <= set(old):
        rows = [old.index(value) for value in new]
        for partner in group:
            values = config.variant[partner]
            result.setdefault(partner, tuple(values[row] for row in rows))
        return
    lengths = {len(result.get(partner, config.variant[partner])) for partner in group}
    if len(new) != len(old) and lengths != {len(new)}:
        raise UsageError(
            f"{config.name}: {len(new)} values for '{key}', but it is zipped with {', '.join(group)}",
            f"choose from its values: {', '.join(old)}",
        )


def use_provider(config: Config, provider: ProviderName | None, environ: Mapping[str, str]) -> Config:
    """Return the config with the requested provider; configs of this project's matrix already have theirs.

    If another feedstock is built with other channels than conda-forge's, its channel key is removed: the engine hashes
    that key into package names.

    Raises UsageError: The config is for another provider.
    """
    if provider is None or provider == config.provider:
        mirrored = bool(environ.get("CONDA_CHANNEL_ALIAS", "").strip())
        if not mirrored or config.torch_version:
            return config
        return _without_channels(config)
    if config.has_provider:
        raise UsageError(
            f"{config.name} is for the provider {config.provider}",
            "omit --provider, or choose another config",
        )
    return replace(_without_channels(config), provider=provider)


def _without_channels(config: Config) -> Config:
    variant = dict(config.variant)
    variant.pop(CHANNELS, None)
    groups = []
    for group in config.zip_keys:
        left = tuple(key for key in group if key != CHANNELS)
        if len(left) > 1:
            groups.append(left)
    return replace(config, variant=variant, zip_keys=tuple(groups))


def chosen(config: Config, overrides: Mapping[str, Sequence[str]]) -> Config:
    """Return a config with overrides in its variant; see :func:`complete`."""
    return replace(config, variant={**config.variant, **complete(config, overrides)})


def python_pins(config: Config, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the config's pins for Python versions such as ``3.12`` (none: all), in its order.

    Raises UsageError: The config has no such Python.
    """
    pins = {python_version(pin): pin for pin in config.variant["python"]}
    chosen_versions = set(versions) or set(pins)
    unknown = sorted(chosen_versions - set(pins))
    if unknown:
        raise UsageError(
            f"{config.name} has no Python {', '.join(unknown)}", f"choose from {', '.join(pins)}"
        )
    return tuple(pin for version, pin in pins.items() if version in chosen_versions)


def arch_list(config: Config, text: str) -> str:
    """Return CUDA architectures, in any spelling, as configs spell them: ``9.0;12.0+PTX``.

    Raises UsageError: The config is for CPUs, or an architecture is unknown.
    """
    if config.cuda_version is None:
        raise UsageError(f"{config.name} is for CPUs", "omit --arch-list, or choose a CUDA config")
    archs = cuda_archs(text)
    if not archs:
        raise unknown_arch(text)
    return ";".join(archs)
