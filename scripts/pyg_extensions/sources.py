"""Find the extensions' sources: in the user's folder, on an index, or in upstream's repository.

A folder may hold archives, in the index's layout or flat as ``pip download`` writes them, and checkouts with their
submodules (``pyg-lib``, ``METIS``).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from groundwork import redact
from groundwork.errors import IntegrityError, ProviderError, UsageError
from groundwork.network.client import why_unreachable
from pyg_extensions.fetch_sources import download
from pyg_extensions.find_wheel import fetch
from pyg_extensions.table import EXTENSIONS, Extension, ExtensionRelease, Variant, release

BASE = "pyg_source_base"
METIS = "pyg_sparse_metis"
_REMEDY = "put its sources into DIR and pass --pyg-sources DIR (docs/firewall.md)"
_LARGEST = 64 << 20  # bytes of an archive
_ASKING = 6.0  # seconds to wait for an address to answer


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources that a build will use."""

    #: variant keys, and their values that point to the sources
    overrides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: extensions whose sources are not available, with the reason
    left_out: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  #: sentences for the plan, by extension
    folders: dict[str, Path] = field(default_factory=dict)  #: local folders to compile, by extension


def archive_address(base: str, wanted: ExtensionRelease) -> str:
    """Return the address of an archive below a base with user, password, token or query."""
    parts = urlsplit(base)
    path = f"{parts.path.rstrip('/')}/{wanted.name}/{wanted.archive}"
    return urlunsplit(parts._replace(path=path))


def find(recipes: Collection[str], variant: Variant, given: str | None, cache: Path) -> Sources:
    """Find the sources of extensions (conda's names); the build engine fetches those at an address.

    The user's folder or URL, ``given``, comes first. If the variant's address does not answer, pip's index has the
    archives, which are downloaded into the cache.

    Raises UsageError: ``given`` is neither a URL nor a folder.
    """
    wanted = (extension for extension in EXTENSIONS if extension.conda in recipes)
    extensions = sorted(wanted, key=lambda extension: extension.conda)
    search = _Search(extensions, variant, given)
    search.archives(cache)
    for extension in extensions:
        search.commit(extension)
    for extension in extensions:
        search.checkout(extension)
    return search.found


class _Search:
    def __init__(self, extensions: Sequence[Extension], variant: Variant, given: str | None) -> None:
        self.found = Sources()
        self._extensions = extensions
        self._variant = variant
        self._url = given if given and "://" in given else None
        self._folder = Path(given).absolute() if given and not self._url else None
        if self._folder and not self._folder.is_dir():
            raise UsageError(f"{self._folder}: no such folder", "pass a folder or a URL to --pyg-sources")
        self._why = functools.cache(lambda address: why_unreachable(address, _ASKING))

    def archives(self, cache: Path) -> None:
        """Find archives in the user's folder, at the user's or the variant's address, or on pip's index."""
        releases = {extension.conda: release(extension, self._variant) for extension in self._extensions}
        wanted = {name: listed for name, listed in releases.items() if listed.sha256}
        found, folder = self.found, self._folder
        if folder and (there := {name for name in wanted if wanted[name].within(folder)}):
            found.overrides[BASE] = (folder.as_uri(),)
            lacking = wanted.keys() - there
            found.left_out.update(
                (name, f"{folder} has no {wanted[name].archive}") for name in sorted(lacking)
            )
            return
        if self._url and redact.address(self._url) != self._url:
            self._download_with_login(self._url, list(wanted.values()), cache)
            return
        if self._url:
            found.overrides[BASE] = (self._url,)
        base = self._url or self._variant.get(BASE, ("",))[0]
        if not wanted or base.startswith("file:"):
            return
        # all archives are on the same index: one address tells whether it answers
        first = next(iter(wanted.values()))
        reason = self._why(f"{base}/{first.name}/{first.archive}")
        if reason and not self._url:
            try:
                found.overrides[BASE] = (download(list(wanted.values()), cache).as_uri(),)
                found.notes.update(dict.fromkeys(wanted, "source archives come from pip's index"))
                return
            except (ProviderError, IntegrityError) as error:
                reason = f"{reason}; {error.message}"
        if reason:
            reason = f"its source archive cannot be reached ({reason}): {_REMEDY}"
            found.left_out.update(dict.fromkeys(wanted, reason))

    def _download_with_login(self, url: str, wanted: Sequence[ExtensionRelease], cache: Path) -> None:
        """Download the archives here: the engine would write the address, with its password, into the packages."""
        folder = cache / "sdists"
        try:
            for one in wanted:
                fetch(archive_address(url, one), folder / one.archive, one.sha256, limit=_LARGEST)
        except (ProviderError, IntegrityError) as error:
            reason = f"its source archive cannot be reached ({error.message}): {_REMEDY}"
            self.found.left_out.update((one.conda, reason) for one in self._extensions if one.has_sdist)
        else:
            self.found.overrides[BASE] = (folder.as_uri(),)

    def commit(self, extension: Extension) -> None:
        """Use the commit that an archive was made from if the archive cannot be reached."""
        name, key, commit = extension.conda, f"{extension.key}_git", release(extension, self._variant).commit
        # all repositories are on the same host: one address tells whether it answers
        if key in self._variant and name in self.found.left_out and not self._why(EXTENSIONS[1].repository):
            self.found.overrides[key] = (extension.git,)
            source = f"commit {commit[:12]} of {extension.repository}"
            self.found.notes[name] = f"{name}'s source archive cannot be reached: using {source}"
            del self.found.left_out[name]

    def checkout(self, extension: Extension) -> None:
        """Find sources that are a git checkout: in the user's folder, in the variant's folder, or upstream."""
        about, name, found = extension.checkout, extension.conda, self.found
        if about is None or (extension.has_sdist and self._variant.get(METIS, ("none",))[0] == "none"):
            return
        named = self._variant.get(about.key, ("None",))[0]
        local = about.within(self._folder) if self._folder else None
        if local is None and named not in ("None", ""):
            local = Path(named)
        if local is not None:
            found.overrides[about.key] = (str(local),)
            found.folders[name] = local
        elif reason := self._why(about.repository):
            if extension.has_sdist:
                found.overrides[METIS] = ("none",)
                found.notes[name] = f"METIS's repository cannot be reached ({reason}): building without METIS"
            else:
                found.left_out[name] = f"its repository cannot be reached ({reason}): {_REMEDY}"
