"""Applies the rules of ``ci_pins.yaml`` to upstream's tree."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from megabuild.audit.model import Finding, Kind, Origin, Outcome, Tree
from megabuild.audit.readers.value import NotFound, Source, Value, filled
from megabuild.audit.request import Request
from megabuild.audit.rules import RULE_FILE, Form, Rule, Rules

MACHINES: Mapping[str, str] = {"x86_64": "linux-64", "aarch64": "linux-aarch64"}
_WHEEL_TYPES = {"x86_64": "cuda", "aarch64": "cuda-aarch64"}  # upstream's GPU_ARCH_TYPE

_NO_RULE = "ci_pins.yaml has no rule for {package}"


@dataclass(frozen=True)
class _Asked:
    """What a rule is asked about.

    Parameters
    ----------
    given:
        ``{"cuda": "13.0", "machine": "aarch64"}``.
    certain:
        Upstream says that it supports this; if not, that there is nothing about it is no news.
    """

    given: Mapping[str, str]
    certain: bool


class Reading:
    """One package's tree, read once.

    Parameters
    ----------
    request:
        The package and its tree.
    rules:
        The rule file.

    Raises
    ------
    AuditError
        The tree cannot be opened or read.
    """

    def __init__(self, request: Request, rules: Rules) -> None:
        self._target = request.target
        self._rules = [
            rule
            for rule in (*rules.cuda_versions, *rules.pins, *rules.arch_lists)
            if self._target.package in rule.packages
        ]
        self._configs = {config.cuda_version for config in request.configs if config.cuda_version}
        self._tree: Tree | None = request.tree() if self._rules else None
        self._names: Sequence[str] = tuple(self._tree.names()) if self._tree else ()
        self._texts = self._read_all()
        self._cuda = rules.cuda_versions

    def outcome(self, source: str, kind: Kind, rules: Sequence[Rule]) -> Outcome:
        """Return the findings of those of these rules that are about the package."""
        findings = [f for rule in rules if rule in self._rules for f in self._findings(kind, rule)]
        if not any(rule in self._rules for rule in rules):
            return Outcome(source=source, trouble=_NO_RULE.format(package=self._target.package))
        return Outcome(source=source, findings=tuple(findings))

    # ------------------------------------------------------------------ files
    def _read_all(self) -> Mapping[str, str]:
        """Read everything that any rule may need, in one request."""
        wanted = {
            path
            for rule in self._rules
            for form in rule.forms
            if form.holds(self._target.version)
            for path in self._expanded((*form.files, *form.also))
        }
        found = self._tree.read(sorted(wanted)) if self._tree and wanted else {}
        return {path: data.decode("utf-8", errors="replace") for path, data in found.items()}

    def _expanded(self, patterns: Sequence[str]) -> Iterator[str]:
        for pattern in patterns:
            if "*" in pattern:
                yield from fnmatch.filter(self._names, pattern)
            else:
                yield pattern

    def _files(self, form: Form) -> tuple[str, ...]:
        """Return the files of the first alternative that the tree has."""
        for pattern in form.files:
            present = tuple(
                path
                for path in self._expanded([pattern])
                if path in self._texts and (form.where is None or form.where.search(path))
            )
            if present:
                return present
        return ()

    # ------------------------------------------------------------------ rules
    def _findings(self, kind: Kind, rule: Rule) -> Iterator[Finding]:
        version = self._target.version
        forms = [form for form in rule.forms if form.holds(version)]
        if not forms:
            if rule.between(version):
                yield self._trouble(kind, rule, (), f"no form of it holds for {version}", rule.line)
            return
        reasons: dict[str, list[_Asked]] = {}
        for form in forms:
            found, gaps = self._read(kind, rule, form)
            if found:
                yield from found
                for reason, asked in gaps.items() if not rule.some else ():
                    yield self._trouble(kind, rule, asked, reason, form.line)
                return
            for reason, asked in gaps.items():
                reasons.setdefault(reason, []).extend(asked)
        if reasons:
            everything = [asked for several in reasons.values() for asked in several]
            yield self._trouble(kind, rule, everything, "; ".join(reasons), forms[0].line)

    def _read(self, kind: Kind, rule: Rule, form: Form) -> tuple[list[Finding], dict[str, list[_Asked]]]:
        """Return what a form yields, and what there is nothing about, by the reason."""
        findings: list[Finding] = []
        gaps: dict[str, list[_Asked]] = {}
        for asked in self._asked(form):
            values, problem = self._values(form, asked.given)
            if values is not None:
                findings += [self._finding(kind, rule, value, asked.given) for value in values]
            elif asked.certain:
                gaps.setdefault(problem, []).append(asked)
        return findings, gaps

    def _values(self, form: Form, given: Mapping[str, str]) -> tuple[list[Value] | None, str]:
        """Return the values, or None and why there are none."""
        files = self._files(form)
        if not files:
            # a folder that stands for the tree may hold a part of it only
            whole = self._tree is not None and self._tree.commit
            where = "upstream's tree" if whole else "the folder that stands for upstream's tree"
            return None, f"{' or '.join(form.files)} is not in {where}"
        values: list[Value] = []
        problems: list[str] = []
        for path in files:
            source = Source(path=path, text=self._texts[path], given=given, other=self._texts.get)
            groups = form.where.search(path) if form.where else None
            known = {name: text for name, text in groups.groupdict().items() if text} if groups else {}
            try:
                found = form.reader.read(source)
            except NotFound as error:
                problems.append(f"{path} {error}")
            else:
                values += [replace(v, groups={**known, **v.groups}, file=v.file or path) for v in found]
        if len(problems) == len(files):
            return None, problems[0]
        return values, ""

    def _asked(self, form: Form) -> Iterator[_Asked]:
        machines = list(MACHINES) if "machine" in form.per else [""]
        for machine in machines:
            about = {"machine": machine, "wheel_type": _WHEEL_TYPES[machine]} if machine else {}
            likely = machine in ("", "x86_64")
            if "cuda" in form.per or "shipped" in form.per:
                for version, certain in self._cuda_versions(machine, shipped="shipped" in form.per):
                    yield _Asked({"cuda": version, **about}, certain and likely)
            else:
                yield _Asked(about, likely)

    def _cuda_versions(self, machine: str, *, shipped: bool) -> list[tuple[str, bool]]:
        """Return CUDA versions, and whether upstream says that it supports them."""
        listed = self._listed("")
        if machine != "x86_64" and (narrower := self._listed(machine)):
            listed = narrower
        known = dict.fromkeys(listed, True)
        if not shipped or not listed:
            for version in self._configs:
                known.setdefault(version, not listed)
        return sorted(known.items(), key=lambda item: [int(part) for part in re.findall(r"\d+", item[0])])

    def _listed(self, machine: str) -> list[str]:
        """Return upstream's own list of CUDA versions for a machine, or for all."""
        for rule in self._cuda:
            if self._target.package in rule.packages and rule.scope == machine:
                for form in rule.forms:
                    values, _ = self._values(form, {}) if form.holds(self._target.version) else (None, "")
                    if values:
                        return [value.text for value in values]
        return []

    # ------------------------------------------------------------------ findings
    def _finding(self, kind: Kind, rule: Rule, value: Value, given: Mapping[str, str]) -> Finding:
        known = _tidied({**given, **value.groups})
        assert self._tree is not None
        return Finding(
            name=rule.name,
            kind=kind,
            value=_capabilities(value.text) if kind is Kind.UPSTREAM_ARCHS else value.text,
            scope=_scope(rule.scope, known),
            origin=Origin(
                file=value.file,
                line=value.line,
                url=self._tree.url(value.file, value.line),
                commit=self._tree.commit,
            ),
            details=_details(rule, known),
        )

    def _trouble(self, kind: Kind, rule: Rule, asked: Sequence[_Asked], problem: str, line: int) -> Finding:
        given = _merged([_tidied(one.given) for one in asked])
        scope = _scope(rule.scope, given)
        about = f" (asked for {scope})" if scope else ""
        remedy = f"if upstream writes it elsewhere now, adapt the rule at {RULE_FILE.name}:{line}"
        return Finding(
            name=rule.name,
            kind=kind,
            value="",
            scope=scope,
            origin=Origin(commit=self._tree.commit if self._tree else ""),
            trouble=f"{problem}{about}; {remedy}",
            details=_details(rule, given),
        )


