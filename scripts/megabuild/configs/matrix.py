"""Generates one ``.ci_support/<config>.yaml`` per compile of libtorch from the matrix, ``conda_build_config.yaml``.

It also generates ``recipe/conda_build_config.yaml``, which conda-smithy and rattler-build read next to the recipe. That
file has this recipe's own keys only: it must not freeze conda-forge's pins, and our zip_keys differ from theirs.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from groundwork.names import accelerator
from groundwork.result import Result
from groundwork.text import counted
from megabuild.configs import config_file
from megabuild.configs.arch_lists import find_misplaced
from megabuild.configs.config import (
    CONFIG_FOLDER,
    MATRIX_FILE,
    NEEDED_KEYS,
    RECIPES,
    python_version,
)
from megabuild.configs.provider_name import ProviderName

PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")

_CUDA, _ARCHS = "cuda_compiler_version", "torch_cuda_arch_list"
#: The usual ARM machine, which configs do not have in their names.
_USUAL_ARM = "sbsa"
#: The Pythons that PyTorch's wheels support, as in their metadata. Config files lack this key.
_REQUIRES_PYTHON = "torch_requires_python"
#: For each Python, whether it differs from staging's. The engine sorts packages by the values of all keys in the keys'
#: alphabetical order. This key puts staging's Python first, whose objects already exist.
_FURTHER = "further_python"
#: Keys that conda-forge does not pin, and one whose pin there is too old for PyTorch.
_OWN = re.compile(r"torch_.*|triton_version|pyg_.*|blas_impl|provider|MACOSX_SDK_VERSION")
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


def generate(root: Path) -> dict[str, str]:
    """Return the text of every config file, by config name, from the repository's ``conda_build_config.yaml``.

    Raises ConfigError: The matrix cannot be read, has no rows, or two of its rows have the same name.
    """
    configs: dict[str, str] = {}
    for platform in PLATFORMS:
        read = {provider: _read(root / MATRIX_FILE, platform, provider) for provider in ProviderName}
        served = {provider: found for provider, found in read.items() if _is_served(found[0])}
        _check_keys(root / MATRIX_FILE, platform, {name: values for name, (values, _) in served.items()})
        for values, zip_keys in served.values():
            for row in _rows(values, zip_keys):
                name = _name(row, plain_blas=values["blas_impl"][0])
                if name in configs:
                    raise ConfigError(
                        f"{root / MATRIX_FILE}: two rows have the name {name}",
                        "make the rows differ in platform, CUDA version, BLAS or provider",
                    )
                configs[name] = _config_text(row, zip_keys)
    if not configs:
        raise ConfigError(
            f"{root / MATRIX_FILE}: no row for any platform", f"run: git checkout -- {MATRIX_FILE}"
        )
    return configs


def _texts(root: Path) -> dict[str, str]:
    """Return the text of all generated files, by their paths in the repository."""
    texts = {f"{CONFIG_FOLDER}/{name}.yaml": text for name, text in generate(root).items()}
    if (root / RECIPES / "recipe.yaml").is_file():
        texts[f"{RECIPES}/{MATRIX_FILE}"] = _recipe_text(root)
    return texts


def outdated(root: Path, texts: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return files that differ from the matrix, each ``missing``, ``changed``, ``unknown`` or ``foreign``.

    Unknown: a generated file without a row. Foreign: a file by another author with the name of a generated file. Other
    files, such as conda-smithy's, are ignored. ``texts``: those of the generated files, if they are known.
    """
    texts = _texts(root) if texts is None else texts
    paths = [f"{CONFIG_FOLDER}/{path.name}" for path in (root / CONFIG_FOLDER).glob("*.yaml")]
    states = {name: "unknown" for name in paths if name not in texts and config_file.is_ours(root / name)}
    for file, text in texts.items():
        path = root / file
        if not path.exists():
            states[file] = "missing"
        elif not config_file.is_generated(path):
            states[file] = "foreign"
        elif path.read_bytes() != text.encode():
            states[file] = "changed"
    return dict(sorted(states.items()))


