"""Keys of a conda_build_config.yaml as they hold on each platform, with the line of each value.

Selectors are the engine's business. It gets a copy of the file in which every value is replaced by its line number;
what comes back says which lines hold on a platform, and the values stand there.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from megabuild.errors import AuditError

_SELECTOR = re.compile(r"\s#\s*\[.*$")
#: conda-forge builds PyTorch with CUDA, and its pins for that are asked for by this variable.
_CUDA = re.compile(r"""os\.environ\.get\(\s*["']CF_CUDA_ENABLED["']\s*(,\s*["'][^"']*["']\s*)?\)""")
_REMEDY = "check the file named by --pinning, or the network in between"


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value as it is written, and its line, counted from 1."""

    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Selected:
    """What holds where.

    Parameters
    ----------
    values:
        By key, by platform; a key without a value on a platform has no entry there.
    zipped:
        By key, by platform: those keys whose values belong to its own, row by row.
    settings:
        Top-level values that are no lists: ``migrator_ts``, ``__migrator``.
    """

    values: dict[str, dict[str, tuple[Value, ...]]] = field(default_factory=dict)
    zipped: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)


def selected(text: str, platforms: Collection[str], where: str) -> Selected:
    """Return what a file says for some platforms.

    Parameters
    ----------
    text:
        The file.
    platforms:
        conda's names.
    where:
        How the file is called in messages.

    Raises
    ------
    AuditError
        It is no such file.
    """
    lines = text.splitlines()
    try:
        node = YAML(typ="safe", pure=True).compose(text)
        top = {key.value: value for key, value in node.value} if isinstance(node, MappingNode) else {}
        lists = {key: value for key, value in top.items() if _is_list(value)}
        if node is None or not lists:
            raise AuditError(f"{where} holds no lists of values", _REMEDY)
        known, copy = _numbered(node, lists, lines)
        result = Selected(settings={key: _plain(value) for key, value in top.items() if key not in lists})
        for platform in platforms:
            _add(result, platform, _engine(copy, platform), known)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise AuditError(f"{where}{line}: {error.problem or error.context}", _REMEDY) from error
    except (YAMLError, RattlerBuildError, OSError, ValueError, TypeError, RecursionError) as error:
        raise AuditError(f"{where} cannot be understood: {error}", _REMEDY) from error
    return result


def _is_list(node: object) -> bool:
    return isinstance(node, SequenceNode) and all(isinstance(item, ScalarNode) for item in node.value)


def _numbered(
    node: MappingNode, lists: dict[str, SequenceNode], lines: list[str]
) -> tuple[dict[str, Value], str]:
    """Return values by their number, and the file with numbers for values."""
    known: dict[str, Value] = {}
    copy: list[str] = []
    tops = [key.start_mark.line for key, _ in node.value] + [len(lines)]
    for key, value in node.value:
        line = key.start_mark.line
        if key.value == "zip_keys":
            copy += lines[line : min(top for top in tops if top > line)]
        elif lists.get(key.value) is value:
            copy.append(f"{key.value}:{_selector(lines[line])}")
            for item in lists[key.value].value:
                at = item.start_mark.line
                number = f"at {at + 1}.{item.start_mark.column}"
                known[number] = Value(text=item.value, line=at + 1)
                copy.append(f"  - '{number}'{_selector(lines[at]) if at != line else ''}")
    return known, _CUDA.sub('"True"', "\n".join(copy) + "\n")


def _selector(line: str) -> str:
    found = _SELECTOR.search(line)
    return f"  {found[0].strip()}" if found else ""


def _engine(copy: str, platform: str) -> VariantConfig:
    target = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, "conda_build_config.yaml")
        path.write_text(copy, encoding="utf-8")
        return VariantConfig.from_conda_build_config(path, JinjaConfig(target))


def _add(result: Selected, platform: str, config: VariantConfig, known: dict[str, Value]) -> None:
    for key in config.keys():  # noqa: SIM118
        values = tuple(known[number] for number in map(str, config[key]) if number in known)
        if values:
            result.values.setdefault(key, {})[platform] = values
    for group in config.zip_keys or []:
        for key in group:
            result.zipped.setdefault(key, {})[platform] = tuple(other for other in group if other != key)


def _plain(node: object) -> object:
    """Return a node's content as text, lists and mappings of text."""
    if isinstance(node, ScalarNode):
        return str(node.value)
    if isinstance(node, SequenceNode):
        return [_plain(item) for item in node.value]
    if isinstance(node, MappingNode):
        return {str(key.value): _plain(value) for key, value in node.value}
    return ""
