"""List the steps that ninja would run, with reasons, without running them.

ninja prints a step's description or command, but not its outputs. This module therefore reads the build files, too, and
finds each printed step's build statement: its outputs and its CMake target.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_STATUS = "::step::"
_EXPLAIN = "ninja explain: "
_LOOKED_UP = 40  # objects for which missing headers are searched; a refusal names fewer
_BINARY = re.compile(r"\.(o|obj|a|lib|so|dylib|dll|pyd|exe|cubin|fatbin|ptx|gch|pch)(\.[0-9.]+)?$")
# ninja's reasons for making an output again (ninja's src/graph.cc). They name the output. "X is dirty" is left out: it
# only repeats the reason of X or of an input.
_REASONS = (
    (re.compile(r"^command line changed for (?P<out>.+)$"), "its command line changed"),
    (
        re.compile(r"^command line not found in log for (?P<out>.+)$"),
        "ninja has no record of how it was made",
    ),
    (re.compile(r"^output (?P<out>.+) of phony edge with no inputs doesn't exist$"), "{out} is missing"),
    (re.compile(r"^output (?P<out>.+) doesn't exist$"), "it does not exist"),
    (
        re.compile(r"^deps for '(?P<out>.+)' are missing$"),
        "ninja has no record of the headers it was made from",
    ),
    (
        re.compile(r"^stored deps info out of date for '?(?P<out>[^' ]+)'?"),
        "ninja's record of its headers is older than the output",
    ),
    (
        re.compile(
            r"(?:output|recorded mtime of|restat of output) (?P<out>.+?) older than most recent input "
            r"(?P<cause>\S+)"
        ),
        "{cause} is newer",
    ),
    (re.compile(r"^(?P<out>.+) has no in-edge and is missing$"), "{out} is missing"),
)


class NinjaError(Exception):
    """The build files cannot be read, or ninja failed."""


@dataclass(frozen=True)
class Edge:
    """A build statement."""

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    rule: str
    variables: Mapping[str, str]

    @property
    def makes_binary(self) -> bool:
        """Whether it compiles, archives or links; other statements generate sources or copy files."""
        return self.rule != "CUSTOM_COMMAND" or any(map(_BINARY.search, self.outputs))


@dataclass(frozen=True)
class Step:
    """A step that ninja would run.

    `outputs`: files that it makes; empty if no build statement matches the description.
    `target`: its CMake target; "" for custom commands and unknown steps.
    `binary`: whether it compiles, archives or links. True for an unknown step.
    `reason`: why ninja runs it; "" if ninja gives no reason of its own (an input is made again).
    """

    description: str
    outputs: tuple[str, ...]
    target: str
    binary: bool
    reason: str


class Graph:
    """The build statements of a tree made by CMake's Ninja generator."""

    def __init__(self, build_dir: Path) -> None:
        """Read build.ninja and the files that it includes. Raises NinjaError if one is missing."""
        self.rules: dict[str, dict[str, str]] = {}
        self.variables: dict[str, str] = {}
        self.edges: list[Edge] = []
        self._read(build_dir, "build.ninja")
        self.by_output = {output: edge for edge in self.edges for output in edge.outputs}

    def _read(self, build_dir: Path, name: str) -> None:
        try:
            text = (build_dir / name).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise NinjaError(
                f"{build_dir / name}: {error.strerror}: is this a tree configured for ninja?"
            ) from error
        block: dict[str, str] = self.variables
        for line in re.sub(r"\$\n[ ]*", "", text).split("\n"):
            if line.startswith("  "):
                key, _, value = line.partition("=")
                block[key.strip()] = value.lstrip()
            elif line.startswith("build "):
                block = {}
                self.edges.append(_edge(line, block))
            elif line.startswith("rule "):
                block = self.rules.setdefault(line[5:].strip(), {})
            elif line.startswith(("include ", "subninja ")):
                self._read(build_dir, line.split(" ", 1)[1])
            elif line and not line.startswith("#"):
                block = {} if line.startswith(("default ", "pool ")) else self.variables
                if block is self.variables and "=" in line:
                    key, _, value = line.partition("=")
                    block[key.strip()] = self.expand(value.lstrip(), {})

    def expand(self, text: str, scope: Mapping[str, str]) -> str:
        """Expand ``$name``, ``${name}`` and ninja's escapes with the variables of a build statement."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name is None:
                return match[0][1]  # $$, $: and $blank
            if name in scope:
                # ninja expands a statement's variable in the file's scope: it cannot refer to itself.
                return self.expand(scope[name], {}) if name not in ("in", "out") else scope[name]
            return self.variables.get(name, "")

        return re.sub(r"\$(?:([A-Za-z0-9_-]+)|\{([A-Za-z0-9_.-]+)\}|[$: ])", value, text)

    def description(self, edge: Edge) -> str:
        """Return the text that ninja prints when it runs a statement: its description, else its command."""
        return self._of_rule(edge, "description") or self.command(edge)

    def command(self, edge: Edge) -> str:
        """Return the expanded command of a statement."""
        return self._of_rule(edge, "command")

    def _of_rule(self, edge: Edge, name: str) -> str:
        scope = {**edge.variables, "out": edge.variables["__outputs"], "in": edge.variables["__inputs"]}
        return self.expand(self.rules.get(edge.rule, {}).get(name, ""), scope)

    def target(self, edge: Edge) -> str:
        """Return a statement's CMake target, or ""."""
        folder = edge.variables.get("OBJECT_DIR", "")
        if not folder and edge.rule == "CMAKE_SYMLINK_LIBRARY" and edge.inputs[0] in self.by_output:
            return self.target(self.by_output[edge.inputs[0]])
        return os.path.basename(folder)[: -len(".dir")] if folder.endswith(".dir") else ""


