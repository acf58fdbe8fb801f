"""``audit --bump``: the sha256 of source archives, as GitHub, pip's index or this repository publish them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from groundwork.errors import MegabuildError
from megabuild.configs.overrides import TARBALLS
from pin_audit.bump_context import VARIABLE, BumpContext, Change
from pin_audit.recipe_lines import Line
from pin_audit.request import AuditRequest
from pin_audit.sources.wheel_metadata import offers_of

_ASSET = re.compile(r"https://github\.com/([^/]+/[^/]+)/releases/download/([^/]+)/([^/?#]+)")
_TORCH = "pytorch/pytorch"
#: A Python index has its archives below /packages/, or the recipe names the index's base.
_INDEX = re.compile(r"/packages/|source_base")
_URL = re.compile(
    r"""^\s*(?:-\s+)?(?:(?:url:\s*)?["']?(https?://.*?|\$\{\{.*\}\}/.*?)|url:\s*["']?(\$?\{\{.*\}\}))["']?\s*(?:\s#.*)?$"""
)
_NAME = re.compile(r"\$?\{\{\s*name\b.*?\}\}")
_SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
_SHA256_OF = re.compile(r"""^\s*(?:-\s+)?sha256:\s*["']?(\S+.*?)["']?\s*(?:#.*)?$""")
_PUBLISHED = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The published sha256 of a source archive."""

    sha256: str = ""  #: empty if none is known
    source: str  #: who publishes it, or why none is known
    is_confirmed: bool = True  #: False if the only source is a copy


def hashes(context: BumpContext) -> Iterator[Change]:
    """Yield the sha256 of each source. It is looked up if the version is in the address, in the lines above it."""
    urls: list[str] = []
    address: int | str = "?"  # the line of the last one
    follows_url = False
    for line in context.recipe:
        url = _URL.match(line.text)
        if url is not None:
            if not follows_url:
                urls = []
            urls.append(url[1] or url[2])
            address = line.number
        elif digest := _SHA256_OF.match(line.text):
            found = Digest(source=f"its address (line {address}) has no version that can be read")
            published = [_for_new_version(given, context) for given in urls]
            if any(context.new.version in given for given in published):
                found = find_sha256(published, context.request)
            yield from _set_sha256(context.definitions(line, digest[1]), found, context)
            urls = []
        follows_url = url is not None


def _set_sha256(definitions: Iterable[Line], found: Digest, context: BumpContext) -> Iterator[Change]:
    doubt = "" if found.is_confirmed else "compare it with the file: sha256sum"
    for line in definitions:
        old = _SHA256.search(line.text)
        if old is not None:
            yield from context.set_value(
                "sha256", [line], old=old[0], new=found.sha256, source=found.source, doubt=doubt
            )


def _for_new_version(url: str, context: BumpContext) -> str:
    """Return a recipe's address of a source for the new version, with the variables whose value is known."""
    package = context.request.target.package
    values = {"version": context.new.version, context.key: context.new.version, "name": package}
    url = VARIABLE.sub(lambda variable: values.get(variable[1], variable[1]), url)
    return _NAME.sub(package, url).replace(context.old.version, context.new.version)


def find_sha256(urls: Sequence[str], request: AuditRequest) -> Digest:
    """Return the published sha256 of a source archive."""
    reason = "no source publishes it"
    for url in urls:
        try:
            digest = _published_sha256(url, request)
        except MegabuildError as error:
            reason = error.message
        except (msgspec.MsgspecError, KeyError, TypeError):
            reason = "api.github.com: the answer does not list the release's files"
        else:
            if digest is not None:
                return digest
    return Digest(source=reason)


def _published_sha256(url: str, request: AuditRequest) -> Digest | None:
    """Look a sha256 up. Raises MegabuildError, or MsgspecError, KeyError or TypeError for a wrong answer of GitHub."""
    asset = _ASSET.fullmatch(url)
    if asset is not None:
        return _tarball_of_torch(asset, request) or _asset_on_github(asset, request)
    if _INDEX.search(url):
        return _archive_on_index(url, request)
    return None


def _tarball_of_torch(asset: re.Match[str], request: AuditRequest) -> Digest | None:
    version = request.target.version
    tarball = TARBALLS.get(version)
    if tarball is None or asset[1] != _TORCH or asset[3] != f"pytorch-v{version}.tar.gz":
        return None
    return Digest(sha256=tarball.sha256, source=tarball.source, is_confirmed=tarball.is_confirmed)


def _asset_on_github(asset: re.Match[str], request: AuditRequest) -> Digest | None:
    repository, tag, name = asset.groups()
    address = f"https://api.github.com/repos/{repository}/releases/tags/{tag}"
    answer = msgspec.json.decode(request.services.client.get(address).body)
    digests = {item["name"]: str(item["digest"]) for item in answer["assets"]}
    published = _PUBLISHED.fullmatch(digests.get(name, ""))
    if published is None:
        return None
    return Digest(sha256=published[1], source=f"GitHub's digest of {name}")


def _archive_on_index(url: str, request: AuditRequest) -> Digest | None:
    name = urlsplit(url).path.rpartition("/")[2]
    project = name.rpartition(f"-{request.target.version}")[0]
    if not project:
        return None
    for file in offers_of(project, "pip", "", request.services).files:
        if file.name.lower() == name.lower() and file.sha256:
            return Digest(sha256=file.sha256, source=f"{file.name} on pip's index")
    return None
