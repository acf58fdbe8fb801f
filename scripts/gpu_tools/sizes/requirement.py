"""What a requirement would install, by what indexes and the ends of wheels say: no wheel is fetched whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_tools.sizes.dependencies import full_version, required_by
from gpu_tools.sizes.inside import unread
from gpu_tools.sizes.tree import File as SizedFile
from gpu_tools.sizes.tree import Package, Sizes, largest_first
from groundwork.errors import ProviderError
from groundwork.markers import marker_environment
from groundwork.network import index, resolver
from groundwork.network.index import Configured, File
from groundwork.network.resolver import Target, Unsatisfied
from groundwork.network.wheel_contents import Content, Contents, required

_REMEDY = "check name and version, --python, and what pip is configured with"
_AT_ONCE = 8  # ends of wheels on their way
#: How uv names requirements of packages that it could not meet.
_DEPENDS = re.compile(r"depends? on (\S+)")
_BY_ADDRESS = re.compile(r"Package `(\S+)` was included as a URL dependency")


def requirement(text: str, python: str) -> Sizes:
    """Measure what a requirement (``torch==2.15.0``) would install into an empty environment on this machine.

    Raises ProviderError: No index answers or has a wheel for it, or what it requires does not fit together.
    """
    wanted, version = Requirement(text), full_version(python)
    if wanted.marker and not wanted.marker.evaluate(marker_environment(version)):
        raise ProviderError(f"{text} asks for nothing on this machine", _REMEDY)
    if wanted.url:
        raise ProviderError(f"{wanted.name} is asked for by its address, which is not looked at", _REMEDY)
    where = index.places()
    chosen, lacking = _resolved(wanted, Target(version=version), where)
    contents = Contents(where, None)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = pool.map(lambda file: (file, contents.of(file)), chosen)
        found = {file.project: (file, content) for file, content in looked}

    def requires(name: str) -> list[str]:
        if not name:
            return [text]
        return [str(one) for one in required(found[name][1])] if name in found else []

    by = required_by([""], requires, python)
    return Sizes(
        subject=text,
        kind="requirement",
        packages=largest_first(_package(name, found.get(name), by[name] - {""}) for name in by),
        fetched=contents.fetched,
        remarks=tuple(lacking[name] for name in by if name in lacking),
    )


def _resolved(
    wanted: Requirement, target: Target, where: Configured
) -> tuple[tuple[File, ...], dict[str, str]]:
    """Return what would be installed, and by project why some of it cannot be had."""
    lacking: dict[str, str] = {}
    while True:
        try:
            return resolver.resolve([str(wanted)], target, where, without=lacking), lacking
        except ProviderError as error:
            more = _lacking(error.message, target, where)
            if not more or canonicalize_name(wanted.name) in more or not lacking.keys().isdisjoint(more):
                raise
            lacking |= more


def _lacking(said: str, target: Target, where: Configured) -> dict[str, str]:
    """Return a project that cannot be had even by itself, of those that uv named, and why."""
    if by_address := _BY_ADDRESS.search(said):
        name = canonicalize_name(by_address[1])
        return {name: f"{name} is asked for by its address, which is not looked at"}
    for one in dict.fromkeys(_DEPENDS.findall(said)):
        try:
            need = Requirement(one.rstrip(".,"))
            resolver.resolve([str(need)], target, where, dependencies=False)
        except Unsatisfied as error:
            return {canonicalize_name(need.name): error.message}
        except InvalidRequirement:
            continue
    return {}


def _package(name: str, found: tuple[File, Content] | None, by: Iterable[str]) -> Package:
    """Return a package; one that cannot be had has no files."""
    if found is None:
        return Package(name=name, required_by=tuple(sorted(by)))
    file, content = found
    files = (SizedFile(path=path, parts=unread(path, size)) for path, size in content.members.items())
    return Package(
        name=name,
        version=str(file.version),
        files=tuple(files),
        download=content.size,
        required_by=tuple(sorted(by)),
    )
