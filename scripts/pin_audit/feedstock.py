"""Another feedstock than this repository: its configs and its audit target, read from its own files."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from groundwork import redact
from groundwork.errors import AuditError, UsageError
from groundwork.names import accelerator
from megabuild.configs.config import CONFIG_FOLDER, MATRIX_FILE, RECIPES, Config
from megabuild.configs.provider_name import ProviderName
from pin_audit.facts import AuditTarget, Build
from pin_audit.meta_yaml import settings
from pin_audit.recipe_lines import read_text
from pin_audit.targets import packages

_V1, _V0 = "recipe.yaml", "meta.yaml"
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
        if is_own(parent) or any((parent / RECIPES / name).is_file() for name in (_V1, _V0)):
            return parent
    return None


def variants(text: str, name: str) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    """Parse a config that conda-smithy rendered: values by key, and the groups of zipped keys; raises AuditError."""
    try:
        document = YAML(typ="safe", pure=True).load(text)
        if not isinstance(document, dict):
            raise ValueError("not a mapping")
    except (YAMLError, RecursionError, ValueError) as error:
        raise AuditError(f"{name}: cannot be parsed: {error}", _REMEDY) from error
    values = {
        str(key): tuple(map(str, items))
        for key, items in document.items()
        if isinstance(items, list) and all(isinstance(item, (str, int, float, bool)) for item in items)
    }
    zipped = document.get("zip_keys")
    lists = [group for group in (zipped if isinstance(zipped, list) else ()) if isinstance(group, list)]
    groups = [tuple(map(str, group)) for group in lists]
    return values, tuple(group for group in groups if {*group} <= values.keys())


def configs(root: Path) -> tuple[Config, ...]:
    """Return a feedstock's rendered configs; raises AuditError if one cannot be read."""
    configs = []
    for path in sorted((root / CONFIG_FOLDER).glob("*.yaml")):
        variant, zip_keys = variants(read_text(path, root, _REMEDY), str(path))
        platform = variant.get("target_platform", ("",))[0]
        if platform.startswith(("linux-", "osx-", "win-")):
            cuda = variant.get("cuda_compiler_version", ("None",))[0]
            version = cuda if re.fullmatch(r"\d+\.\d+", cuda) else None
            configs.append(
                Config(
                    name=path.stem, path=path, platform=platform, variant=variant, zip_keys=zip_keys,
                    accelerator=accelerator(version), cuda_version=version, provider=ProviderName.CONDA_FORGE,
                    blas=variant.get("blas_impl", ("",))[0], torch_version=variant.get("pytorch", ("",))[0],
                    pythons=(), docker_image="",
                )
            )  # fmt: skip
    return tuple(configs)


def target(
    root: Path, configs: tuple[Config, ...], *, upstream: str | None, ref: str | None, version: str | None
) -> AuditTarget:
    """Return the audit target: a feedstock's package, or the project `upstream` at `ref`.

    Raises UsageError: there is neither a recipe nor `upstream` with `ref`.
    """
    recipes = [root / RECIPES / name for name in (_V1, _V0)]
    recipe = next((path for path in recipes if path.is_file()), None)
    text = read_text(recipe, root) if recipe is not None and upstream is None else ""
    fields = _fields(text)
    name = fields.get("name", "").lower()
    package = next(
        (package for package in packages() if package.name == name or f"name: {package.name}\n" in text), None
    )
    released = version or fields.get("version", "")
    repository, tag, wheel = _upstream(fields)
    if package is not None:
        name, repository, wheel = package.name, package.repository, package.wheel
        tag = package.tag.format(version=released)
    elif version is not None and fields.get("version"):
        tag = tag.replace(fields["version"], version)
    repository, tag = upstream or repository, ref or tag
    if not text and not (upstream and ref):
        raise UsageError(f"{root}: no recipe", "pass --root DIR with a recipe, or --upstream URL --ref TAG")
    shown = redact.address(repository) if "://" in repository else repository
    nothing = Build(name="", platform="linux-64", accelerator="cpu", cuda="", blas="", provider="conda-forge")
    return AuditTarget(
        package=name if text else re.sub(r"\.git$", "", shown.rstrip("/")).rpartition("/")[2],
        version=released or re.sub(r"^\D*", "", tag) or tag,
        repository=repository,
        tag=tag,
        wheel=wheel,
        index=package.index if package else "pip",
        recipe=recipe if text else None,
        builds=(tuple(map(Build.of, configs)) if text else ()) or (nothing,),
    )


def _fields(text: str) -> dict[str, str]:
    """Return the first plain value of each field of a recipe, with the recipe's own variables substituted."""
    context = _CONTEXT.search(text)
    values = {**settings(text), **dict(_PLAIN.findall(context[1] if context else ""))}

    def put_in(match: re.Match[str]) -> str:
        # sliced and computed values are unknown; filters that only change the spelling are ignored
        word = re.fullmatch(r"(\w+)(?:\s*\|\s*lower|\.(?:lower|replace)\([^()]*\))?", match[1])
        return values.get(word[1], "") if word else ""

    for _ in range(2):  # a value may contain other variables
        values = {name: _EXPRESSION.sub(put_in, value) for name, value in values.items()}
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(text[context.end() :] if context else text):
        if value := _EXPRESSION.sub(put_in, match["value"]):
            fields.setdefault(match["key"], value)
    return {"version": values.get("version", ""), **fields}


def _upstream(fields: dict[str, str]) -> tuple[str, str, str]:
    """Return upstream's repository, the tag of the source, and the distribution's name; each may be empty."""
    source = fields.get("git") or fields.get("git_url") or fields.get("url", "")
    places = (fields.get(key, "") for key in ("repository", "dev_url", "homepage", "home"))
    hosted = next(filter(None, map(_HOSTED.fullmatch, (source, *places))), None)
    repository = f"https://{hosted['host']}/{hosted['path']}.git" if hosted else ""
    tagged = _TAG.fullmatch(hosted["rest"] or "") if hosted and hosted.string == source else None
    keys = ("tag", "git_tag", "rev", "git_rev")
    tag = unquote(tagged["tag"]) if tagged else next(filter(None, map(fields.get, keys)), "")
    indexed = _INDEX.search(urlsplit(source).path)
    if indexed and not tag and repository:
        tag = f"v{fields.get('version', '')}"
    return repository, tag, indexed["name"] if indexed else ""