def write(root: Path) -> dict[str, str]:
    """Update the generated files from the matrix; return :func:`outdated` of before.

    Raises ConfigError: A foreign file has the name of a generated one; no file is written.
    """
    texts = _texts(root)
    states = outdated(root, texts)
    if foreign := [str(root / file) for file, state in states.items() if state == "foreign"]:
        raise ConfigError(
            f"{', '.join(foreign)}: named like a generated file, but not generated",
            "rename or delete the file",
        )
    (root / CONFIG_FOLDER).mkdir(exist_ok=True)
    for file, state in states.items():
        if state == "unknown":
            (root / file).unlink()
        else:
            (root / file).write_text(texts[file], encoding="utf-8")
    return states


def compared(root: Path, *, mend: bool) -> Result:
    """Compare the generated files with the matrix, and fail if they differ; with ``mend``, update them."""
    states = write(root) if mend else outdated(root)
    verbs = {"unknown": "deleted"} if mend else {}
    lines = [f"{verbs.get(state, 'wrote' if mend else state):8} {name}" for name, state in states.items()]
    failed = bool(states) and not mend
    if failed:
        lines += [
            f"error: {MATRIX_FILE}: {counted(len(states), 'generated file')} outdated",
            "hint: run: python3 scripts/megabuild configs --write",
        ]
    code = ConfigError.exit_code if failed else 0
    return Result(format="configs", document={"outdated": states}, lines=lines, exit_code=code)


def _read(path: Path, platform: str, provider: ProviderName) -> tuple[Values, Sequence[Sequence[str]]]:
    content = config_file.read_by_engine([path], platform, {"provider": provider.value})
    values, zip_keys = content.variant, content.zip_keys
    if _is_served(values):
        zipped = {key: values.get(key, ()) for group in zip_keys for key in group}
        remedy = f"give every key a value per row for {platform} and provider {provider}"
        config_file.check_zips(path, zipped, zip_keys, remedy)
        if missing := [key for key in NEEDED_KEYS if not values.get(key)]:
            raise ConfigError(
                f"{path}: no value of {', '.join(missing)} for {platform} and provider {provider}",
                f"give each of these keys a row with the selector of provider {provider}",
            )
        if misplaced := find_misplaced(values):
            raise ConfigError(
                f"{path}: {_ARCHS} for {platform} and provider {provider}: {'; '.join(misplaced)}",
                f"move each list of {_ARCHS} to the position that its CUDA version has in {_CUDA}",
            )
    return values, zip_keys


def _is_served(values: Values) -> bool:
    """Return whether a provider has rows for a platform."""
    return bool(values.get("provider") and values.get("target_platform"))


def _check_keys(path: Path, platform: str, read: Mapping[ProviderName, Values]) -> None:
    """Check that no provider lacks a key that all other providers of the platform have.

    Such a config can be written, but a plan or recipe that reads the key fails.

    Raises ConfigError: A provider lacks keys.
    """
    settled = {
        provider: {key for key in values if values[key]} | _LEFT_OUT.get(provider, set())
        for provider, values in read.items()
    }
    for provider, keys in settled.items():
        others = [settled[other] for other in settled if other != provider]
        if len(others) < 2:  # the only other one may have keys of its own
            continue
        if missing := set.intersection(*others) - keys:
            raise ConfigError(
                f"{path}: no value of {', '.join(sorted(missing))} for {platform} and provider {provider}",
                f"give each of these keys a row with the selector of provider {provider}",
            )


def _rows(values: Values, zip_keys: Sequence[Sequence[str]]) -> list[dict[str, list[str]]]:
    """Split the matrix into configs: one value per key, except for Pythons, which one config builds."""
    zipped = {key for group in zip_keys for key in group}
    rows: list[dict[str, list[str]]] = [{}]
    for group in [*zip_keys, *([key] for key in values if key not in zipped)]:
        if group == ["python"]:  # the recipe builds a package for each
            choices = [{"python": list(values["python"])}]
        else:
            choices = [{key: [values[key][index]] for key in group} for index in range(len(values[group[0]]))]
        rows = [row | choice for row in rows for choice in choices]
    return rows


