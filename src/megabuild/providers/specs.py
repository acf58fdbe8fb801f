"""Parse and match requirements of conda packages, and translate them to and from pip's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.specifiers import SpecifierSet
from rattler import MatchSpec, PackageRecord
from rattler.package import BuildString

from groundwork.errors import ProviderError
from groundwork.names import PackageId


def parse(needs: Iterable[str]) -> dict[str, tuple[MatchSpec, ...]]:
    """Group requirements by package name, without duplicates and virtual packages (`__glibc`, `__cuda`).

    Raises ProviderError: A requirement is not a match spec, or does not name exactly one package.
    """
    grouped: dict[str, dict[str, MatchSpec]] = {}
    for need in sorted(set(needs)):
        try:
            spec = MatchSpec(need)
        except Exception as error:  # rattler raises several kinds
            raise ProviderError(f"{need!r}: invalid requirement: {error}") from error
        name = spec.name.normalized
        if name is None:
            raise ProviderError(f"{need!r}: requirement does not name exactly one package")
        if not name.startswith("__"):
            grouped.setdefault(name, {})[str(spec)] = spec
    return {name: tuple(specs.values()) for name, specs in grouped.items()}


def satisfied(specs: Iterable[MatchSpec], package: PackageId) -> bool:
    """Whether a package with this identity matches all `specs`."""
    name, version, build = package
    record = PackageRecord(name, version, BuildString(build), 0, "linux-64", None, None)
    return all(spec.matches(record) for spec in specs)


def pip_specifier(specs: Sequence[MatchSpec]) -> str:
    """Return the versions that satisfy all `specs`, as a version specifier for pip.

    Build strings are dropped. Of alternatives (`|`) only the last is used, by convention the newest.

    Raises ProviderError: pip has no such version clause.
    """
    clauses: dict[str, None] = {}
    for spec in specs:
        last = (spec.version or "*").split("|")[-1].strip("()")
        for clause in last.split(","):
            clauses[_pip_clause(clause.strip())] = None
    return ",".join(filter(None, clauses))


def _pip_clause(clause: str) -> str:
    match = re.fullmatch(r"(>=|<=|==|!=|~=|>|<|=|)\s*([^=<>!~]+)", clause)
    if match is None:
        raise ProviderError(f"{clause!r}: version requirement has no equivalent for pip")
    operator, version = match.groups()
    if version == "*":
        return ""
    prefix = version.removesuffix("*").removesuffix(".")
    if operator == "=" or (not operator and version.endswith("*")):
        return f"=={prefix}.*"
    if operator in (">=", "<=", ">", "<", "~="):
        return operator + prefix
    return (operator or "==") + version


def conda_version(specifier: SpecifierSet) -> str:
    """Return pip's version specifier in conda's syntax: "==1.*" becomes "1.*", "===1" becomes "==1"."""
    clauses: list[str] = []
    for clause in sorted(map(str, specifier)):
        if clause.endswith(".*"):
            clause = clause.removeprefix("==")
        elif clause.startswith("==="):
            clause = clause.removeprefix("=")
        clauses.append(clause)
    return ",".join(clauses)
