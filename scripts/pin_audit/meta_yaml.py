"""The requirements of a meta.yaml for the variants of a config: read as text, never rendered.

The engine evaluates the selectors, as those of a ``conda_build_config.yaml``. Of Jinja, variables with plain text,
compilers and pins are substituted; requirements with other expressions are left out.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

from groundwork.errors import AuditError
from megabuild.configs.config import Config

_SET = re.compile(r"""\{%-?\s*set\s+(\w+)\s*=\s*["']?([^"'{}%|()]+?)["']?\s*-?%\}""")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}")
_CALL = re.compile(r"""\s*(compiler|stdlib|cdt|pin_compatible|pin_subpackage)\(\s*["']([\w.-]+)["'].*""")
_SECTION = re.compile(r"(?P<indent>\s*)(?P<name>[\w-]+):\s*(?:#.*)?")
_ITEM = re.compile(r"\s*-\s+(?P<text>[^#]*[^#\s])\s*(?:#\s*(?:.*\s)?\[(?P<selector>[^\]]+)\])?.*")
_BRANCH = re.compile(r"\s*\{%-?\s*(?P<word>if|elif|else|endif)\b\s*(?P<condition>.*?)\s*-?%\}\s*")
_SECTIONS = {"build": "build", "host": "host", "run": "run", "run_constrained": "constraint"}
_SPEC = re.compile(r"[a-z0-9_][\w.-]*(\s+\S.*)?", re.IGNORECASE)


def settings(text: str) -> dict[str, str]:
    """Return the variables that a recipe sets to plain text, each with its first value."""
    return {name: value.strip() for name, value in reversed(_SET.findall(text))}


def needs(text: str, config: Config) -> Iterator[tuple[str, str, int]]:
    """Yield the requirements that hold for a config: section, spec and line, counted from 1.

    The section is ``build``, ``host``, ``run`` or ``constraint``. Raises AuditError if selectors cannot be evaluated.
    """
    values = settings(text)
    keys = []
    for line, _, match, branches in _items(text):
        selector = " and ".join(f"({part})" for part in (*branches, match["selector"] or "") if part)
        keys.append(f'l{line}:\n  - "{line}"' + (f"  # [{selector}]" if selector else ""))
    single = {key: values[0] for key, values in config.variant.items() if len(values) == 1}
    try:
        chosen, _ = evaluate("\n".join(keys), config.platform, single)
    except AuditError as error:
        raise AuditError(f"meta.yaml: selectors cannot be parsed: {error}", "correct them") from error
    for line, section, match, _ in _items(text):
        spec = _spec(match["text"].strip("'\""), values, config)
        if f"l{line}" in chosen and spec:
            pin = config.variant.get(spec.replace("-", "_"), ("",))[0] if section in ("build", "host") else ""
            pin = pin if not pin or any(sign in pin for sign in "*=<>! ") else f"{pin}.*"
            yield section, f"{spec} {pin}".strip(), line


def names_of(text: str) -> tuple[str, ...]:
    """Return the names of all packages that requirements name in plain text, regardless of selectors."""
    words = (match["text"].split()[0] for _, _, match, _ in _items(text))
    return tuple(sorted({word for word in words if re.fullmatch(r"[a-z0-9][\w.-]*", word)}))


def _items(text: str) -> Iterator[tuple[int, str, re.Match[str], tuple[str, ...]]]:
    """Yield line, section, item and the surrounding Jinja conditions of every requirement."""
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


def _spec(text: str, values: Mapping[str, str], config: Config) -> str:
    """Return a requirement with Jinja substituted; empty if an expression is unknown."""

    def put_in(match: re.Match[str]) -> str:
        word = match[1].strip()
        call = _CALL.fullmatch(word)
        if not call:
            return values.get(word) or config.variant.get(word, ("{",))[0]
        if call[1] == "pin_compatible":
            return call[2]
        key = f"{call[2]}_{call[1]}"
        name, version = (config.variant.get(word, ("",))[0] for word in (key, f"{key}_version"))
        return f"{name} {version}.*" if name and version else name or "{"

    text = _EXPRESSION.sub(put_in, text)
    return " ".join(text.split()) if "{" not in text and _SPEC.fullmatch(text) else ""


def evaluate(
    text: str, platform: str, variant: Mapping[str, str] | None = None
) -> tuple[dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]:
    """Return the values in a conda_build_config.yaml that hold on a platform, and the groups of zipped keys.

    The engine evaluates the selectors; it takes only files. Raises AuditError with the reason alone.
    """
    machine = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, "conda_build_config.yaml")
        path.write_text(f"{text}\n", encoding="utf-8")
        try:
            config = VariantConfig.from_conda_build_config(
                path, JinjaConfig(machine, variant=dict(variant or {}))
            )
            values = {key: tuple(map(str, config[key])) for key in config.keys() if config[key]}  # noqa: SIM118
            return values, tuple(map(tuple, config.zip_keys or ()))
        except (RattlerBuildError, OSError, ValueError, TypeError, RecursionError) as error:
            raise AuditError(str(error)) from error
