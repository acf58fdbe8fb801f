"""What a requirement would install, by what indexes and the ends of wheels say: no wheel is fetched whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from packaging.requirements import Requirement

from gpu_tools.sizes.inside import parts_by_path
from gpu_tools.sizes.tree import File, Package, Sizes, find_requirers, full_version, sort_by_size
from groundwork.errors import ProviderError
from groundwork.network import index, resolver
from groundwork.network.resolver import Target
from groundwork.network.wheel_contents import Contents, required

_AT_ONCE = 8  # ends of wheels on their way


def measure_requirements(texts: Sequence[str], python: str) -> Sizes:
    """Measure what requirements (``torch==2.15.0``) would install into one empty environment on this machine.

    Raises ProviderError: No index answers or has a wheel for one, or what they require does not fit together.
    """
    if addressed := [text for text in texts if Requirement(text).url]:
        raise ProviderError(f"{addressed[0]} names an address", "fetch the wheel and measure the file")
    configured = index.places()
    chosen = resolver.resolve(texts, Target(version=full_version(python)), configured)
    contents = Contents(configured, None)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        wheels = dict(zip((file.project for file in chosen), pool.map(contents.of, chosen), strict=True))

    def requires(name: str) -> Iterable[str]:
        if not name:
            return texts
        return map(str, required(wheels[name])) if name in wheels else ()

    requirers = find_requirers([""], requires, python)
    packages = (
        Package(
            name=file.project,
            version=str(file.version),
            files=tuple(
                File(path=path, parts=parts_by_path(path, size))
                for path, size in wheels[file.project].members.items()
            ),
            download=wheels[file.project].size,
            required_by=tuple(sorted(requirers.get(file.project, set()) - {""})),
        )
        for file in chosen
    )
    return Sizes(
        subject=" ".join(texts),
        kind="requirement",
        packages=sort_by_size(packages),
        fetched=contents.fetched,
    )
