"""Requires-Dist of upstream's released wheels, read from package indexes or from a local wheel.

Of a version's many wheels one is read per platform: the one for CPython 3.12, else for the CPython next to it. Where
platforms do not agree on a requirement, the finding's scope names those that have it. Of a project that releases only
source archives, as PyG's extensions do on PyPI, the archive is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from megabuild.audit.model import Finding, Kind, Origin, Outcome
from megabuild.audit.request import Request
from megabuild.errors import AuditError
from megabuild.network.services import Services
from megabuild.network.simple.configured import configured
from megabuild.network.simple.released import Wheel, newest, offers, one_per_platform
from megabuild.network.simple.source_archive import from_archive
from megabuild.network.simple.wheel_text import Text, from_index, from_local
from megabuild.network.web import Web
from megabuild.prebuilt.index import INDEX

SOURCE = "wheel_metadata"
NEWEST = "newest"
ANY = "*"  #: the value where upstream names no version


def read(request: Request) -> Outcome:
    """Return every Requires-Dist of the target's wheels, one finding each."""
    local = request.local.wheel
    web = request.services.web.separate()
    texts: tuple[Text, ...] = ()
    troubles: tuple[str, ...] = ()
    try:
        if local is not None:
            texts = (_right(from_local(local), request),)
        else:
            texts, troubles = _from_index(request, web)
    except AuditError as error:
        troubles = (error.message,)
    return Outcome(
        source=SOURCE,
        findings=_findings(texts, _page(request)),
        trouble="; ".join(troubles),
        received=web.received,
    )


def newest_version(name: str, services: Services) -> str:
    """Return the newest version of a distribution, for targets whose version is "newest".

    Raises
    ------
    AuditError
        No index answers, or none has it.
    """
    where = configured()
    return str(newest(offers(name, where, services, services.web.separate(where.certificates, where.proxy))))


def _right(text: Text, request: Request) -> Text:
    """Return a local wheel's metadata if it is of the target."""
    target = request.target
    version = text.version if target.version == NEWEST else _version(target.version)
    project = canonicalize_name(target.wheel or text.wheel.split("-")[0])
    if canonicalize_name(text.wheel.split("-")[0]) != project or text.version.public != version.public:
        raise AuditError(
            f"{text.wheel} is not a wheel of {project} {version}", "name the right one: --wheel FILE"
        )
    return text


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise AuditError(f"'{text}' is no version that a wheel can have", "check --version") from error


def _from_index(request: Request, web: Web) -> tuple[tuple[Text, ...], tuple[str, ...]]:
    target, services = request.target, request.services
    where = configured()
    web = web.separate(where.certificates, where.proxy)
    project = target.wheel or target.package
    if not target.wheel:  # not on PyPI; PyG has an index of its own
        where = replace(where, indexes=(), links=(_page(request),))
    services.report(SOURCE, f"looking for wheels of {project}")
    offered = offers(project, where, services, web)
    version = newest(offered) if target.version == NEWEST else _version(target.version)
    archives = [archive for archive in offered.archives if archive.version == version]
    if archives and not any(Version(wheel.version.public) == version for wheel in offered.wheels):
        return (from_archive(archives[0], services, web),), offered.troubles
    chosen = one_per_platform(offered, version, {config.platform for config in request.configs})

    def fetch(wheel: Wheel) -> Text | AuditError:
        try:
            return from_index(wheel, services, web)
        except AuditError as error:
            return error

    with ThreadPoolExecutor(max_workers=4) as pool:
        results = tuple(pool.map(fetch, chosen.values()))
    reasons: dict[str, list[str]] = {}
    for platform, result in zip(chosen, results, strict=True):
        if isinstance(result, AuditError):
            reasons.setdefault(result.message, []).append(platform)
    failed = (f"{', '.join(platforms)}: {reason}" for reason, platforms in reasons.items())
    return tuple(result for result in results if isinstance(result, Text)), (*offered.troubles, *failed)


def _page(request: Request) -> str:
    """Return the page of PyG's index, for what is there; which index pip asks is the user's own affair."""
    if request.target.wheel:
        return ""
    torch = next((config.torch_version for config in request.configs), "")
    return f"{INDEX}/torch-{torch}%2Bcpu.html"


def _findings(texts: tuple[Text, ...], page: str) -> tuple[Finding, ...]:
    """Return one finding for each requirement, wherever it stands, in the order of the first wheel."""
    where: dict[str, list[tuple[Text, int]]] = {}
    for text in texts:
        for line, requirement in text.requirements:
            where.setdefault(requirement, []).append((text, line))
    every = [text.platform for text in texts]
    return tuple(
        _finding(
            requirement, page, places[0], list(dict.fromkeys(text.platform for text, _ in places)), every
        )
        for requirement, places in where.items()
    )


def _finding(
    requirement: str, page: str, place: tuple[Text, int], platforms: list[str], every: list[str]
) -> Finding:
    text, line = place
    origin = Origin(
        file=f"{text.wheel}/{text.path}",
        line=line,
        url=page,
        date=text.uploaded,
        fetched=text.fetched,
    )
    details: Mapping[str, str] = {"requirement": requirement, "platforms": ", ".join(platforms)}
    try:
        parsed = Requirement(requirement)
    except InvalidRequirement:
        name = requirement.split()[0].rstrip(";")
        trouble = f"'{requirement}' is no requirement that can be understood"
        return Finding(
            name=name, kind=Kind.REQUIREMENT, value="", origin=origin, trouble=trouble, details=details
        )
    scope = [str(parsed.marker)] if parsed.marker else []
    if len(platforms) < len(every):
        scope.append(f"in the wheel for {', '.join(platforms)} only")
    return Finding(
        name=canonicalize_name(parsed.name),
        kind=Kind.REQUIREMENT,
        value=f"@ {parsed.url}" if parsed.url else str(parsed.specifier) or ANY,
        scope="; ".join(scope),
        origin=origin,
        details={
            **details,
            "specifier": str(parsed.specifier),
            "marker": str(parsed.marker or ""),
            "extras": ", ".join(sorted(parsed.extras)),
        },
    )
