"""One config: its name, and the content of its file in ``.ci_support``, validated and typed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from groundwork.arch_list import accelerator as accelerator
from groundwork.errors import ConfigError, UsageError
from groundwork.result import Result
from groundwork.text import picked, table

CONFIG_FOLDER = ".ci_support"
#: The folder of PyTorch's recipe, with those of official wheels and of extensions below it.
RECIPES = "recipe"

_HEADS = ("config", "PyTorch", "accelerator", "BLAS", "Pythons", "provider")
_KEYS = "name platform torch_version accelerator cuda_version blas provider pythons"
_NEEDED = ("target_platform", "provider", "torch_version", "blas_impl", "cuda_compiler_version", "python")
_KNOWN = {"blas_impl": ("mkl", "generic", "wheel"), "provider": ("conda-forge", "debian", "wheel")}
_REMEDY = "regenerate it: `python scripts/megabuild configs --write`"
_PYTHON = re.compile(r"(?P<version>3\.\d+)\.\*(?: \*_cp(?:ython|\d+(?P<free_threaded>t?)))?")


@dataclass(frozen=True, kw_only=True)
class Config:
    """One compile of libtorch and everything built from it."""

    name: str
    platform: str  #: conda's platform, ``linux-64``
    accelerator: str  #: ``cpu`` or ``cuda130``
    cuda_version: str | None  #: ``13.0``, or None for a CPU build
    blas: str  #: ``mkl``, ``generic`` or ``wheel``
    provider: str  #: where build environments come from: ``conda-forge``, ``debian`` or ``wheel``
    torch_version: str
    path: Path  #: the config's file
    #: every key of the file with its values, all as text, without ``zip_keys``
    variant: Mapping[str, tuple[str, ...]]
    zip_keys: tuple[tuple[str, ...], ...]  #: groups of keys whose values belong together, row by row
    pythons: tuple[str, ...]  #: ``("3.10", ..., "3.14")``; free-threaded ones end in ``t``
    docker_image: str  #: the container image, or an empty string where the config names none


def config_name(platform: str, cuda_version: str | None, suffix: str = "") -> str:
    """Put a config's name together; a suffix distinguishes it from its siblings: ``generic``, or a provider."""
    parts = [platform.replace("-", "_"), accelerator(cuda_version)]
    return "_".join([*parts, suffix] if suffix else parts)


def available(root: Path) -> tuple[str, ...]:
    """Return the names of all configs in the repository ``root``, sorted."""
    return tuple(sorted(path.stem for path in (root / CONFIG_FOLDER).glob("*.yaml")))


def recipe_of(root: Path, config: Config) -> Path:
    """Return the recipe that makes a config's PyTorch: official wheels, taken apart, have one of their own."""
    folder = root.absolute() / RECIPES
    return (folder / "wheel" if config.provider == "wheel" else folder) / "recipe.yaml"


def select(names: Iterable[str], pattern: str) -> tuple[str, ...]:
    """Return the names of configs that match a glob pattern, in the order given; a trailing ``.yaml`` is taken off it.

    ``linux_64*`` is every config for linux-64 and none for linux-aarch64; ``linux_*`` is both.

    Raises UsageError: When nothing matches: a filter that selects nothing is a typing error, not an empty run.
    """
    known = tuple(names)
    found = tuple(name for name in known if fnmatchcase(name, pattern.removesuffix(".yaml")))
    if not found:
        raise UsageError(
            f"no config matches '{pattern}'", f"the configs are: {', '.join(known) or 'none at all'}"
        )
    return found


def load(root: Path, name: str) -> Config:
    """Read one config of a repository; a trailing ``.yaml`` is taken off its name.

    Raises ConfigError: There is no such config, or its file cannot be read; the message names line and column.
    """
    name = name.removesuffix(".yaml")
    names = available(root)
    if name not in names:
        close = difflib.get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see --list"
        raise ConfigError(f"there is no config '{name}'", hint)
    path = root / CONFIG_FOLDER / f"{name}.yaml"
    variant, zip_keys = _read(path)
    for key in _NEEDED:
        if not variant.get(key):
            raise ConfigError(f"{path}: '{key}' has no value", _REMEDY)
    for key, known in _KNOWN.items():
        if _only(path, variant, key) not in known:
            raise ConfigError(
                f"{path}: '{key}' is '{variant[key][0]}'; it can be {', '.join(known)}", _REMEDY
            )
    cuda = _only(path, variant, "cuda_compiler_version")
    cuda_version = None if cuda == "None" else cuda
    return Config(
        name=name,
        platform=_only(path, variant, "target_platform"),
        accelerator=accelerator(cuda_version),
        cuda_version=cuda_version,
        blas=_only(path, variant, "blas_impl"),
        provider=_only(path, variant, "provider"),
        torch_version=_only(path, variant, "torch_version"),
        path=path,
        variant=variant,
        zip_keys=zip_keys,
        pythons=tuple(python_version(pin) for pin in variant["python"]),
        docker_image=variant.get("docker_image", ("",))[0],
    )


def python_version(pin: str) -> str:
    """Return the short version of a Python pin: ``3.13`` for ``3.13.* *_cp313``, ``3.14t`` for ``3.14.* *_cp314t``."""
    match = _PYTHON.fullmatch(pin)
    if match is None:
        raise ConfigError(f"'{pin}' is not a pin of a Python version", "write it like '3.13.* *_cp313'")
    return match["version"] + (match["free_threaded"] or "")


def _read(path: Path) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{where}: {error.problem or error.context}", _REMEDY) from error
    except (OSError, UnicodeError, YAMLError) as error:
        raise ConfigError(f"cannot read {path}: {error}", _REMEDY) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: not a mapping of keys to lists", _REMEDY)
    zip_keys = document.pop("zip_keys", None) or []
    broken = [key for key, values in document.items() if not isinstance(values, list)]
    if broken or not all(isinstance(group, list) for group in zip_keys):
        raise ConfigError(f"{path}: '{(broken or ['zip_keys'])[0]}' is not a list", _REMEDY)
    # no text of theirs: a few aliases within one another would fill the memory
    nested = [
        key for key, values in document.items() if any(isinstance(value, (list, dict)) for value in values)
    ]
    if nested:
        raise ConfigError(f"{path}: '{nested[0]}' holds a list in a list", _REMEDY)
    variant = {str(key): tuple(as_text(value) for value in values) for key, values in document.items()}
    return variant, tuple(tuple(str(key) for key in group) for group in zip_keys)


def as_text(value: object) -> str:
    """Return a variant's value as the engine spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _only(path: Path, variant: Mapping[str, Sequence[str]], key: str) -> str:
    if len(variant[key]) != 1:
        raise ConfigError(
            f"{path}: '{key}' has {len(variant[key])} values, a config needs exactly one", _REMEDY
        )
    return variant[key][0]


def list_configs(root: Path, pattern: str | None) -> Result:
    """Return the configs of a repository whose names match a glob pattern."""
    names = select(available(root), pattern) if pattern else available(root)
    found = [load(root, name) for name in names]
    return Result(
        format="configs",
        document={
            "configs": [{**picked(one, _KEYS), "docker_image": one.docker_image or None} for one in found]
        },
        lines=table(_HEADS, [_row(config) for config in found]),
    )


def _row(config: Config) -> tuple[str, ...]:
    """Return a config's row of the table."""
    cuda = f"CUDA {config.cuda_version}" if config.cuda_version else "CPU"
    pythons = f"{config.pythons[0]}-{config.pythons[-1]}"
    return (config.name, config.torch_version, cuda, config.blas, pythons, config.provider)
