"""Generates one ``.ci_support/<config>.yaml`` per compile of libtorch from the matrix, ``conda_build_config.yaml``.

It also generates ``recipe/conda_build_config.yaml``, which conda-smithy and rattler-build read next to the recipe. That
file has this recipe's own keys only: it must not freeze conda-forge's pins, and our zip_keys differ from theirs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import chain, product
from pathlib import Path

from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from groundwork.names import accelerator
from groundwork.result import Result
from groundwork.text import counted
from megabuild.configs import config_file
from megabuild.configs.arch_lists import find_misplaced
from megabuild.configs.config import CONFIG_FOLDER, MATRIX_FILE, NEEDED_KEYS, RECIPES, python_version
from megabuild.configs.config_file import Content, cuda_version
from megabuild.configs.provider_name import ProviderName

PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")

_CUDA = "cuda_compiler_version"
_ARCHS = "torch_cuda_arch_list"
_ARM = "arm_variant_type"
#: The usual ARM machine, which configs do not have in their names.
_USUAL_ARM = "sbsa"
#: The Pythons that PyTorch's wheels support, as in their metadata. Config files lack this key.
_REQUIRES_PYTHON = "torch_requires_python"
#: For each Python, whether it differs from staging's. The engine sorts packages by the values of all keys in the keys'
#: alphabetical order. This key puts staging's Python first, whose objects already exist.
_FURTHER = "further_python"
#: Keys that conda-forge does not pin, and one whose pin there is too old for PyTorch.
_OWN = re.compile(
    r"torch_.*|triton_version|pyg_.*|blas_impl|provider|github_actions_labels|MACOSX_SDK_VERSION"
)
_SELECTORS = {
    "linux": {"linux-64", "linux-aarch64"},
    "osx": {"osx-64", "osx-arm64"},
    "x86_64": {"linux-64", "osx-64"},
    "linux and x86_64": {"linux-64"},
    "linux and aarch64": {"linux-aarch64"},
    "osx and x86_64": {"osx-64"},
    "osx and arm64": {"osx-arm64"},
}
#: Keys that a provider lacks on purpose, by provider.
_LEFT_OUT = {ProviderName.WHEEL: {"torch_upstream_tests"}}  # an official wheel has no tests to build
_NO_TEXT = re.compile(r"[-+.\d]+|true|false|null|~|", re.IGNORECASE)

Values = Mapping[str, Sequence[str]]


class FileState(str, Enum):
    """How a generated file differs from the matrix."""

    MISSING = "missing"
    CHANGED = "changed"
    UNKNOWN = "unknown"  #: a generated file without a row
    FOREIGN = "foreign"  #: a file by another author with the name of a generated file


def generate(root: Path) -> dict[str, str]:
    """Return the text of every config file, by config name, from the repository's ``conda_build_config.yaml``.

    Raises ConfigError: The matrix cannot be read, has no rows, or two of its rows have the same name.
    """
    path = root / MATRIX_FILE
    configs: dict[str, str] = {}
    for platform in PLATFORMS:
        served = _read_served(path, platform)
        _check_keys(path, platform, served)
        for content in served.values():
            plain_blas = content.variant["blas_impl"][0]
            for row in _rows(content):
                name = _name(row, plain_blas=plain_blas)
                if name in configs:
                    raise ConfigError(
                        f"{path}: two rows have the name {name}",
                        "make the rows differ in platform, CUDA version, BLAS or provider",
                    )
                configs[name] = _config_text(row, content.zip_keys)
    if not configs:
        raise ConfigError(f"{path}: no row for any platform", f"run: git checkout -- {MATRIX_FILE}")
    return configs


def _texts(root: Path) -> dict[str, str]:
    """Return the text of all generated files, by their paths in the repository."""
    texts = {f"{CONFIG_FOLDER}/{name}.yaml": text for name, text in generate(root).items()}
    if (root / RECIPES / "recipe.yaml").is_file():
        texts[f"{RECIPES}/{MATRIX_FILE}"] = _recipe_text(root)
    return texts


def outdated(root: Path) -> dict[str, FileState]:
    """Return the files that differ from the matrix; files such as conda-smithy's are ignored."""
    return _compare(root, _texts(root))


def _compare(root: Path, texts: Mapping[str, str]) -> dict[str, FileState]:
    states: dict[str, FileState] = {}
    for path in (root / CONFIG_FOLDER).glob("*.yaml"):
        file = f"{CONFIG_FOLDER}/{path.name}"
        if file not in texts and config_file.is_ours(path):
            states[file] = FileState.UNKNOWN
    for file, text in texts.items():
        path = root / file
        if not path.exists():
            states[file] = FileState.MISSING
        elif not config_file.is_generated(path):
            states[file] = FileState.FOREIGN
        elif path.read_bytes() != text.encode():
            states[file] = FileState.CHANGED
    return dict(sorted(states.items()))