def _name(row: Values, *, plain_blas: str) -> str:
    cuda, provider, blas = (row[key][0] for key in (_CUDA, "provider", "blas_impl"))
    suffix = provider if provider != ProviderName.CONDA_FORGE else "" if blas == plain_blas else blas
    arm = row.get("arm_variant_type", [_USUAL_ARM])[0]
    platform = row["target_platform"][0].replace("-", "_")
    parts = (
        platform,
        accelerator(None if cuda == "None" else cuda),
        suffix,
        "" if arm == _USUAL_ARM else arm,
    )
    return "_".join(filter(None, parts))


def _config_text(row: Values, zip_keys: Sequence[Sequence[str]]) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    allowed = SpecifierSet(row.get(_REQUIRES_PYTHON, [""])[0])
    versions = {pin: python_version(pin) for pin in row["python"]}
    # .99: the newest patch release decides
    pythons = [pin for pin in versions if allowed.contains(f"{versions[pin].removesuffix('t')}.99")]
    groups = [[key for key in group if key != _REQUIRES_PYTHON] for group in zip_keys]
    document = {
        **{key: list(values) for key, values in row.items() if key != _REQUIRES_PYTHON},
        "python": pythons,
        "is_python_min": ["true", *["false"] * (len(pythons) - 1)],
        _FURTHER: [str(versions[pin] not in row["torch_python_base"]).lower() for pin in pythons],
        "zip_keys": [["python", "is_python_min", _FURTHER], *groups],
    }
    stream = io.StringIO()
    yaml.dump(dict(sorted(document.items())), stream)
    return config_file.stamped(stream.getvalue())


def _recipe_text(root: Path) -> str:
    """Return the text of the recipe's own ``conda_build_config.yaml``."""
    read = {
        platform: _read(root / MATRIX_FILE, platform, ProviderName.CONDA_FORGE)[0] for platform in PLATFORMS
    }
    own = {platform: _own_keys(values) for platform, values in read.items() if values.get("provider")}
    lines = []
    for key in sorted({key for values in own.values() for key in values}, key=str.casefold):
        having = {platform for platform in own if key in own[platform]}
        lines.append(_selected(f"{key}:", having, set(own)))
        for value in dict.fromkeys(value for platform in own for value in own[platform].get(key, ())):
            # quoted if YAML would not read it as text, so that all files have the same value
            quoted = f'"{value}"' if _NO_TEXT.fullmatch(value) else value
            holds = {platform for platform in having if value in own[platform][key]}
            lines.append(_selected(f"  - {quoted}", holds, set(own)))
    return config_file.stamped("\n".join(lines) + "\n")


def _own_keys(values: Values) -> dict[str, Sequence[str]]:
    """Return the recipe's own keys for a platform.

    The matrix zips the arch list with CUDA. Here each version of CUDA, and Tegra, has its own key, among which the
    recipe chooses: a list zipped with conda-forge's keys would need their length.
    """
    own: dict[str, Sequence[str]] = {
        key: list(dict.fromkeys(some))
        for key, some in values.items()
        if _OWN.fullmatch(key) and key != _ARCHS
    }
    versions, archs = values.get(_CUDA, ()), values.get(_ARCHS, ())
    arms = values.get("arm_variant_type", ()) or (_USUAL_ARM,) * len(versions)
    if len(versions) == len(archs):  # not on macOS
        for version, arm, row in zip(versions, arms, archs, strict=True):
            if version != "None":
                own[f"{_ARCHS}_{accelerator(version) if arm == _USUAL_ARM else arm}"] = [row]
    return own


def _selected(words: str, platforms: set[str], everywhere: set[str]) -> str:
    """Return a line with the selector of its platforms."""
    if platforms == everywhere:
        return words
    for selector, meant in _SELECTORS.items():
        if meant & everywhere == platforms:
            return f"{words}  # [{selector}]"
    single = [f"({name})" for name, meant in _SELECTORS.items() if " " in name and meant <= platforms]
    return f"{words}  # [{' or '.join(single)}]"
