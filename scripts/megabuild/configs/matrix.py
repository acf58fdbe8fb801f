"""The matrix: ``conda_build_config.yaml`` turned into one ``.ci_support/<config>.yaml`` per compile of libtorch.

And into what conda-smithy reads beside the recipe, from which it makes configs of its own.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig
from ruamel.yaml import YAML

from groundwork.errors import ConfigError
from groundwork.result import Result
from megabuild.configs import config_file, recipe_config
from megabuild.configs.config import CONFIG_FOLDER, RECIPES, config_name, python_version
from megabuild.configs.config import MATRIX_FILE as MATRIX_FILE
from megabuild.configs.config_file import as_text

PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")
PROVIDERS = ("conda-forge", "debian", "wheel")

_CUDA = "cuda_compiler_version"
#: On ARM the usual machine, which no config's name tells.
_USUAL_ARM = "sbsa"
#: Keys whose every value stays in the config, since the recipe builds a package for each of them.
_BUILT_IN_ONE_CONFIG = ("python", "is_python_min")
#: For each Python, whether it is another than staging's. The engine sorts what it builds by the values of all keys in
#: their alphabetical order: by this one, staging's Python comes first, whose objects are there.
_FURTHER = "further_python"

Values = Mapping[str, Sequence[str]]


def generate(root: Path) -> dict[str, str]:
    """Return the text of every config file, by config name, from the repository's ``conda_build_config.yaml``.

    Raises ConfigError: The matrix cannot be read, has no rows, or two of its rows have the same name.
    """
    configs: dict[str, str] = {}
    for platform in PLATFORMS:
        for provider in PROVIDERS:
            values, zip_keys = _read(root / MATRIX_FILE, platform, provider)
            if not values.get("provider") or not values.get("target_platform"):
                continue  # this provider does not serve this platform
            for row in _rows(values, zip_keys):
                name = _name(row, plain_blas=values["blas_impl"][0])
                if name in configs:
                    raise ConfigError(
                        f"{root / MATRIX_FILE}: two rows of the matrix are named {name}",
                        "make the rows differ in platform, CUDA version, BLAS or provider",
                    )
                configs[name] = _text(row, zip_keys)
    if not configs:
        raise ConfigError(
            f"{root / MATRIX_FILE} has no row for any platform", f"restore it: git checkout -- {MATRIX_FILE}"
        )
    return configs


def beside_recipe(root: Path) -> str:
    """Return the text of the recipe's own `conda_build_config.yaml`; see :mod:`megabuild.configs.recipe_config`."""
    read = {platform: _read(root / MATRIX_FILE, platform, "conda-forge")[0] for platform in PLATFORMS}
    return config_file.stamped(
        recipe_config.text({platform: values for platform, values in read.items() if values.get("provider")})
    )


def _wanted(root: Path) -> dict[str, str]:
    """Return the text of all generated files, by their paths in the repository."""
    wanted = {f"{CONFIG_FOLDER}/{name}.yaml": text for name, text in generate(root).items()}
    if (root / RECIPES / "recipe.yaml").is_file():
        wanted[f"{RECIPES}/{MATRIX_FILE}"] = beside_recipe(root)
    return wanted


def outdated(root: Path) -> dict[str, str]:
    """Return files that differ from the matrix, each ``missing``, ``changed``, ``unknown`` or ``foreign``.

    Configs are named without folder and ending. Unknown is what was generated and now has no row; foreign, another's
    file with a generated one's name. Other files, as conda-smithy's, are nobody's business here.
    """
    return {_name_of(file): state for file, state in _states(root, _wanted(root)).items()}


