"""One config: its name, and the content of its file in ``.ci_support``, validated and typed."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork.errors import ConfigError, UsageError
from groundwork.files import everything_below
from groundwork.machine import machine_platform
from groundwork.names import accelerator
from groundwork.result import Result
from groundwork.text import table, to_dict
from megabuild.configs import config_file
from megabuild.configs.config_file import Content, Scalar, cuda_version
from megabuild.configs.platforms import Platforms, choose_build_platform, image_on
from megabuild.configs.provider_name import ProviderName

CONFIG_FOLDER = ".ci_support"
MATRIX_FILE = "conda_build_config.yaml"
#: Folder of PyTorch's recipe; the recipes of official wheels and of extensions are below it.
RECIPES = "recipe"
#: The command that lists this repository's configs.
LIST_CONFIGS = "python3 scripts/megabuild configs"

_HEADS = ("config", "PyTorch", "CUDA", "BLAS", "Pythons", "provider")
_KEYS = "name platform build_platform torch_version accelerator cuda_version blas provider pythons"
#: Keys that each config of the matrix has.
NEEDED_KEYS = (
    "target_platform", "provider", "torch_version", "torch_source", "torch_sha256", "torch_python_base", "blas_impl",
    "cuda_compiler_version", "python",
)  # fmt: skip
_PYTHON = re.compile(r"(?P<version>3\.\d+)(?:\.\*(?: \*_cp(?:ython|\d+(?P<free_threaded>t?)))?)?")
#: A config's name is safe as a file name and on a terminal; hidden files are not configs.
_NAME = re.compile(r"\w[\w.+=@-]*")


@dataclass(frozen=True, kw_only=True)
class Config:
    """One compile of libtorch and all packages built from it; in another feedstock, one config file."""

    name: str
    platform: str  #: conda's platform of the packages, ``linux-64``
    build_platform: str  #: conda's platform of the machine that compiles them
    accelerator: str  #: ``cpu`` or ``cuda130``
    cuda_version: str | None  #: ``13.0``, or None for a CPU build
    blas: str  #: ``mkl``, ``generic`` or ``wheel``; empty in another feedstock's config
    provider: ProviderName  #: of build environments
    torch_version: str  #: empty in another feedstock's config
    path: Path  #: the config's file
    #: every key of the file with its values, all as text, without ``zip_keys``
    variant: Mapping[str, tuple[str, ...]]
    zip_keys: tuple[tuple[str, ...], ...]  #: groups of keys whose values belong together, row by row
    pythons: tuple[str, ...]  #: ``("3.10", ..., "3.14")``; free-threaded ones end in ``t``
    docker_image: str  #: the container image of the machine that compiles; empty if the config has none
    #: keys whose values are booleans or integers in the file: the engine hashes these and text differently
    unquoted: frozenset[str] = frozenset()

    @property
    def platforms(self) -> Platforms:
        """The platforms of its build."""
        return Platforms(build=self.build_platform, target=self.platform)

    @property
    def follows_conda_forge(self) -> bool:
        """Whether its dependencies come from conda-forge's channel, with conda-forge's pins."""
        return self.provider == ProviderName.CONDA_FORGE

    @property
    def has_provider(self) -> bool:
        """Whether its file has a provider, as the files of this project's matrix do."""
        return bool(self.torch_version) and "provider" in self.variant

    def as_written(self, values: Mapping[str, Sequence[str]]) -> dict[str, list[Scalar]]:
        """Return variant values for the engine, as text or, for `unquoted` keys, as booleans and integers."""
        written: dict[str, list[Scalar]] = {}
        for key, several in values.items():
            if key in self.unquoted:
                written[key] = [config_file.scalar(value) for value in several]
            else:
                written[key] = list(several)
        return written


def available(root: Path) -> tuple[str, ...]:
    """Return the names of all configs in the repository or feedstock ``root``, sorted.

    A feedstock without config files has one for this machine, with conda-smithy's name for a single config.
    """
    files = (root / CONFIG_FOLDER).glob("*.yaml")
    names = [path.stem for path in files if _NAME.fullmatch(path.stem)]
    if not names:
        names = [f"{machine_platform().replace('-', '_')}_"]
    return tuple(sorted(names))


