"""Another feedstock than this repository: its configs and its audit target, read from its own files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from groundwork import redact
from groundwork.errors import AuditError, UsageError
from groundwork.names import accelerator
from megabuild.configs.config import CONFIG_FOLDER, MATRIX_FILE, RECIPES, Config
from megabuild.configs.platforms import ci_platform
from megabuild.configs.provider_name import ProviderName
from pin_audit.facts import AuditTarget, Build
from pin_audit.meta_yaml import VariantValues, settings
from pin_audit.recipe_lines import read_text
from pin_audit.targets import packages

_NAMES = ("recipe.yaml", "meta.yaml")
_SYSTEMS = ("linux-", "osx-", "win-")
#: Fields of a recipe with pages that may be on the host of upstream's repository.
_PLACES = ("repository", "dev_url", "homepage", "home")
_REVISIONS = ("tag", "git_tag", "rev", "git_rev")
#: Stands for the configs of a project without a recipe.
_NO_CONFIG = Build(
    name="", platform="linux-64", accelerator="cpu", cuda="", blas="", provider=ProviderName.CONDA_FORGE
)
#: A variable; filters that only change the spelling are ignored.
_VARIABLE = re.compile(r"(\w+)(?:\s*\|\s*lower|\.(?:lower|replace)\([^()]*\))?")
_CONTEXT = re.compile(r"^context:\s*\n((?:[ #].*\n|\s*\n)+)", re.MULTILINE)
_PLAIN = re.compile(r"""^  (\w+):\s*["']?([^"'\n#]+?)["']?\s*(?:#.*)?$""", re.MULTILINE)
_EXPRESSION = re.compile(r"\$?\{\{\s*(.*?)\s*\}\}")
_FIELD = re.compile(
    r"""^\s*(?:-\s+)?(?P<key>name|version|url|git|git_url|rev|tag|git_rev|git_tag|repository|dev_url|"""
    r"""homepage|home):\s*["']?(?P<value>\{\{.*?\}\}|[^"'#\n]*[^"'#\s])["']?\s*(?:#.*)?$""",
    re.MULTILINE,
)
_HOSTED = re.compile(
    r"https?://(?P<host>github\.com|gitlab\.[\w.-]+)/(?P<path>[\w.-]+/[\w.-]+?)(?:\.git)?(?:/(?P<rest>.*))?"
)
_TAG = re.compile(
    r"(?:-/)?(?:archive/refs/tags|archive|releases/download)/(?P<tag>[^/]+?)(?:\.tar\.\w+|\.tgz|\.zip|/.*)"
)
_REMEDY = "run: conda-smithy rerender"
_INDEX = re.compile(r"/packages/source/[^/]*/(?P<name>[^/]+)/")


def is_own(root: Path) -> bool:
    """Whether a folder has this repository's matrix of configs; feedstocks have theirs next to the recipe."""
    return (root / MATRIX_FILE).is_file()


def around(folder: Path) -> Path | None:
    """Return the nearest repository with a recipe, at a folder or above it, or None."""
    for parent in (folder, *folder.parents):
        if is_own(parent) or _find_recipe(parent):
            return parent
    return None


def parse_variants(text: str, name: str) -> VariantValues:
    """Parse a config that conda-smithy rendered; raises AuditError."""
    try:
        document = YAML(typ="safe", pure=True).load(text)
        if not isinstance(document, dict):
            raise ValueError("not a mapping")
    except (YAMLError, RecursionError, ValueError) as error:
        raise AuditError(f"{name}: cannot be parsed: {error}", _REMEDY) from error
    values: dict[str, tuple[str, ...]] = {}
    for key, items in document.items():
        if isinstance(items, list) and all(isinstance(item, (str, int, float, bool)) for item in items):
            values[str(key)] = tuple(map(str, items))
    zipped = document.get("zip_keys")
    lists = zipped if isinstance(zipped, list) else []
    groups = [tuple(map(str, keys)) for keys in lists if isinstance(keys, list)]
    return VariantValues(values, tuple(group for group in groups if values.keys() >= set(group)))


def configs(root: Path) -> tuple[Config, ...]:
    """Return a feedstock's rendered configs.

    Raises AuditError: A config cannot be read.
    Raises ConfigError: conda-forge.yml cannot be read.
    """
    configs = []
    for path in sorted((root / CONFIG_FOLDER).glob("*.yaml")):
        variants = parse_variants(read_text(path, root, _REMEDY), str(path))
        platform = variants.first("target_platform")
        if not platform.startswith(_SYSTEMS):
            continue
        cuda: str | None = variants.first("cuda_compiler_version")
        if not re.fullmatch(r"\d+\.\d+", cuda or ""):
            cuda = None
        configs.append(
            Config(
                name=path.stem,
                path=path,
                platform=platform,
                build_platform=ci_platform(root, platform),
                variant=variants.values,
                zip_keys=variants.zip_keys,
                accelerator=accelerator(cuda),
                cuda_version=cuda,
                provider=ProviderName.CONDA_FORGE,
                blas=variants.first("blas_impl"),
                torch_version=variants.first("pytorch"),
                pythons=(),
                docker_image="",
            )
        )
    return tuple(configs)


def target(
    root: Path, configs: tuple[Config, ...], *, upstream: str | None, ref: str | None, version: str | None
) -> AuditTarget:
    """Return the audit target: a feedstock's package, or the project `upstream` at `ref`.

    Raises UsageError: there is neither a recipe nor `upstream` with `ref`.
    """
    if upstream is None:
        recipe = _find_recipe(root)
        text = read_text(recipe, root) if recipe else ""
        if recipe is not None and text:
            return _target_of_recipe(recipe, text, configs, ref=ref, version=version)
    elif upstream and ref:
        return _target_of_project(upstream, ref, version)
    raise UsageError(f"{root}: no recipe", "pass --root DIR with a recipe, or --upstream URL --ref TAG")


def _find_recipe(root: Path) -> Path | None:
    for name in _NAMES:
        path = root / RECIPES / name
        if path.is_file():
            return path
    return None


def _target_of_project(upstream: str, ref: str, version: str | None) -> AuditTarget:
    shown = _without_login(upstream)
    return AuditTarget(
        package=shown.rstrip("/").removesuffix(".git").rpartition("/")[2],
        version=version or _version_in(ref),
        repository=upstream,
        tag=ref,
        wheel="",
        builds=(_NO_CONFIG,),
    )


def _target_of_recipe(
    recipe: Path, text: str, configs: tuple[Config, ...], *, ref: str | None, version: str | None
) -> AuditTarget:
    fields = _fields(text)
    name = fields.get("name", "").lower()
    built = fields.get("version", "")
    upstream = _upstream(fields)
    tag = upstream.tag
    index = "pip"
    for package in packages():
        if package.name == name or f"name: {package.name}\n" in text:
            name = package.name
            index = package.index
            tag = package.tag.format(version=version or built)
            upstream = Upstream(repository=package.repository, wheel=package.wheel)
            break
    else:
        if version is not None and built:
            tag = tag.replace(built, version)
    tag = ref or tag
    return AuditTarget(
        package=name,
        version=version or built or _version_in(tag),
        repository=upstream.repository,
        tag=tag,
        wheel=upstream.wheel,
        index=index,
        recipe=recipe,
        builds=tuple(map(Build.of, configs)) or (_NO_CONFIG,),
    )


def _without_login(address: str) -> str:
    if "://" in address:
        return redact.address(address)
    return address


def _version_in(tag: str) -> str:
    """Return a tag from its first digit on; the whole tag if it has none."""
    return re.sub(r"^\D*", "", tag) or tag


def _fields(text: str) -> dict[str, str]:
    """Return the first plain value of each field of a recipe, with the recipe's own variables substituted."""
    values = settings(text)
    context = _CONTEXT.search(text)
    if context is not None:
        values |= dict(_PLAIN.findall(context[1]))
        text = text[context.end() :]
    for _ in range(2):  # a value may contain other variables
        values = {name: _substitute(value, values) for name, value in values.items()}
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(text):
        value = _substitute(match["value"], values)
        if value:
            fields.setdefault(match["key"], value)
    return {"version": values.get("version", ""), **fields}


def _substitute(text: str, values: Mapping[str, str]) -> str:
    """Replace the expressions in a text; sliced and computed values are unknown, and become nothing."""

    def value_of(expression: re.Match[str]) -> str:
        word = _VARIABLE.fullmatch(expression[1])
        return values.get(word[1], "") if word else ""

    return _EXPRESSION.sub(value_of, text)


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Upstream's repository, the tag of the source, and the distribution's name; each may be empty."""

    repository: str = ""
    tag: str = ""
    wheel: str = ""


def _upstream(fields: Mapping[str, str]) -> Upstream:
    source = fields.get("git") or fields.get("git_url") or fields.get("url", "")
    repository = ""
    for place in (source, *map(fields.get, _PLACES)):
        hosted = _HOSTED.fullmatch(place or "")
        if hosted is not None:
            repository = f"https://{hosted['host']}/{hosted['path']}.git"
            break
    tag = _tag(source, fields)
    indexed = _INDEX.search(urlsplit(source).path)
    if indexed is None:
        return Upstream(repository=repository, tag=tag)
    if repository and not tag:
        tag = f"v{fields.get('version', '')}"
    return Upstream(repository=repository, tag=tag, wheel=indexed["name"])


def _tag(source: str, fields: Mapping[str, str]) -> str:
    """Return the tag in the address of a source archive, or the revision of a git source."""
    hosted = _HOSTED.fullmatch(source)
    archive = _TAG.fullmatch(hosted["rest"] or "") if hosted else None
    if archive is not None:
        return unquote(archive["tag"])
    for key in _REVISIONS:
        if fields.get(key):
            return fields[key]
    return ""