def dry_run(build_dir: Path, *, ninja: str = "ninja", targets: Sequence[str] = ()) -> tuple[Step, ...]:
    """Return the steps that ninja would run for ``targets`` (default: all), in ninja's order.

    Raises NinjaError if ninja fails, or wants to run CMake first: its answer would then be out of date.
    """
    graph = Graph(build_dir)
    command = [ninja, "-C", str(build_dir), "-n", "-d", "explain", *targets]
    try:
        result = subprocess.run(
            command,
            env={**os.environ, "NINJA_STATUS": _STATUS, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except OSError as error:
        raise NinjaError(f"cannot run {ninja}: {error.strerror}") from error
    if result.returncode:
        raise NinjaError(f"{' '.join(command)} failed: {(result.stderr or result.stdout).strip()[-500:]}")
    # ninja prints reasons on stderr; some versions print them on stdout, among the steps.
    lines = (result.stderr + "\n" + result.stdout).splitlines()
    steps = [line[len(_STATUS) :] for line in lines if line.startswith(_STATUS)]
    if any(step.startswith(("Re-running CMake", "Re-checking globbed")) for step in steps):
        raise NinjaError(f"{build_dir}: ninja wants to run CMake first: run `regenerate`, and ask again")
    why = reasons(lines)
    return tuple(_with_missing_headers(list(_trace(graph, steps, why)), ninja, build_dir))


def reasons(lines: Iterable[str]) -> dict[str, str]:
    """Map outputs to the reasons for making them again, from the lines of ``ninja -d explain``."""
    found: dict[str, str] = {}
    for line in lines:
        if not line.startswith(_EXPLAIN):
            continue
        for pattern, words in _REASONS:
            match = pattern.search(line[len(_EXPLAIN) :])
            if match:
                found.setdefault(match["out"], words.format_map(match.groupdict()))
                break
    return found


def _trace(graph: Graph, descriptions: Sequence[str], why: Mapping[str, str]) -> Iterator[Step]:
    candidates: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        if edge.rule != "phony":
            candidates.setdefault(graph.description(edge), []).append(edge)
    for description in descriptions:
        same = candidates.get(description, [])
        # Several statements may share a description: prefer one with a reason, and use each only once.
        same.sort(key=lambda each: not any(output in why for output in each.outputs))
        if not same:
            yield Step(description, (), "", True, "no build statement has this description")
            continue
        edge = same.pop(0)
        reason = next((why[output] for output in edge.outputs if output in why), "")
        yield Step(description, edge.outputs, graph.target(edge), edge.makes_binary, reason)


def _with_missing_headers(steps: Sequence[Step], ninja: str, build_dir: Path) -> Iterator[Step]:
    """Add the reason of objects with a missing header, for which ninja prints none."""
    unexplained = [step.outputs[0] for step in steps if step.binary and step.outputs and not step.reason]
    headers = _recorded_headers(ninja, build_dir, unexplained[:_LOOKED_UP]) if unexplained else {}
    for step in steps:
        recorded = headers.get(step.outputs[0], []) if step.outputs else []
        gone = next((header for header in recorded if not (build_dir / header).exists()), None)
        yield replace(step, reason=f"{gone} is missing") if gone else step


def _recorded_headers(ninja: str, build_dir: Path, outputs: Sequence[str]) -> dict[str, list[str]]:
    """Return the headers that ninja recorded when it last built the outputs."""
    command = [ninja, "-C", str(build_dir), "-t", "deps", *outputs]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    headers: dict[str, list[str]] = {}
    found: list[str] = []
    for line in result.stdout.splitlines():
        if line.startswith("    "):
            found.append(line.strip())
        elif ": #deps " in line:
            found = headers.setdefault(line.split(": #deps ")[0], [])
    return headers


def _edge(line: str, variables: dict[str, str]) -> Edge:
    # build OUTS | IMPLICIT_OUTS: RULE INS | IMPLICIT_INS || ORDER_ONLY |@ VALIDATIONS
    left, _, right = _partition(line[len("build ") :])
    rule, _, rest = right.strip().partition(" ")
    explicit_outputs, _, implicit_outputs = left.partition(" | ")
    depends = re.split(r" \|\| | \|@ |^\|\| ", rest)[0]
    explicit_inputs, _, implicit_inputs = re.sub(r"^\| ", " | ", depends).partition(" | ")
    outputs = _paths(explicit_outputs)
    inputs = _paths(explicit_inputs)
    variables["__outputs"] = " ".join(map(_quoted, outputs))
    variables["__inputs"] = " ".join(map(_quoted, inputs))
    return Edge(outputs + _paths(implicit_outputs), inputs + _paths(implicit_inputs), rule, variables)


def _partition(text: str) -> tuple[str, str, str]:
    match = re.search(r"(?<!\$):", text)  # an escaped colon belongs to a path
    if match is None:
        raise NinjaError(f"not a build statement: {text[:80]!r}")
    return text[: match.start()], ":", text[match.end() :]


def _quoted(path: str) -> str:
    # as ninja quotes $in and $out, which is stricter than shlex.quote
    return path if re.fullmatch(r"[A-Za-z0-9_+\-./]+", path) else "'" + path.replace("'", "'\\''") + "'"


def _paths(text: str) -> tuple[str, ...]:
    return tuple(re.sub(r"\$([$: ])", r"\1", path) for path in re.findall(r"(?:\$.|[^ $])+", text))
