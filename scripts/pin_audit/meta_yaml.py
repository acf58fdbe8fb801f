"""The requirements of a meta.yaml, for the variants of a config: read as text, never rendered.

Selectors are evaluated by the engine, which knows them from ``conda_build_config.yaml``; of Jinja what is set to plain
text is put in, compilers and pins are known, and what is computed otherwise is left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from groundwork.errors import AuditError
from megabuild.configs.config import Config
from pin_audit.texts import read_text

_SET = re.compile(r"""\{%-?\s*set\s+(\w+)\s*=\s*["']?([^"'{}%|()]+?)["']?\s*-?%\}""")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}")
_CALL = re.compile(r"""\s*(compiler|stdlib|cdt|pin_compatible|pin_subpackage)\(\s*["']([\w.-]+)["'].*""")
_SECTION = re.compile(r"(?P<indent>\s*)(?P<name>[\w-]+):\s*(?:#.*)?")
_ITEM = re.compile(r"\s*-\s+(?P<text>[^#]*[^#\s])\s*(?:#\s*(?:.*\s)?\[(?P<selector>[^\]]+)\])?.*")
_BRANCH = re.compile(r"\s*\{%-?\s*(?P<word>if|elif|else|endif)\b\s*(?P<condition>.*?)\s*-?%\}\s*")
_SECTIONS = {"build": "build", "host": "host", "run": "run", "run_constrained": "constraint"}
_SPEC = re.compile(r"[a-z0-9_][\w.-]*(\s+\S.*)?", re.IGNORECASE)


class Need(NamedTuple):
    """One requirement."""

    section: str  #: ``build``, ``host``, ``run`` or ``constraint``
    spec: str
    line: int  #: counted from 1
    rendered: bool = False  #: whether the config has the version, and not the recipe


def settings(text: str) -> dict[str, str]:
    """Return what a recipe sets to plain text, the first time it does."""
    found: dict[str, str] = {}
    for name, value in _SET.findall(text):
        found.setdefault(name, value.strip())
    return found


def needs(text: str, config: Config) -> tuple[Need, ...]:
    """Return the requirements that hold for a config; raises AuditError where selectors cannot be evaluated."""
    known = settings(text)
    asked = list(_items(text))
    selectors = {
        str(line): " and ".join(f"({one})" for one in (*branches, match["selector"] or "") if one)
        for line, _, match, branches in asked
    }
    chosen = _chosen(selectors, config)
    found = []
    for line, section, match, _ in asked:
        spec, rendered = _spec(match["text"].strip("'\""), known, config)
        if str(line) in chosen and spec:
            pin = config.variant.get(spec.replace("-", "_"), ("",))[0] if section in ("build", "host") else ""
            pin = pin if not pin or any(sign in pin for sign in "*=<>! ") else f"{pin}.*"
            found.append(Need(section, f"{spec} {pin}".strip(), line, rendered or bool(pin)))
    return tuple(found)


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of all packages that requirements name in plain text, whatever the selectors say."""
    words = (match["text"].split()[0] for _, _, match, _ in _items(text))
    return tuple(sorted({word for word in words if re.fullmatch(r"[a-z0-9][\w.-]*", word)}))


def _items(text: str) -> Iterator[tuple[int, str, re.Match[str], tuple[str, ...]]]:
    """Yield the items of every section of requirements, with their lines and the conditions of Jinja around them."""
    inside, section = -1, ""
    branches: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        indent = len(line) - len(line.lstrip())
        if branch := _BRANCH.fullmatch(line):
            last = branches.pop() if branch["word"] != "if" and branches else ""
            if branch["word"] in ("if", "elif"):
                branches.append(f"not ({last}) and ({branch['condition']})" if last else branch["condition"])
            elif branch["word"] == "else":
                branches.append(f"not ({last})")
        elif heading := _SECTION.fullmatch(line):
            if heading["name"] == "requirements":
                inside, section = indent, ""
            elif inside >= 0 and indent > inside:
                section = _SECTIONS.get(heading["name"], "")
            else:
                inside, section = -1, ""
        elif inside >= 0 and section and (item := _ITEM.fullmatch(line)):
            yield number, section, item, tuple(branches)
        elif line.strip() and not line.lstrip().startswith(("#", "{%", "-")):
            inside, section = -1, ""


def _spec(text: str, known: Mapping[str, str], config: Config) -> tuple[str, bool]:
    """Return a requirement without Jinja, nothing where it cannot be told, and whether the config has its version."""
    rendered = False

    def put_in(match: re.Match[str]) -> str:
        nonlocal rendered
        word = match[1].strip()
        if call := _CALL.fullmatch(word):
            if call[1] in ("pin_subpackage", "cdt"):
                return "{"
            if call[1] == "pin_compatible":
                return call[2]
            key = f"{call[2]}_{call[1]}"
            name, version = (config.variant.get(one, ("",))[0] for one in (key, f"{key}_version"))
            rendered = bool(version)
            return f"{name} {version}.*" if name and version else name or "{"
        rendered = not known.get(word)
        return known.get(word) or config.variant.get(word, ("{",))[0]

    text = _EXPRESSION.sub(put_in, text)
    return " ".join(text.split()) if "{" not in text and _SPEC.fullmatch(text) else "", rendered


def _chosen(selectors: Mapping[str, str], config: Config) -> set[str]:
    """Return the names of those selectors that hold."""
    lines = [f'l{name}:\n  - "{name}"' + (f"  # [{one}]" if one else "") for name, one in selectors.items()]
    machine = PlatformConfig(
        target_platform=config.platform, build_platform=config.platform, host_platform=config.platform
    )
    single = {key: values[0] for key, values in config.variant.items() if len(values) == 1}
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, "conda_build_config.yaml")
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        try:
            found = VariantConfig.from_conda_build_config(path, JinjaConfig(machine, variant=single))
            return {str(value) for key in found.keys() for value in found[key] or ()}  # noqa: SIM118
        except (RattlerBuildError, OSError, ValueError, TypeError, RecursionError) as error:
            raise AuditError(f"the selectors of meta.yaml cannot be read: {error}", "correct them") from error


def variants(
    path: Path, root: Path | None = None
) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    """Return a rendered config as conda-smithy writes it: keys with values, and zipped keys; raises AuditError."""
    try:
        text = read_text(path, root, "render the feedstock again")
        document = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, RecursionError, ValueError) as error:
        raise AuditError(f"{path} is no YAML", "render the feedstock again") from error
    if not isinstance(document, dict):
        raise AuditError(f"{path} is not a mapping", "render the feedstock again")
    plain = (str, int, float, bool)
    found = {
        str(key): tuple(map(str, values))
        for key, values in document.items()
        if isinstance(values, list) and all(isinstance(value, plain) for value in values)
    }
    zipped = document.get("zip_keys")
    groups = zipped if isinstance(zipped, list) else []
    return found, tuple(
        tuple(map(str, group))
        for group in groups
        if isinstance(group, list) and set(map(str, group)) <= found.keys()
    )
