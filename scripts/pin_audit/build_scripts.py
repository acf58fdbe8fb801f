"""CUDA architectures that a feedstock's build script sets, read as text: a foreign script is never run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from groundwork import files
from megabuild.configs.config import RECIPES, Config

_ASSIGNED = re.compile(r"""^(?:export\s+)?TORCH_CUDA_ARCH_LIST=["']?([^"'#]*?)["']?\s*(?:#.*|;;)?$""")
_VARIABLE = re.compile(r"\$\{?(\w+)(?::?-[^}]*)?\}?")
_IF = re.compile(r"^(?P<word>if|elif)\b\s*(?P<condition>.*?)\s*(?:;\s*then)?$")
_CASE = re.compile(r"""^case\s+["']?(\S+?)["']?\s+in$""")
_ARM = re.compile(r"""^\(?([\w.*?|\[\]"' -]+)\)\s*(.*)$""")
_COMPARED = re.compile(r"""["']?\$\{?(\w+)(?::?-[^}]*)?\}?["']?\s*(==|=|!=)\s*["']?([\w.*?\[\]-]*)["']?""")


def arch_list(root: Path, config: Config) -> tuple[str, Path, int] | None:
    """Return the list that a config's build sets, its script and line; None where no script sets one in plain text."""
    for script in sorted((root / RECIPES).glob("*.sh")):
        text = files.read_untrusted(script, below=root) or b""
        known = {key: values[0] for key, values in config.variant.items() if values}
        known = {"target_platform": config.platform, **known}
        found: tuple[str, Path, int] | None = None
        for number, value in _assignments(text.decode("utf-8", errors="replace"), known):
            before = found[0] if found else ""
            value = re.sub(r"\$\{?TORCH_CUDA_ARCH_LIST\}?", before, value)
            if "$" not in value and value:
                found = (value, script, number)
        if found:
            return found
    return None


def _assignments(text: str, known: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the assignments that a build with these variables reaches, as far as conditions compare variables."""
    # of each block around: the variable of a case, whether this branch is taken, whether one was taken before
    blocks: list[tuple[str, bool, bool]] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if found := _CASE.match(line):
            blocks.append((_filled(found[1], known), False, False))
            continue
        if (found := _IF.match(line)) and not (found["word"] == "if" and re.search(r";\s*fi$", line)):
            taken = blocks.pop()[2] if found["word"] == "elif" and blocks else False
            holds = not taken and _holds(found["condition"], known)
            blocks.append(("", holds, taken or holds))
        elif line == "else" and blocks:
            blocks[-1] = ("", not blocks[-1][2], True)
        elif re.match(r"(?:fi|esac)\b", line) and blocks:
            blocks.pop()
        elif blocks and blocks[-1][0] and (found := _ARM.match(line)):
            subject, _, taken = blocks[-1]
            patterns = [word.strip(" \"'") for word in found[1].split("|")]
            holds = not taken and any(fnmatchcase(subject, pattern) for pattern in patterns)
            blocks[-1] = (subject, holds, taken or holds)
            line = found[2].strip()
        if (found := _ASSIGNED.match(line)) and all(holds for _, holds, _ in blocks):
            yield number, found[1]


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: known.get(found[1], ""), text) or "-"


def _holds(condition: str, known: Mapping[str, str]) -> bool:
    """Whether a condition of comparisons holds; one that says anything else does not."""
    if not (found := _COMPARED.findall(condition)):
        return False
    answers = [fnmatchcase(known.get(name, ""), value) == (sign != "!=") for name, sign, value in found]
    return any(answers) if "||" in condition else all(answers)