def write(root: Path) -> dict[str, FileState]:
    """Update the generated files from the matrix; return :func:`outdated` of before.

    Raises ConfigError: A foreign file has the name of a generated one; no file is written.
    """
    texts = _texts(root)
    states = _compare(root, texts)
    foreign = [str(root / file) for file, state in states.items() if state is FileState.FOREIGN]
    if foreign:
        raise ConfigError(
            f"{', '.join(foreign)}: named like a generated file, but not generated",
            "rename or delete the file",
        )
    (root / CONFIG_FOLDER).mkdir(exist_ok=True)
    for file, state in states.items():
        if state is FileState.UNKNOWN:
            (root / file).unlink()
        else:
            (root / file).write_text(texts[file], encoding="utf-8")
    return states


def compared(root: Path, *, mend: bool) -> Result:
    """Compare the generated files with the matrix, and fail if they differ; with ``mend``, update them."""
    states = write(root) if mend else outdated(root)
    lines: list[str] = []
    for name, state in states.items():
        verb = state.value
        if mend:
            verb = "deleted" if state is FileState.UNKNOWN else "wrote"
        lines.append(f"{verb:8} {name}")
    code = 0
    if states and not mend:
        code = ConfigError.exit_code
        lines += [
            f"error: {MATRIX_FILE}: {counted(len(states), 'generated file')} outdated",
            "hint: run: python3 scripts/megabuild configs --write",
        ]
    return Result(format="configs", document={"outdated": states}, lines=lines, exit_code=code)


def _read_served(path: Path, platform: str) -> dict[ProviderName, Content]:
    """Return the columns of each provider that has rows for a platform."""
    served: dict[ProviderName, Content] = {}
    for provider in ProviderName:
        content = _read(path, platform, provider)
        if _is_served(content.variant):
            served[provider] = content
    return served


def _read(path: Path, platform: str, provider: ProviderName) -> Content:
    """Read the matrix's columns for a platform and provider.

    Raises ConfigError: It has rows there, which lack values or have one in another row's place.
    """
    content = config_file.read_by_engine([path], platform, {"provider": provider.value})
    values = content.variant
    if not _is_served(values):
        return content
    zipped = {key: values.get(key, ()) for key in chain.from_iterable(content.zip_keys)}
    remedy = f"give every key a value per row for {platform} and provider {provider}"
    config_file.check_zips(path, zipped, content.zip_keys, remedy)
    missing = [key for key in NEEDED_KEYS if not values.get(key)]
    if missing:
        raise _lacks(path, missing, platform, provider)
    misplaced = find_misplaced(values)
    if misplaced:
        raise ConfigError(
            f"{path}: {_ARCHS} for {platform} and provider {provider}: {'; '.join(misplaced)}",
            f"move each list of {_ARCHS} to the position that its CUDA version has in {_CUDA}",
        )
    return content


def _lacks(path: Path, keys: Sequence[str], platform: str, provider: ProviderName) -> ConfigError:
    return ConfigError(
        f"{path}: no value of {', '.join(keys)} for {platform} and provider {provider}",
        f"give each of these keys a row with the selector of provider {provider}",
    )


def _is_served(values: Values) -> bool:
    """Return whether a provider has rows for a platform."""
    return bool(values.get("provider") and values.get("target_platform"))


def _check_keys(path: Path, platform: str, served: Mapping[ProviderName, Content]) -> None:
    """Check that no provider lacks a key that all other providers of the platform have.

    Such a config can be written, but a plan or recipe that reads the key fails.

    Raises ConfigError: A provider lacks keys.
    """
    settled: dict[ProviderName, set[str]] = {}
    for provider, content in served.items():
        keys = {key for key, values in content.variant.items() if values}
        settled[provider] = keys | _LEFT_OUT.get(provider, set())
    for provider, keys in settled.items():
        others = [settled[other] for other in settled if other != provider]
        if len(others) < 2:  # the only other one may have keys of its own
            continue
        missing = set.intersection(*others) - keys
        if missing:
            raise _lacks(path, sorted(missing), platform, provider)


def _rows(content: Content) -> list[dict[str, list[str]]]:
    """Split the matrix into configs: one value per key, except for Pythons, which one config builds."""
    zipped = set(chain.from_iterable(content.zip_keys))
    single = [(key,) for key in content.variant if key not in zipped]
    rows: list[dict[str, list[str]]] = [{}]
    for group in (*content.zip_keys, *single):
        choices = _choices(content.variant, group)
        rows = [row | choice for row, choice in product(rows, choices)]
    return rows