def recipe_of(root: Path, config: Config) -> Path:
    """Return the recipe of a config's PyTorch: its provider's own, such as ``recipe/wheel``, or the common one."""
    folder = root.absolute() / RECIPES
    own = folder / config.provider.value / "recipe.yaml"
    if config.torch_version and own.is_file():
        return own
    return folder / "recipe.yaml"


def check_feedstock(root: Path) -> None:
    """Check that a folder is a feedstock with a v1 recipe, and without links to files outside.

    Raises ConfigError: It has no recipe, one in conda-build's format, or a link to a file outside.
    """
    folder = root / RECIPES
    configs = root / CONFIG_FOLDER
    for path in (folder, configs, *everything_below(folder), *everything_below(configs)):
        # an error could quote the target, which only this user may be allowed to read
        inside = Path(os.path.realpath(path)).is_relative_to(root.resolve())
        if path.is_symlink() and not (inside and path.exists()):
            what = f"link to outside the feedstock, or to no file: {os.readlink(path)}"
            raise ConfigError(f"{path}: {what}", "replace the link by a file")
    old = folder / "meta.yaml"
    new = folder / "recipe.yaml"
    if old.is_file() and not new.is_file():
        raise ConfigError(
            f"{old}: a recipe for conda-build; megabuild needs the v1 format, recipe.yaml",
            f"run: conda-recipe-manager convert {old} > {new}",
        )
    if not new.is_file():
        raise ConfigError(
            f"{new}: no such file", "pass --root with a feedstock: the folder that contains recipe/"
        )


def list_command(root: Path) -> str:
    """Return the command that lists the configs of the repository or feedstock ``root``."""
    if (root / "scripts" / "megabuild").is_file():
        return LIST_CONFIGS
    return f"ls {shlex.quote(str(root / CONFIG_FOLDER))}"


def select(names: Iterable[str], pattern: str, *, list_all: str = LIST_CONFIGS) -> tuple[str, ...]:
    """Return the names that match a glob pattern, in their order; a trailing ``.yaml`` of the pattern is ignored.

    ``linux_64*`` is every config for linux-64 and none for linux-aarch64; ``linux_*`` is both.

    Raises UsageError: No config matches: that is a typing error, not an empty run.
    """
    pattern_of_name = pattern.removesuffix(".yaml")
    matching = tuple(name for name in names if fnmatchcase(name, pattern_of_name))
    if not matching:
        raise UsageError(f"'{pattern}': no config matches", f"list all configs: {list_all}")
    return matching


def of_provider(root: Path, names: Iterable[str], provider: ProviderName) -> tuple[str, ...]:
    """Return the configs of a provider, and configs of other feedstocks, which any provider can build.

    Raises UsageError: No config is left.
    """
    left: list[str] = []
    others: set[ProviderName] = set()
    for name in names:
        config = load(root, name)
        if config.provider == provider or not config.has_provider:
            left.append(config.name)
        else:
            others.add(config.provider)
    if not left:
        raise UsageError(
            f"--provider {provider}: no selected config has this provider",
            f"choose from {', '.join(sorted(others))}",
        )
    return tuple(left)


