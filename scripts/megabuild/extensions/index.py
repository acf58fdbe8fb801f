"""Pages of an index in PyG's form: ``<base>/torch-<version>+<cpu|cuNNN>.html``, from a URL or from a local folder.

A page is a plain list of links (pip's find-links). Links are relative or absolute, ``+`` in them may be ``%2B``, and a
fragment ``#sha256=…`` may give the hash. Wheels are built once for each minor version of PyTorch: the page of
2.13.1 links to those of 2.13.0, and where 2.13.1 has no page, that of 2.13.0 serves it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from megabuild.errors import ProviderError, UsageError
from megabuild.extensions.download import read_page

#: The official index.
INDEX = "https://data.pyg.org/whl"

_BUILT_FOR = re.compile(r"pt(?P<major>\d)(?P<minor>\d+)(?P<tag>cpu|cu\d{2,4})")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel that an index offers; all of it is the index's word.

    Parameters
    ----------
    name:
        Normalised: ``torch-scatter``.
    version:
        With its local part: ``2.1.2+pt213cu130``.
    url:
        ``https:``, ``http:`` or ``file:``, without a fragment.
    sha256:
        Where the link gives it.
    """

    name: str
    version: str
    file_name: str
    url: str
    sha256: str | None
    tags: frozenset[Tag]

    @property
    def built_for(self) -> tuple[str, str] | None:
        """PyTorch's minor version and the CUDA tag that the version names: ``("2.13", "cu130")``."""
        match = _BUILT_FOR.fullmatch(Version(self.version).local or "")
        return (f"{match['major']}.{match['minor']}", match["tag"]) if match else None


def cuda_tag(cuda_version: str | None) -> str:
    """Return ``cu130`` for ``13.0``, and ``cpu`` for None."""
    return "cu" + "".join(cuda_version.split(".")[:2]) if cuda_version else "cpu"


class Index:
    """An index, or a local folder with the same content; its pages are read once.

    Parameters
    ----------
    source:
        URL or folder.

    Raises
    ------
    UsageError
        The folder does not exist.
    """

    def __init__(self, source: str = INDEX) -> None:
        self._base = _base(source)
        self._pages: dict[str, str | ProviderError | None] = {}

    def wheels(self, torch_version: str, tag: str) -> tuple[Wheel, ...]:
        """Return all wheels that it offers for a PyTorch; nothing when it has no page for it.

        Parameters
        ----------
        torch_version:
            ``2.13.0``; a local part (``+cu130``) is left out of account.
        tag:
            ``cpu``, ``cu130``.

        Raises
        ------
        ProviderError
            The index does not answer, or answers with an error; it is not asked again.
        """
        exact = Version(torch_version).base_version
        first = ".".join([*exact.split(".")[:2], "0"])
        for version in dict.fromkeys((exact, first)):
            address = f"{self._base}torch-{version}%2B{tag}.html"
            page = self._page(address)
            if page is not None:
                return _links(page, address)
        return ()

    def _page(self, address: str) -> str | None:
        if address not in self._pages:
            try:
                self._pages[address] = read_page(address)
            except ProviderError as error:
                self._pages[address] = error
        page = self._pages[address]
        if isinstance(page, ProviderError):
            raise ProviderError(page.message, page.remedy)
        return page


def _base(source: str) -> str:
    """The index's address with a slash at its end."""
    if urlsplit(source).scheme in ("http", "https", "file"):
        return source.rstrip("/") + "/"
    folder = Path(source).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "name an index: a URL, or a folder with its pages")
    return folder.as_uri().rstrip("/") + "/"


class _Page(HTMLParser):
    """Collects where links lead to; a ``<base>`` in the head changes what they are relative to."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = address
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if not target:
            return
        if tag == "base":
            self.base = urljoin(self.base, target)
        elif tag == "a":
            self.found.append(urljoin(self.base, target.strip()))


def _links(page: str, address: str) -> tuple[Wheel, ...]:
    parser = _Page(address)
    parser.feed(page)
    parser.close()
    wheels = (_wheel(link) for link in dict.fromkeys(parser.found))
    return tuple(wheel for wheel in wheels if wheel is not None)


def _wheel(link: str) -> Wheel | None:
    url, fragment = urldefrag(link)
    file_name = unquote(urlsplit(url).path).rpartition("/")[2]
    try:
        name, version, _, tags = parse_wheel_filename(file_name)
    except (InvalidWheelFilename, InvalidVersion):
        return None  # pages link to other files too
    digest = _SHA256.search(fragment)
    return Wheel(
        name=canonicalize_name(name),
        version=str(version),
        file_name=file_name,
        url=url,
        sha256=digest[1].lower() if digest else None,
        tags=tags,
    )
