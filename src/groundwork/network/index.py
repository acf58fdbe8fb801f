"""Reads pip's configuration and the pages of its package indexes.

Pages are read as HTML of the simple API (PEP 503, 658, 714), which every index serves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit, urlunsplit

from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from groundwork import pip_settings, redact
from groundwork.address import is_readable
from groundwork.errors import ProviderError
from groundwork.network.client import Answer, Client, NetworkError, NotFound, Timeouts
from groundwork.pip_settings import REMEDY, own_pip
from groundwork.user_folders import expanded

#: Upstream's index of wheels of PyTorch Geometric's extensions.
PYG_INDEX = "https://data.pyg.org/whl"
#: pip's help names its default index, wrapped over lines.
_DEFAULT = re.compile(r"--index-url <url>.*?\(default\s+(\S+?)\)", re.DOTALL)
_HASH = re.compile(r"sha256=([0-9a-fA-F]{64})")
#: Returns the page at an address: :meth:`Client.page`, or a cache of it.
Pages = Callable[[str], Answer]


@dataclass(frozen=True, kw_only=True)
class Configured:
    """The indexes, certificates and proxy in pip's configuration."""

    #: addresses of simple indexes, which may hold credentials; the main one first
    indexes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()  #: folders, or addresses of pages that link to files
    certificates: Path | None = None  #: file with trusted certificates
    proxy: str = ""  #: address, or empty

    def client(self, timeouts: Timeouts | None = None) -> Client:
        """Return an HTTP client for the indexes."""
        return Client(timeouts=timeouts, trusted=self.certificates, proxy=self.proxy)


@dataclass(frozen=True, kw_only=True)
class File:
    """A wheel or source archive that an index offers, as the index describes it."""

    name: str
    project: str  #: in canonical form: ``torch-scatter``
    version: Version
    url: str  #: without a fragment; may hold credentials
    tags: frozenset[Tag] = frozenset()  #: tags of a wheel; empty for a source archive
    sha256: str = ""  #: or empty
    metadata: bool = False  #: whether the index has its metadata at ``url`` + ``.metadata``
    metadata_sha256: str = ""
    yanked: bool = False  #: withdrawn by its authors


def configured(pip: tuple[str, ...] | None = None) -> Configured:
    """Ask a pip, by default that of the running Python, for its configuration and default index.

    Raises ProviderError: pip does not answer. Without its answer, no index or another one would be searched.
    """
    return _read(pip or own_pip(), tuple(sorted(os.environ.items())))


@cache  # running pip takes seconds
def _read(pip: tuple[str, ...], environ: tuple[tuple[str, str], ...]) -> Configured:
    environment = dict(environ)
    settings = pip_settings.read(pip, environment, ("download", "install"))
    values = settings.values
    indexes: list[str] = []
    if not settings.is_on("no-index"):
        main = values.get("index-url") or _default_index(pip, environment)
        indexes = [main, *values.get("extra-index-url", "").split()]
    return Configured(
        indexes=_distinct(indexes),
        links=tuple(values.get("find-links", "").split()),
        certificates=_certificates(values.get("cert", ""), environment),
        proxy=_with_scheme(values.get("proxy", "")),
    )


def _distinct(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(address.rstrip("/") for address in addresses))


def _certificates(cert: str, environ: Mapping[str, str]) -> Path | None:
    """Return pip's file of certificates; for a folder of certificates there is SSL_CERT_DIR."""
    named = cert or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    if named and Path(named).is_file():
        return Path(named)
    return None


def _with_scheme(proxy: str) -> str:
    """Return a proxy's address; pip accepts ``HOST:PORT``, too."""
    if not proxy or "://" in proxy:
        return proxy
    return f"http://{proxy}"


def _default_index(pip: tuple[str, ...], environ: Mapping[str, str]) -> str:
    default = _DEFAULT.search(pip_settings.ask(pip, environ, "download", "--help"))
    if default is None:
        raise ProviderError(
            f"pip of {pip[0]} does not name its default index",
            "name an index: pip config set global.index-url ADDRESS",
        )
    return default[1]


def places(more: Sequence[str] = (), index: str | None = None) -> Configured:
    """Return pip's configuration with ``more`` addresses and folders added, or with ``index`` as the only index."""
    settings = configured()
    addresses = [*settings.indexes, *more]
    links = list(settings.links)
    if index:
        addresses = [index]
        links = []
    indexes: list[str] = []
    for address in addresses:
        if "://" in address:
            indexes.append(address)
        else:
            links.append(address)
    return replace(settings, indexes=_distinct(indexes), links=tuple(links))


def offered(project: str, where: Configured, fetch: Pages) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """Return all wheels and source archives of a project, and the errors of unreadable indexes.

    A file that several indexes have counts for each: one may list a file that it no longer has.

    Raises NetworkError: All indexes are unreadable, or have no such project (NotFound).
    """
    name = canonicalize_name(project)
    pages = [f"{index}/{name}/" for index in where.indexes]
    files: dict[str, File] = {}  # by address
    troubles: list[str] = []
    for address in (*pages, *where.links):
        try:
            for file in listed(address, fetch):
                if file.project == name:
                    files.setdefault(file.url, file)
        except NotFound:
            continue
        except NetworkError as error:
            troubles.append(error.message)
    if files:
        return tuple(files.values()), tuple(troubles)
    if troubles:
        raise NetworkError("; ".join(troubles), REMEDY)
    raise NotFound(f"{name}: not found on any index of pip's configuration", REMEDY)


