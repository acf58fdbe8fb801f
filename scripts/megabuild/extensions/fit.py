"""Which wheel of an index fits a PyTorch, an accelerator, a Python and a platform; and if none does, why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.tags import Tag, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name
from packaging.version import Version

from megabuild.errors import UsageError
from megabuild.extensions.index import Wheel, cuda_tag

_MACHINES = {"64": "x86_64", "aarch64": "aarch64", "ppc64le": "ppc64le", "arm64": "arm64"}
#: The oldest glibc of a manylinux tag, per machine (PEP 600); names of the older scheme (PEP 599 and before).
_OLDEST_GLIBC = {"x86_64": 5}
_LEGACY = {5: "manylinux1", 12: "manylinux2010", 17: "manylinux2014"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a wheel must fit.

    Parameters
    ----------
    python:
        ``3.12``, or ``3.14t`` for a free-threaded one.
    torch_version:
        ``2.13.0``; a local part counts for nothing.
    cuda_version:
        ``13.0``, or None for PyTorch without CUDA.
    platform:
        conda's name: ``linux-64``.
    glibc:
        The newest that may be asked for.
    """

    python: str
    torch_version: str
    cuda_version: str | None
    platform: str
    glibc: str = "2.28"

    @property
    def tag(self) -> str:
        """``cpu`` or ``cu130``."""
        return cuda_tag(self.cuda_version)

    @property
    def torch_minor(self) -> str:
        """``2.13``."""
        return ".".join(Version(self.torch_version).base_version.split(".")[:2])

    def tags(self) -> tuple[Tag, ...]:
        """All tags of wheels that fit, the best first."""
        version = tuple(int(part) for part in self.python.removesuffix("t").split("."))
        abi = f"cp{version[0]}{version[1]}{'t' if self.python.endswith('t') else ''}"
        return tuple(cpython_tags(version, abis=[abi], platforms=list(_platforms(self.platform, self.glibc))))


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Fitting wheels, the best first, and for an empty list the reason."""

    wheels: tuple[Wheel, ...]
    reason: str


def fitting(name: str, wheels: Sequence[Wheel], target: Target, version: str | None) -> Fit:
    """Choose among an index's wheels.

    Parameters
    ----------
    name:
        The distribution: ``torch_scatter``.
    wheels:
        What the index offers.
    version:
        Only this version (``2.1.2``), or None for the newest.
    """
    mine = [wheel for wheel in wheels if wheel.name == canonicalize_name(name)]
    if not mine:
        return Fit(
            wheels=(), reason=f"the index has no wheel of it for torch {target.torch_minor} {target.tag}"
        )
    problems: list[str] = []
    order = {tag: place for place, tag in enumerate(target.tags())}
    fits: list[tuple[Version, int, str, Wheel]] = []
    for wheel in mine:
        places = [order[tag] for tag in wheel.tags if tag in order]
        problem = _misfit(wheel, target, version, tagged=bool(places))
        if problem:
            problems.append(problem)
        else:
            fits.append((Version(wheel.version), -min(places), wheel.file_name, wheel))
    fits.sort(key=lambda fit: fit[:3], reverse=True)
    return Fit(wheels=tuple(fit[-1] for fit in fits), reason="" if fits else _summary(problems))


def _misfit(wheel: Wheel, target: Target, version: str | None, *, tagged: bool) -> str:
    """Why a wheel does not fit, or an empty string."""
    if wheel.built_for is not None and wheel.built_for != (target.torch_minor, target.tag):
        return f"is for torch {wheel.built_for[0]} {wheel.built_for[1]}"
    if version is not None and Version(wheel.version).public != Version(version).public:
        return f"is version {Version(wheel.version).public}, not {version}"
    if not tagged:
        tags = sorted({f"{tag.interpreter}-{tag.abi}-{tag.platform}" for tag in wheel.tags})
        return f"is for {tags[0]}"
    return ""


def _summary(problems: Sequence[str]) -> str:
    """The reason in one line: of many misfits the nearest, which are those of the right torch and version."""
    distinct = list(dict.fromkeys(problems))
    nearest = next(
        (text for text in ("is for cp", "is version") if any(p.startswith(text) for p in distinct)), ""
    )
    shown = [problem for problem in distinct if problem.startswith(nearest)]
    what = (
        "the index's wheel" if len(problems) == 1 else f"none of the index's {len(problems)} wheels fits; one"
    )
    return f"{what} {shown[0]}"


def _platforms(platform: str, glibc: str) -> Iterator[str]:
    """Platform tags of wheels for a conda platform, the best first."""
    system, _, word = platform.partition("-")
    machine = _MACHINES.get(word, "x86_64" if word == "64" else word)
    if system == "linux":
        newest = int(glibc.split(".")[1])
        for minor in range(newest, _OLDEST_GLIBC.get(machine, 17) - 1, -1):
            yield f"manylinux_2_{minor}_{machine}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{machine}"
        yield f"linux_{machine}"
    elif system == "osx":
        yield from mac_platforms((15, 0), machine)
    elif system == "win":
        yield "win_amd64" if machine == "x86_64" else f"win_{machine}"
    else:
        raise UsageError(f"wheels for '{platform}' are not known here", "use --pyg source")