def _merged(several: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Join what is said about several into one."""
    merged: dict[str, dict[str, None]] = {}
    for one in several:
        for key, text in one.items():
            merged.setdefault(key, {})[text] = None
    return {key: ", ".join(texts) for key, texts in merged.items()}


def _capabilities(text: str) -> str:
    """Write a list of GPU architectures as in ``TORCH_CUDA_ARCH_LIST``: ``75, 120+PTX`` is ``7.5;12.0+PTX``."""
    if not re.fullmatch(r"\d{2,3}(?:\+PTX)?(?:, \d{2,3}(?:\+PTX)?)*", text):
        return text
    return ";".join(re.sub(r"^(\d+)(\d)", r"\1.\2", item) for item in text.split(", "))


def _scope(template: str, known: Mapping[str, str]) -> str:
    """Fill in a scope; a part between ``;`` with a name that is not known is left out."""
    parts = [filled(part.strip(), known) for part in template.split(";")]
    return ", ".join(part for part in parts if part and "{" not in part)


def _details(rule: Rule, known: Mapping[str, str]) -> dict[str, str]:
    kept = {key: text for key, text in known.items() if key != "wheel_type"}
    return {**({"what": rule.what} if rule.what else {}), **kept}


def _tidied(groups: Mapping[str, str]) -> dict[str, str]:
    """Write versions as the audit does: ``130`` is CUDA 13.0, ``cp314`` Python 3.14, ``cp31*`` all 3.1… left over."""
    tidy = dict(groups)
    if match := re.fullmatch(r"(?:cu)?(\d{2})(\d+)", tidy.get("cuda", "")):
        tidy["cuda"] = f"{match[1]}.{match[2]}"
    if match := re.fullmatch(r"cp(\d)(\d*)\*?", tidy.get("python", "")):
        tidy["python"] = f"{match[1]}.{match[2]}" + ("*" if len(match[2]) < 2 else "")
    elif tidy.get("python") == "*":
        tidy["python"] = "other"
    if tidy.get("machine", "") in MACHINES:
        tidy["platform"] = MACHINES[tidy["machine"]]
    return tidy