def listed(address: str, fetch: Pages) -> Sequence[File]:
    """Return the files that a page links to or a folder holds; raises NetworkError."""
    if "://" not in address:
        return _in_folder(expanded(address))
    if not is_readable(address):
        raise NetworkError(f"{redact.text(address)}: not an address", REMEDY)
    if urlsplit(address).scheme == "file":
        return _on_local_page(address)
    return _on_page(address, fetch)


def _in_folder(folder: Path) -> Sequence[File]:
    if not folder.exists():
        raise NetworkError(f"{folder}: no such folder", REMEDY)
    try:
        wheels = sorted(path for path in folder.iterdir() if path.suffix == ".whl")
    except NotADirectoryError:
        return ()
    except OSError as error:
        raise NetworkError(f"{folder}: cannot be read: {error.strerror}", REMEDY) from error
    files: list[File] = []
    for wheel in wheels:
        file = linked(wheel.as_uri(), {})
        if file is not None:
            files.append(file)
    return files


def _on_local_page(address: str) -> Sequence[File]:
    page = local_path(address)
    if address.endswith("/"):
        page /= "index.html"
    if not page.is_file():
        return ()
    return links(page.read_text(encoding="utf-8", errors="replace"), page.as_uri())


def _on_page(address: str, fetch: Pages) -> Sequence[File]:
    answer = fetch(address)
    text = answer.body.decode("utf-8", errors="replace")
    files = links(text, answer.url, address)
    if not files:
        raise NetworkError(f"{redact.address(address)}: not a page of a package index in HTML", REMEDY)
    # a page from the network must not lead to files of this machine
    return [file for file in files if urlsplit(file.url).scheme in ("http", "https")]


def links(page: str, address: str, index: str = "") -> tuple[File, ...]:
    """Return the wheels and source archives that an HTML page at ``address`` links to, in order.

    Addresses on the server of ``index`` get its credentials, as from pip.
    """
    parser = _Page(address, index)
    parser.feed(page)
    parser.close()
    return tuple(parser.files)


class _Page(HTMLParser):
    """Collects linked files; ``<base>`` in the head changes the base of relative links."""

    def __init__(self, address: str, index: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = address
        self.index = index
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        link = (attributes.get("href") or "").strip()
        with suppress(ValueError):  # not an address
            target = urljoin(self.base, link)
            match tag:
                case "base":
                    self.base = target
                case "a":
                    self._add(linked(with_user(target, self.index), attributes))

    def _add(self, file: File | None) -> None:
        if file is not None:
            self.files.append(file)


def linked(link: str, attributes: Mapping[str, str | None]) -> File | None:
    """Return the wheel or source archive of a link with these attributes, or None."""
    url, fragment = urldefrag(link)
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    tags: frozenset[Tag] = frozenset()
    try:
        if name.endswith(".whl"):
            project, version, _, tags = parse_wheel_filename(name)
        else:
            project, version = parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
    metadata = _metadata_of(attributes)
    return File(
        name=name,
        project=project,
        version=version,
        tags=tags,
        url=url,
        sha256=_sha256_in(fragment),
        metadata=metadata is not None,
        metadata_sha256=_sha256_in(metadata or ""),
        yanked="data-yanked" in attributes,
    )


def _metadata_of(attributes: Mapping[str, str | None]) -> str | None:
    """Return the value of the attribute for a wheel's metadata; None if the index does not have them."""
    # PEP 714's name, then PEP 658's, which some indexes still use
    values = [
        attributes[key] for key in ("data-core-metadata", "data-dist-info-metadata") if key in attributes
    ]
    if not values or values[0] == "false":
        return None
    return values[0] or ""


def _sha256_in(text: str) -> str:
    match = _HASH.search(text)
    if match is None:
        return ""
    return match[1].lower()


def best_first(files: Iterable[File], python: str, platforms: Sequence[str] = ()) -> list[File]:
    """Return the wheels that fit a Python ("3.13t"), the newest version first, then the most specific tag.

    ``platforms``: tags of the machine that the wheels are for, the best first; default: this machine's.
    """
    version = python.removesuffix("t")
    numbers = [int(part) for part in version.split(".")]
    tags = list(platforms) or list(platform_tags())
    own = cpython_tags(numbers, abis=[f"cp{python.replace('.', '')}"], platforms=tags)
    interpreter = f"cp{version.replace('.', '')}"
    shared = compatible_tags(numbers, interpreter=interpreter, platforms=tags)
    rank = {tag: number for number, tag in enumerate((*own, *shared))}

    def preference(file: File) -> tuple[Version, int]:
        best = min(rank[tag] for tag in file.tags & rank.keys())
        return file.version, -best

    fitting = [file for file in files if not rank.keys().isdisjoint(file.tags)]
    return sorted(fitting, key=preference, reverse=True)


def local_path(url: str) -> Path:
    """Return the path of a ``file:`` address."""
    return Path(unquote(urlsplit(url).path))


def with_user(url: str, index: str) -> str:
    """Return an address with the index's credentials if both are on the same server, as pip does."""
    parts = urlsplit(url)
    of_index = urlsplit(index)
    user, at, host = of_index.netloc.rpartition("@")
    if not at or (parts.scheme, parts.netloc) != (of_index.scheme, host):
        return url
    return urlunsplit(parts._replace(netloc=f"{user}@{host}"))