def _choices(values: Values, group: Sequence[str]) -> list[dict[str, list[str]]]:
    """Return the values of keys that belong together, row by row."""
    if group == ("python",):  # the recipe builds a package for each
        return [{"python": list(values["python"])}]
    choices: list[dict[str, list[str]]] = []
    for position in range(len(values[group[0]])):
        choices.append({key: [values[key][position]] for key in group})
    return choices


def _name(row: Values, *, plain_blas: str) -> str:
    provider = row["provider"][0]
    blas = row["blas_impl"][0]
    arm = row.get(_ARM, [_USUAL_ARM])[0]
    parts = [row["target_platform"][0].replace("-", "_"), accelerator(cuda_version(row[_CUDA][0]))]
    if provider != ProviderName.CONDA_FORGE:
        parts.append(provider)
    elif blas != plain_blas:
        parts.append(blas)
    if arm != _USUAL_ARM:
        parts.append(arm)
    return "_".join(parts)


def _config_text(row: Mapping[str, list[str]], zip_keys: Sequence[Sequence[str]]) -> str:
    allowed = SpecifierSet(row.get(_REQUIRES_PYTHON, [""])[0])
    pythons: list[str] = []
    further: list[str] = []
    for pin in row["python"]:
        version = python_version(pin)
        if allowed.contains(f"{version.removesuffix('t')}.99"):  # the newest patch release decides
            pythons.append(pin)
            is_further = version not in row["torch_python_base"]
            further.append(str(is_further).lower())
    groups = [["python", "is_python_min", _FURTHER]]
    for group in zip_keys:
        groups.append([key for key in group if key != _REQUIRES_PYTHON])
    document: dict[str, object] = dict(row)
    document.pop(_REQUIRES_PYTHON, None)
    document["python"] = pythons
    document["is_python_min"] = ["true", *["false"] * (len(pythons) - 1)]
    document[_FURTHER] = further
    document["zip_keys"] = groups
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    stream = io.StringIO()
    yaml.dump(dict(sorted(document.items())), stream)
    return config_file.stamped(stream.getvalue())


def _recipe_text(root: Path) -> str:
    """Return the text of the recipe's own ``conda_build_config.yaml``."""
    own: dict[str, dict[str, list[str]]] = {}
    for platform in PLATFORMS:
        values = _read(root / MATRIX_FILE, platform, ProviderName.CONDA_FORGE).variant
        if values.get("provider"):
            own[platform] = _own_keys(values)
    everywhere = set(own)
    keys = set(chain.from_iterable(own.values()))
    lines: list[str] = []
    for key in sorted(keys, key=str.casefold):
        having = {platform: of_platform[key] for platform, of_platform in own.items() if key in of_platform}
        lines.append(_selected(f"{key}:", set(having), everywhere))
        for value in dict.fromkeys(chain.from_iterable(having.values())):
            platforms = {platform for platform, several in having.items() if value in several}
            lines.append(_selected(f"  - {_quoted(value)}", platforms, everywhere))
    return config_file.stamped("\n".join(lines) + "\n")


def _quoted(value: str) -> str:
    """Quote a value that YAML would not read as text, so that all files have the same value."""
    if _NO_TEXT.fullmatch(value):
        return f'"{value}"'
    return value


def _own_keys(values: Values) -> dict[str, list[str]]:
    """Return the recipe's own keys for a platform.

    The matrix zips the arch list with CUDA. Here each version of CUDA, and Tegra, has its own key, among which the
    recipe chooses: a list zipped with conda-forge's keys would need their length.
    """
    own: dict[str, list[str]] = {}
    for key, several in values.items():
        if _OWN.fullmatch(key) and key != _ARCHS:
            own[key] = list(dict.fromkeys(several))
    versions = values.get(_CUDA, ())
    lists = values.get(_ARCHS, ())
    machines = values.get(_ARM, ()) or (_USUAL_ARM,) * len(versions)
    if len(versions) != len(lists):  # on macOS
        return own
    for version, machine, archs in zip(versions, machines, lists, strict=True):
        cuda = cuda_version(version)
        if cuda is not None:
            suffix = accelerator(cuda) if machine == _USUAL_ARM else machine
            own[f"{_ARCHS}_{suffix}"] = [archs]
    return own


def _selected(words: str, platforms: set[str], everywhere: set[str]) -> str:
    """Return a line with the selector of its platforms."""
    if platforms == everywhere:
        return words
    for selector, meant in _SELECTORS.items():
        if meant & everywhere == platforms:
            return f"{words}  # [{selector}]"
    single = []
    for selector, meant in _SELECTORS.items():
        if " " in selector and meant <= platforms:
            single.append(f"({selector})")
    return f"{words}  # [{' or '.join(single)}]"
