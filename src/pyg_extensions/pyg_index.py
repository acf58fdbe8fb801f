"""Read an index of PyG's wheels and select those that fit a PyTorch, an accelerator, a Python and a platform.

A page ``<base>/torch-<version>+<cpu|cuNNN>.html``, at a URL or in a local folder, is a plain list of links (pip's
find-links). PyG builds wheels once for each minor version of PyTorch: the page of 2.13.1 links to the wheels of 2.13.0.
If 2.13.1 has no page, the page of 2.13.0 is used.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from packaging.tags import Tag, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name
from packaging.version import Version

from cuda_code.judge import empty
from cuda_code.kernels import KERNELS
from groundwork import redact
from groundwork.address import is_readable
from groundwork.errors import ProviderError, UsageError
from groundwork.names import accelerator
from groundwork.network.client import Client, NetworkError, NotFound, Timeouts
from groundwork.network.index import PYG_INDEX, File, listed, local_path
from groundwork.user_folders import expanded

_TIMEOUTS = Timeouts(read=20.0, total=20.0)
_FORBIDDEN = 403  # HTTP status
_MACHINES = {"64": "x86_64"}  # conda's name that differs from Python's
_BUILT_FOR = re.compile(r"pt(?P<major>\d)(?P<minor>\d+)(?P<tag>cpu|cu\d{2,4})")
#: The minor version of the oldest glibc in wheels for today's PyTorch, whose tag may have the older name manylinux2014.
_OLDEST_GLIBC = 17


@dataclass(frozen=True, kw_only=True)
class WheelTarget:
    """The Python, PyTorch and platform that a wheel must fit."""

    python: str  #: ``3.12``, or ``3.14t`` for a free-threaded one
    torch_version: str  #: ``2.13.0``; a local part is ignored
    cuda_version: str | None  #: ``13.0``, or None for PyTorch without CUDA
    platform: str  #: conda's name: ``linux-64``
    #: the newest glibc that a wheel may require; empty on musl, where no such wheel works
    glibc: str = "2.28"

    @property
    def tag(self) -> str:
        """``cpu`` or ``cu130``."""
        return accelerator(self.cuda_version).replace("cuda", "cu")

    @property
    def torch_minor(self) -> str:
        """``2.13``."""
        version = Version(self.torch_version)
        return f"{version.major}.{version.minor}"

    def tags(self) -> tuple[Tag, ...]:
        """Return all tags that a fitting wheel can have, the best first."""
        major, minor = self.python.removesuffix("t").split(".")
        abi = f"cp{self.python.replace('.', '')}"
        platforms = list(_platforms(self.platform, self.glibc))
        return tuple(cpython_tags((int(major), int(minor)), abis=[abi], platforms=platforms))


class PygIndex:
    """An index at a URL, or a local folder with the same content; each page is read once.

    Raises UsageError: The URL cannot be taken apart, or the folder does not exist.
    """

    def __init__(self, source: str = PYG_INDEX) -> None:
        if not is_readable(source):
            raise UsageError(f"{redact.text(source)}: not an address of an index", "correct the address")
        if urlsplit(source).scheme not in ("http", "https", "file"):
            folder = expanded(source)
            if not folder.is_dir():
                raise UsageError(
                    f"{folder}: no such folder", "pass the URL of an index, or a folder with its pages"
                )
            source = folder.as_uri()
        self._base = source.rstrip("/") + "/"
        self._read = functools.cache(read_page)

    def wheels(self, torch_version: str, tag: str) -> tuple[File, ...]:
        """Return all wheels for a PyTorch and a tag (``cpu``, ``cu130``); none if the index has no page for them.

        Raises ProviderError: The index does not answer, or answers with an error; later calls do not ask it again.
        """
        parsed = Version(torch_version)
        exact = parsed.base_version
        first = f"{parsed.major}.{parsed.minor}.0"
        refused: ProviderError | None = None
        for version in dict.fromkeys((exact, first)):
            page = self._read(f"{self._base}torch-{version}%2B{tag}.html")
            if isinstance(page, NetworkError) and page.status == _FORBIDDEN:
                refused = page
            elif isinstance(page, ProviderError):
                raise ProviderError(page.message, page.remedy)
            elif page:
                return page
        # PyG's own storage bucket, which forbids listing, answers so for a missing page; others may ask for a password
        if refused and not self._base.startswith(PYG_INDEX):
            raise ProviderError(refused.message, refused.remedy)
        return ()


def read_page(address: str) -> tuple[File, ...] | ProviderError:
    """Return the wheels of a page, none if it does not exist, or the error to raise whenever it is asked for."""
    try:
        files = dict.fromkeys(listed(address, Client(timeouts=_TIMEOUTS).get))
        return tuple(file for file in files if file.tags)
    except NotFound:
        return ()
    except NetworkError as error:
        return error
    except OSError as error:
        reason = f"{local_path(address)}: cannot read: {error.strerror}"
        return ProviderError(reason, "check the folder's permissions and the disk")


def fitting(
    name: str, wheels: Sequence[File], target: WheelTarget, version: str | None
) -> tuple[list[File], str]:
    """Select the fitting wheels of a distribution, of one version or (None) of any version, the best first.

    Without any, give the reason why none fits.
    """
    mine = [wheel for wheel in wheels if wheel.project == canonicalize_name(name)]
    if not mine:
        return [], f"the index has no {name} for torch {target.torch_minor} {target.tag}"
    tags = {tag: rank for rank, tag in enumerate(target.tags())}
    misfits: list[_Misfit] = []
    ranks: dict[File, int] = {}  # of fitting wheels; 0 is the best
    for wheel in mine:
        fitting_tags = tags.keys() & wheel.tags
        misfit = _misfit(name, wheel, target, version, tagged=bool(fitting_tags))
        if misfit:
            misfits.append(misfit)
        else:
            ranks[wheel] = min(tags[tag] for tag in fitting_tags)
    if not ranks:
        return [], f"no wheel of the index fits; the closest {min(misfits).reason}"
    return sorted(ranks, key=lambda wheel: (wheel.version, -ranks[wheel], wheel.name), reverse=True), ""


@dataclass(frozen=True, order=True)
class _Misfit:
    distance: int  #: lower is closer to a wheel that fits
    reason: str


def _misfit(
    name: str, wheel: File, target: WheelTarget, version: str | None, *, tagged: bool
) -> _Misfit | None:
    """Return why a wheel does not fit, or None if it fits; ``tagged``: its tags do."""
    if name in KERNELS and all(tag.platform == "any" for tag in wheel.tags):
        return _Misfit(0, f"({wheel.version}) has {empty(name).reason}")
    its = _built_for(wheel)
    if its and its != f"{target.torch_minor} {target.tag}":
        return _Misfit(3, f"is for torch {its}")
    # as numbers: 0.8 is 0.8.0
    if version is not None and Version(wheel.version.public) != Version(Version(version).public):
        return _Misfit(2, f"is version {wheel.version.public}, not {version}")
    if not tagged:
        return _Misfit(1, f"is for {min(map(str, wheel.tags))}")
    return None


def _built_for(wheel: File) -> str:
    """Return the PyTorch in a wheel's version, such as ``2.13 cu130``, or an empty string."""
    match = _BUILT_FOR.fullmatch(wheel.version.local or "")
    if match is None:
        return ""
    return f"{match['major']}.{match['minor']} {match['tag']}"


def _platforms(platform: str, glibc: str) -> Iterator[str]:
    """Yield the wheel tags of a conda platform, the best first."""
    system, _, word = platform.partition("-")
    machine = _MACHINES.get(word, word)
    if system == "linux":
        yield from _linux_platforms(machine, glibc)
    elif system == "osx":
        yield from mac_platforms((15, 0), machine)
    else:
        raise UsageError(
            f"{platform}: no wheels are known for this platform", "compile instead: --pyg source"
        )


def _linux_platforms(machine: str, glibc: str) -> Iterator[str]:
    newest = int(glibc.split(".")[1]) if glibc else 0
    for minor in range(newest, _OLDEST_GLIBC - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
    if newest >= _OLDEST_GLIBC:
        yield f"manylinux2014_{machine}"
    yield f"linux_{machine}"