def _states(root: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    configs = [f"{CONFIG_FOLDER}/{path.name}" for path in (root / CONFIG_FOLDER).glob("*.yaml")]
    states = {name: "unknown" for name in configs if name not in wanted and config_file.is_ours(root / name)}
    for file, text in wanted.items():
        path = root / file
        if not path.exists():
            states[file] = "missing"
        elif not config_file.is_generated(path):
            states[file] = "foreign"
        elif path.read_text(encoding="utf-8") != text:
            states[file] = "changed"
    return dict(sorted(states.items()))


def _name_of(file: str) -> str:
    return Path(file).stem if file.startswith(CONFIG_FOLDER) else file


def write(root: Path) -> dict[str, str]:
    """Bring the generated files in step with the matrix; returns `outdated` of before.

    Raises ConfigError: A file that was not generated has the name of one that is to be written; nothing is.
    """
    wanted = _wanted(root)
    states = _states(root, wanted)
    if foreign := [str(root / file) for file, state in states.items() if state == "foreign"]:
        raise ConfigError(
            f"{', '.join(foreign)}: not generated here, and in the place of what is",
            "move it away, or delete it",
        )
    (root / CONFIG_FOLDER).mkdir(exist_ok=True)
    for file, state in states.items():
        if state == "unknown":
            (root / file).unlink()
        else:
            (root / file).write_text(wanted[file], encoding="utf-8")
    return {_name_of(file): state for file, state in states.items()}


def compared(root: Path, *, mend: bool) -> Result:
    """Compare the generated files with the matrix, which is a failure where they differ; or bring it in step."""
    states = write(root) if mend else outdated(root)
    done = {"unknown": "deleted"} if mend else {}
    lines = [f"{done.get(state, 'wrote' if mend else state):8} {name}" for name, state in states.items()]
    failed = bool(states) and not mend
    if failed:
        lines += [
            f"error: {len(states)} generated files are not in step with conda_build_config.yaml",
            "  run: python scripts/megabuild configs --write",
        ]
    code = ConfigError.exit_code if failed else 0
    return Result(format="configs", document={"outdated": states}, lines=lines, exit_code=code)


def _read(path: Path, platform: str, provider: str) -> tuple[dict[str, list[str]], list[list[str]]]:
    """Let the engine read the matrix, so that selectors mean here what they mean in a build."""
    target = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    try:
        config = VariantConfig.from_conda_build_config(
            path, JinjaConfig(target, variant={"provider": provider})
        )
    except (OSError, RattlerBuildError) as error:
        raise ConfigError(f"cannot read {path} for {platform}: {error}", "correct the file") from error
    values = {key: [as_text(value) for value in config[key]] for key in config.keys()}  # noqa: SIM118
    zip_keys = [list(group) for group in config.zip_keys or []]
    for group in zip_keys:
        lengths = {key: len(values.get(key, [])) for key in group}
        if len(set(lengths.values())) > 1:
            raise ConfigError(
                f"{path}: for {platform} the zipped keys differ in length: {lengths}",
                "give every key of the group one value per row",
            )
    return values, zip_keys


def _rows(values: Values, zip_keys: Sequence[Sequence[str]]) -> list[dict[str, list[str]]]:
    """Take the matrix apart into configs: every key holds one value, but for those built within one config."""
    groups = [list(group) for group in zip_keys]
    zipped = {key for group in groups for key in group}
    groups += [[key] for key in values if key not in zipped]
    rows: list[dict[str, list[str]]] = [{}]
    for group in groups:
        if group[0] in _BUILT_IN_ONE_CONFIG:
            choices = [{key: list(values[key]) for key in group}]
        else:
            choices = [{key: [values[key][index]] for key in group} for index in range(len(values[group[0]]))]
        rows = [row | choice for row in rows for choice in choices]
    return rows


def _name(row: Values, *, plain_blas: str) -> str:
    cuda, provider, blas = (row[key][0] for key in (_CUDA, "provider", "blas_impl"))
    suffix = provider if provider != "conda-forge" else "" if blas == plain_blas else blas
    arm = row.get("arm_variant_type", [_USUAL_ARM])[0]
    suffixes = filter(None, (suffix, "" if arm == _USUAL_ARM else arm))
    return config_name(row["target_platform"][0], None if cuda == "None" else cuda, "_".join(suffixes))


def _text(row: Values, zip_keys: Sequence[Sequence[str]]) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    further = [str(python_version(pin) not in row["torch_python_base"]).lower() for pin in row["python"]]
    document = {
        **{key: list(values) for key, values in row.items()},
        _FURTHER: further,
        "zip_keys": [[*group, *[_FURTHER] * ("python" in group)] for group in zip_keys],
    }
    stream = io.StringIO()
    yaml.dump(dict(sorted(document.items())), stream)
    return config_file.stamped(stream.getvalue())
