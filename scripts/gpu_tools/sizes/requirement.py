"""What a requirement would install, by what indexes and the ends of wheels say: no wheel is fetched whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpu_tools.sizes.dependencies import find_requirers, full_version
from gpu_tools.sizes.inside import parts_by_path
from gpu_tools.sizes.tree import File as SizedFile
from gpu_tools.sizes.tree import Package, Sizes, sort_by_size
from groundwork.errors import ProviderError
from groundwork.network import index, resolver
from groundwork.network.index import Configured, File
from groundwork.network.resolver import Target, Unsatisfied, marker_environment
from groundwork.network.wheel_contents import Content, Contents, required

_REMEDY = "check name and version, --python, and what pip is configured with"
_NO_WHEEL = "install it and measure the environment"
_AT_ONCE = 8  # ends of wheels on their way
#: How uv names requirements of packages that it could not meet.
_DEPENDS = re.compile(r"depends? on (\S+)")
_WITHOUT_WHEEL = re.compile(r"(all versions of )?(\S+) ha(?:s|ve) no usable wheels")
_BY_ADDRESS = re.compile(r"Package `(\S+)` was included as a URL dependency")


def measure_requirements(texts: Sequence[str], python: str) -> Sizes:
    """Measure what requirements (``torch==2.15.0``) would install into one empty environment on this machine.

    Raises ProviderError: No index answers or has a wheel for one, or what they require does not fit together.
    """
    version = full_version(python)
    wanted = [
        need
        for need in map(Requirement, texts)
        if need.marker is None or need.marker.evaluate(marker_environment(version))
    ]
    subject = " ".join(texts)
    if not wanted:
        raise ProviderError(f"{subject} asks for nothing on this machine", _REMEDY)
    if addressed := [need.name for need in wanted if need.url]:
        raise ProviderError(f"{addressed[0]} is asked for by its address, which is not looked at", _REMEDY)
    where = index.places()
    chosen, lacking = _resolve(wanted, Target(version=version), where)
    contents = Contents(where, None)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        looked = pool.map(lambda file: (file, contents.of(file)), chosen)
        wheels = {file.project: (file, content) for file, content in looked}

    def requires(name: str) -> list[str]:
        if not name:
            return [*map(str, wanted)]
        return [str(need) for need in required(wheels[name][1])] if name in wheels else []

    by = find_requirers([""], requires, python)
    missing = tuple(name for name in by if name in lacking)
    return Sizes(
        subject=subject,
        kind="requirement",
        packages=sort_by_size(_package(name, wheels.get(name), by[name] - {""}) for name in by),
        fetched=contents.fetched,
        lacking=missing,
        remarks=(*(lacking[name] for name in missing), *_unknown_extras(wanted, wheels)),
    )


def _unknown_extras(
    wanted: Iterable[Requirement], wheels: Mapping[str, tuple[File, Content]]
) -> Iterator[str]:
    for need in wanted:
        if (name := canonicalize_name(need.name)) in wheels:
            file, content = wheels[name]
            provided = parse_email(content.metadata)[0].get("provides_extra", [])
            for extra in {*map(canonicalize_name, need.extras)} - {*map(canonicalize_name, provided)}:
                yield f"{name} {file.version} has no extra {extra}"


def _resolve(
    wanted: Sequence[Requirement], target: Target, where: Configured
) -> tuple[tuple[File, ...], dict[str, str]]:
    """Return what would be installed, and by project why some of it cannot be had."""
    lacking: dict[str, str] = {}
    while True:
        try:
            return resolver.resolve([*map(str, wanted)], target, where, without=lacking), lacking
        except ProviderError as error:
            more = _find_lacking(error.message, target, where)
            own = {canonicalize_name(need.name) for need in wanted}
            if not more or not more.keys().isdisjoint(own | lacking.keys()):
                if isinstance(error, Unsatisfied):
                    reason = _shorten(error.message, wanted[0] if len(wanted) == 1 else None, target)
                    raise ProviderError(reason, _NO_WHEEL if "no wheel" in reason else _REMEDY) from error
                raise
            lacking |= more


def _find_lacking(said: str, target: Target, where: Configured) -> dict[str, str]:
    """Return a project that cannot be had even by itself, of those that uv named, and why."""
    if by_address := _BY_ADDRESS.search(said):
        name = canonicalize_name(by_address[1])
        return {name: f"{name} is asked for by its address, which is not looked at"}
    for text in dict.fromkeys(_DEPENDS.findall(said)):
        try:
            need = Requirement(text.rstrip(".,"))
            resolver.resolve([str(need)], target, where, dependencies=False)
        except Unsatisfied as error:
            return {canonicalize_name(need.name): _shorten(error.message, need, target)}
        except InvalidRequirement:
            continue
    return {}


def _shorten(said: str, need: Requirement | None, target: Target) -> str:
    """Return in a sentence what uv said; where several are needed together its own words."""
    reason = said.partition(": ")[2]
    if without := _WITHOUT_WHEEL.fullmatch(reason):
        several, name = without.groups()
        where = f" for Python {target.python} on this machine" if several else ", only a source archive"
        return f"{name} has no wheel{where}"
    if need and re.search(r"matching .* tag|usable wheels", reason):
        return f"{need} has no wheel for Python {target.python} on this machine"
    if need and re.search(r"does not satisfy Python|requires Python", reason):
        return f"no version of {need} is for Python {target.python}"
    return reason


def _package(name: str, wheel: tuple[File, Content] | None, by: Iterable[str]) -> Package:
    """Return a package; one that cannot be had has no files."""
    if wheel is None:
        return Package(name=name, required_by=tuple(sorted(by)))
    file, content = wheel
    files = (SizedFile(path=path, parts=parts_by_path(path, size)) for path, size in content.members.items())
    return Package(
        name=name,
        version=str(file.version),
        files=tuple(files),
        download=content.size,
        required_by=tuple(sorted(by)),
    )
