"""The configs to advise on a machine that reaches no conda channel, or has no container engine."""

from __future__ import annotations

import functools
from pathlib import Path

from groundwork.errors import IsolationError, MegabuildError, ProviderError
from megabuild.configs.config import Config, load
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.plan.options import Options
from megabuild.providers.command import each
from megabuild.providers.debian import apt
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import machine_platform
from megabuild.providers.local import compilers, interpreters
from megabuild.providers.pypi import lock, torch

_AT_ONCE = 4


def usable_here(options: Options) -> tuple[str, ...]:
    """Return, as words for the command line, what a plan would accept here in place of this config."""
    config = options.config
    folder = config.path.parent
    compiled = _compiles_here(config.pythons, options.cache)
    rehearses = compiled and "torch_source" in config.variant and config.platform == machine_platform()
    own = (f"{config.name} --rehearse",) if rehearses else ()
    return own + (_others(folder, options.cache) if compiled else ())


def explain(error: ProviderError, options: Options, isolation: IsolationError | None) -> ProviderError:
    """Return the error of a channel that does not answer with all that is missing, and what can be built without."""
    message, remedy = error.message, error.remedy
    if isolation is not None:
        message += f"; {isolation.message}"
        remedy += " and install or start docker or podman"
    works = usable_here(options)
    if works:
        remedy += f", or use what works here: {', '.join(works)}"
    elif "torch_source" not in options.config.variant:  # whether pip's indexes have all of it was not asked
        remedy += f", or try {options.config.name} --provider local"
    return ProviderError(message, f"{remedy}.")


def _compiles_here(pythons: tuple[str, ...], cache: Path) -> bool:
    """Tell whether this machine has a compiler, one of the Pythons with its headers, and build tools from an index."""
    try:
        compilers.probe()
        *_, newest = interpreters.some_of(pythons, lambda _: None).values()
        lock.resolve(["cmake", "ninja"], newest, cache / "wheels" / "locks")
    except ProviderError:
        return False
    return True


@functools.cache
def _others(folder: Path, cache: Path) -> tuple[str, ...]:
    """Return those of a folder's configs for this machine that need no channel and lack nothing here."""
    machine = machine_platform().replace("-", "_")
    paths = (*folder.glob(f"{machine}_*_wheel.yaml"), *folder.glob(f"{machine}_*_debian.yaml"))
    configs = [load(folder.parent, path.stem) for path in sorted(paths)]
    usable = each(lambda config: _lacks_nothing(config, cache), configs, _AT_ONCE)
    return tuple(config.name for config, fits in zip(configs, usable, strict=True) if fits)


def _lacks_nothing(config: Config, cache: Path) -> bool:
    try:
        if config.provider == "debian":
            apt.debian_lines(debian_root.SUITE)
            Bubblewrap(root=Path("/")).check()
            return not debian_root.install_command()
        pythons = interpreters.some_of(config.pythons, lambda _: None)
        newest = [python for python in pythons if not python.endswith("t")][-1:]
        torch.find(config, {python: pythons[python] for python in newest}, cache / "wheels")
    except MegabuildError:
        return False
    return True
