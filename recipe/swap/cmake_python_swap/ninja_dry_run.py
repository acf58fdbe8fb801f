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

BUILD_FILE = "build.ninja"
_PHONY = "phony"  # ninja's rule
_CUSTOM_COMMAND = "CUSTOM_COMMAND"  # CMake's rule
_SYMLINK = "CMAKE_SYMLINK_LIBRARY"  # CMake's rule
_STATUS = "::step::"
_PATH_LISTS = ("in", "out")  # $in and $out, which are expanded already
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
        return self.rule != _CUSTOM_COMMAND or any(map(_BINARY.search, self.outputs))

    @property
    def is_phony(self) -> bool:
        """Whether it only names other outputs."""
        return self.rule == _PHONY


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

    def count_objects(self) -> int:
        """Return how many of its outputs are objects."""
        return sum(1 for output in self.outputs if output.endswith(".o"))


class Graph:
    """The build statements of a tree made by CMake's Ninja generator."""

    def __init__(self, build_dir: Path) -> None:
        """Read build.ninja and the files that it includes. Raises NinjaError if one is missing."""
        self.rules: dict[str, dict[str, str]] = {}
        self.variables: dict[str, str] = {}
        self.edges: list[Edge] = []
        self._read(build_dir, BUILD_FILE)
        self.by_output = {output: edge for edge in self.edges for output in edge.outputs}

    def _read(self, build_dir: Path, name: str) -> None:
        try:
            text = (build_dir / name).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise NinjaError(
                f"{build_dir / name}: {error.strerror}: is this a tree configured for ninja?"
            ) from error
        block = self.variables
        for line in re.sub(r"\$\n[ ]*", "", text).split("\n"):
            if line.startswith("  "):
                key, _, value = line.partition("=")
                block[key.strip()] = value.lstrip()
            elif line and not line.startswith("#"):
                block = self._read_statement(line, build_dir)

    def _read_statement(self, line: str, build_dir: Path) -> dict[str, str]:
        """Read a line that is not indented; return the variables that the indented lines after it set."""
        keyword, _, rest = line.partition(" ")
        match keyword:
            case "build":
                block: dict[str, str] = {}
                self.edges.append(_edge(rest, block))
                return block
            case "rule":
                return self.rules.setdefault(rest.strip(), {})
            case "include" | "subninja":
                self._read(build_dir, rest)
            case "default" | "pool":
                return {}
            case _ if "=" in line:
                key, _, value = line.partition("=")
                self.variables[key.strip()] = self.expand(value.lstrip(), {})
        return self.variables

    def expand(self, text: str, scope: Mapping[str, str]) -> str:
        """Expand ``$name``, ``${name}`` and ninja's escapes with the variables of a build statement."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name is None:
                return match[0][1]  # $$, $: and $blank
            if name in _PATH_LISTS and name in scope:
                return scope[name]
            if name in scope:
                # ninja expands a statement's variable in the file's scope: it cannot refer to itself.
                return self.expand(scope[name], {})
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
        if not folder and edge.rule == _SYMLINK and edge.inputs[0] in self.by_output:
            return self.target(self.by_output[edge.inputs[0]])
        name = os.path.basename(folder)
        return name.removesuffix(".dir") if name.endswith(".dir") else ""


def dry_run(build_dir: Path, *, ninja: str = "ninja", targets: Sequence[str] = ()) -> tuple[Step, ...]:
    """Return the steps that ninja would run for ``targets`` (default: all), in ninja's order.

    Raises NinjaError if ninja fails, or wants to run CMake first: its answer would then be out of date.
    """
    graph = Graph(build_dir)
    command = [ninja, "-C", str(build_dir), "-n", "-d", "explain", *targets]
    try:
        result = _run(command, NINJA_STATUS=_STATUS, LC_ALL="C")
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


def _run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with further environment variables, and read its output."""
    return subprocess.run(
        command,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
    )


def reasons(lines: Iterable[str]) -> dict[str, str]:
    """Map outputs to the reasons for making them again, from the lines of ``ninja -d explain``."""
    found: dict[str, str] = {}
    for line in lines:
        if line.startswith(_EXPLAIN):
            for output, reason in _reason(line.removeprefix(_EXPLAIN)):
                found.setdefault(output, reason)
    return found