def load(root: Path, name: str) -> Config:
    """Read one config of a repository; a trailing ``.yaml`` of its name is ignored.

    Raises ConfigError: The config is unknown, or its file cannot be read; the message names line and column.
    """
    name = name.removesuffix(".yaml")
    names = available(root)
    if name not in names:
        raise _unknown(name, names, root)
    path = root / CONFIG_FOLDER / f"{name}.yaml"
    recipes = root.absolute() / RECIPES
    if path.is_file():
        content = config_file.read(path, recipe=recipes)
    else:
        path, content = config_file.read_beside(recipes, machine_platform())
    if content.generated:
        _check_needed(path, content)
    platform = _single_value(path, content, "target_platform", config_file.platform_of(root / f"{name}.yaml"))
    if not platform:
        raise ConfigError(f"{path}: no platform in 'target_platform' or in the file's name", content.remedy)
    cuda = cuda_version(_single_value(path, content, "cuda_compiler_version", "None"))
    provider = _provider(path, content)
    build_platform = platform
    if provider is not ProviderName.WHEEL:  # a wheel is unpacked on its own platform
        build_platform = choose_build_platform(root, platform, machine_platform())
    return Config(
        name=name,
        platform=platform,
        build_platform=build_platform,
        accelerator=accelerator(cuda),
        cuda_version=cuda,
        blas=_single_value(path, content, "blas_impl", ""),
        provider=provider,
        torch_version=_single_value(path, content, "torch_version", ""),
        path=path,
        variant=content.variant,
        zip_keys=content.zip_keys,
        pythons=tuple(map(python_version, content.variant.get("python", ()))),
        docker_image=image_on(build_platform, content.variant.get("docker_image", ("",))[0]),
        unquoted=content.unquoted,
    )


def _unknown(name: str, names: Sequence[str], root: Path) -> ConfigError:
    hint = "list all configs: "
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        hint = f"did you mean {' or '.join(close)}? List all: "
    return ConfigError(f"{name}: unknown config", hint + list_command(root))


def _check_needed(path: Path, content: Content) -> None:
    for key in NEEDED_KEYS:
        if not content.variant.get(key):
            raise ConfigError(f"{path}: '{key}' has no value", config_file.REGENERATE)


def _provider(path: Path, content: Content) -> ProviderName:
    """Return a config's provider.

    Raises ConfigError: There is no such provider.
    """
    if not content.variant.get(
        "torch_version"
    ):  # in another feedstock, a key of this name means something else
        return ProviderName.CONDA_FORGE
    name = _single_value(path, content, "provider", ProviderName.CONDA_FORGE)
    try:
        return ProviderName(name)
    except ValueError:
        raise ConfigError(f"{path}: no provider {name}", f"choose from {', '.join(ProviderName)}") from None


def _single_value(path: Path, content: Content, key: str, default: str) -> str:
    values = content.variant.get(key, (default,))
    if not content.generated:  # conda-smithy repeats a key that is zipped with one of several values
        values = tuple(dict.fromkeys(values))[-1:]
    if len(values) != 1:
        raise ConfigError(f"{path}: '{key}' has {len(values)} values instead of one", content.remedy)
    return values[0]


def python_version(pin: str) -> str:
    """Return the short version of a Python pin: ``3.13`` for ``3.13.* *_cp313``, ``3.14t`` for ``3.14.* *_cp314t``.

    Raises ConfigError: The pin has another form.
    """
    match = _PYTHON.fullmatch(pin)
    if match is None:
        raise ConfigError(f"'{pin}': not a pin of a Python version", "write it like '3.13.* *_cp313'")
    return match["version"] + (match["free_threaded"] or "")


def list_configs(root: Path, names: Iterable[str]) -> Result:
    """Return a table of configs, without columns that are empty for all of them."""
    configs = [load(root, name) for name in names]
    rows = []
    documents = []
    for config in configs:
        cuda = config.cuda_version or "CPU"
        pythons = _first_and_last(config.pythons)
        rows.append((config.name, config.torch_version, cuda, config.blas, pythons, config.provider.value))
        documents.append({**to_dict(config, _KEYS), "docker_image": config.docker_image or None})
    columns = [column for column in zip(_HEADS, *rows, strict=True) if any(column[1:])]
    heads, *rows = zip(*columns, strict=True)
    return Result(format="configs", document={"configs": documents}, lines=table(heads, rows))


def _first_and_last(pythons: Sequence[str]) -> str:
    """Return ``3.10-3.14`` for Pythons in order."""
    if len(pythons) < 2:
        return "".join(pythons)
    return f"{pythons[0]}-{pythons[-1]}"
