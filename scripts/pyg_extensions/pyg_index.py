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
from groundwork.errors import ProviderError, UsageError
from groundwork.network.client import Client, NetworkError, NotFound, Timeouts
from groundwork.network.index import PYG_INDEX, File, listed, local_path
from groundwork.user_folders import expanded

_TIMEOUTS = Timeouts(read=20.0, total=20.0)
_FORBIDDEN = 403  # HTTP status
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
        return "cu" + "".join(self.cuda_version.split(".")[:2]) if self.cuda_version else "cpu"

    @property
    def torch_minor(self) -> str:
        """``2.13``."""
        return ".".join(Version(self.torch_version).base_version.split(".")[:2])

    def tags(self) -> tuple[Tag, ...]:
        """Return all tags that a fitting wheel can have, the best first."""
        version = tuple(int(part) for part in self.python.removesuffix("t").split("."))
        abi = f"cp{version[0]}{version[1]}{'t' if self.python.endswith('t') else ''}"
        return tuple(cpython_tags(version, abis=[abi], platforms=list(_platforms(self.platform, self.glibc))))


class PygIndex:
    """An index at a URL, or a local folder with the same content; each page is read once.

    Raises UsageError: The folder does not exist.
    """

    def __init__(self, source: str = PYG_INDEX) -> None:
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
        exact = Version(torch_version).base_version
        first = ".".join([*exact.split(".")[:2], "0"])
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
    except NetworkError as error:
        return () if isinstance(error, NotFound) else error
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
    ranks = {tag: -rank for rank, tag in enumerate(target.tags())}
    misfits: list[tuple[int, str]] = []
    fits: list[tuple[Version, int, str, File]] = []
    for wheel in mine:
        best = max((ranks[tag] for tag in wheel.tags if tag in ranks), default=None)
        if misfit := _misfit(name, wheel, target, version, tagged=best is not None):
            misfits.append(misfit)
        elif best is not None:
            fits.append((wheel.version, best, wheel.name, wheel))
    if fits:
        return [wheel for *_, wheel in sorted(fits, key=lambda fit: fit[:3], reverse=True)], ""
    if not mine:
        return [], f"the index has no {name} for torch {target.torch_minor} {target.tag}"
    return [], f"no wheel of the index fits; the closest {min(misfits)[1]}"


def _misfit(
    name: str, wheel: File, target: WheelTarget, version: str | None, *, tagged: bool
) -> tuple[int, str] | None:
    """Return why a wheel does not fit, after a number that is lower the closer it is; None if it fits."""
    if name in KERNELS and all(tag.platform == "any" for tag in wheel.tags):
        return 0, f"({wheel.version}) has {empty(name).reason}"
    match = _BUILT_FOR.fullmatch(wheel.version.local or "")
    its = match and f"{match['major']}.{match['minor']} {match['tag']}"
    if its and its != f"{target.torch_minor} {target.tag}":
        return 3, f"is for torch {its}"
    if version is not None and wheel.version.public != Version(version).public:
        return 2, f"is version {wheel.version.public}, not {version}"
    if not tagged:
        return 1, f"is for {min(str(tag) for tag in wheel.tags)}"
    return None


def _platforms(platform: str, glibc: str) -> Iterator[str]:
    """Yield the wheel tags of a conda platform, the best first."""
    system, _, word = platform.partition("-")
    machine = "x86_64" if word == "64" else word
    if system == "linux":
        newest = int(glibc.split(".")[1]) if glibc else 0
        for minor in range(newest, _OLDEST_GLIBC - 1, -1):
            yield f"manylinux_2_{minor}_{machine}"
        if newest >= _OLDEST_GLIBC:
            yield f"manylinux2014_{machine}"
        yield f"linux_{machine}"
    elif system == "osx":
        yield from mac_platforms((15, 0), machine)
    else:
        raise UsageError(
            f"{platform}: no wheels are known for this platform", "compile instead: --pyg source"
        )