def _reason(explanation: str) -> Iterator[tuple[str, str]]:
    """Yield the output and the reason in one of ninja's explanations, if it has one."""
    for pattern, words in _REASONS:
        match = pattern.search(explanation)
        if match:
            yield match["out"], words.format_map(match.groupdict())
            return


def _trace(graph: Graph, descriptions: Sequence[str], why: Mapping[str, str]) -> Iterator[Step]:
    candidates: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        if not edge.is_phony:
            candidates.setdefault(graph.description(edge), []).append(edge)
    for description in descriptions:
        same = candidates.get(description, [])
        # Several statements may share a description: prefer one with a reason, and use each only once.
        same.sort(key=lambda edge: why.keys().isdisjoint(edge.outputs))
        if not same:
            yield Step(description, (), "", True, "no build statement has this description")
            continue
        edge = same.pop(0)
        known = [why[output] for output in edge.outputs if output in why]
        reason = known[0] if known else ""
        yield Step(description, edge.outputs, graph.target(edge), edge.makes_binary, reason)


def _with_missing_headers(steps: Sequence[Step], ninja: str, build_dir: Path) -> Iterator[Step]:
    """Add the reason of objects with a missing header, for which ninja prints none."""
    unexplained: list[str] = []
    for step in steps:
        if step.binary and not step.reason:
            unexplained += step.outputs[:1]
    headers: dict[str, list[str]] = {}
    if unexplained:
        headers = _recorded_headers(ninja, build_dir, unexplained[:_LOOKED_UP])
    for step in steps:
        for output in step.outputs[:1]:
            gone = [header for header in headers.get(output, []) if not (build_dir / header).exists()]
            if gone:
                step = replace(step, reason=f"{gone[0]} is missing")
        yield step


def _recorded_headers(ninja: str, build_dir: Path, outputs: Sequence[str]) -> dict[str, list[str]]:
    """Return the headers that ninja recorded when it last built the outputs."""
    command = [ninja, "-C", str(build_dir), "-t", "deps", *outputs]
    result = _run(command)
    headers: dict[str, list[str]] = {}
    found: list[str] = []
    for line in result.stdout.splitlines():
        if line.startswith("    "):
            found.append(line.strip())
        elif ": #deps " in line:
            found = headers.setdefault(line.split(": #deps ")[0], [])
    return headers


def _edge(statement: str, variables: dict[str, str]) -> Edge:
    # OUTS | IMPLICIT_OUTS: RULE INS | IMPLICIT_INS || ORDER_ONLY |@ VALIDATIONS
    left, right = _split_at_colon(statement)
    rule, _, rest = right.strip().partition(" ")
    explicit_outputs, _, implicit_outputs = left.partition(" | ")
    depends = re.split(r" \|\| | \|@ |^\|\| ", rest)[0]
    explicit_inputs, _, implicit_inputs = re.sub(r"^\| ", " | ", depends).partition(" | ")
    outputs = _paths(explicit_outputs)
    inputs = _paths(explicit_inputs)
    variables["__outputs"] = " ".join(map(_quoted, outputs))
    variables["__inputs"] = " ".join(map(_quoted, inputs))
    return Edge(outputs + _paths(implicit_outputs), inputs + _paths(implicit_inputs), rule, variables)


def _split_at_colon(text: str) -> tuple[str, str]:
    match = re.search(r"(?<!\$):", text)  # an escaped colon belongs to a path
    if match is None:
        raise NinjaError(f"not a build statement: {text[:80]!r}")
    return text[: match.start()], text[match.end() :]


def _quoted(path: str) -> str:
    # as ninja quotes $in and $out, which is stricter than shlex.quote
    if re.fullmatch(r"[A-Za-z0-9_+\-./]+", path):
        return path
    escaped = path.replace("'", "'\\''")
    return f"'{escaped}'"


def _paths(text: str) -> tuple[str, ...]:
    escaped = re.findall(r"(?:\$.|[^ $])+", text)
    return tuple(re.sub(r"\$([$: ])", r"\1", path) for path in escaped)
