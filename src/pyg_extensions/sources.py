"""Find the extensions' sources: in the user's folder, on an index, or in upstream's repository.

A folder may hold archives, in the index's layout or flat as ``pip download`` writes them, and checkouts with their
submodules (``pyg-lib``, ``METIS``).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from groundwork import redact
from groundwork.address import is_readable
from groundwork.errors import IntegrityError, ProviderError, UsageError
from groundwork.network.client import why_unreachable
from pyg_extensions.fetch_sources import download
from pyg_extensions.find_wheel import fetch
from pyg_extensions.table import (
    EXTENSIONS,
    Checkout,
    Extension,
    ExtensionRelease,
    Variant,
    release,
    value_of,
)

BASE = "pyg_source_base"
METIS = "pyg_sparse_metis"
_NO_METIS = "none"
_NO_FOLDER = ("", "None")  # values of a key that names no checkout
_A_REPOSITORY = EXTENSIONS[0].repository  # all are on the same host: one address tells whether it answers
_REMEDY = "put its sources into DIR and pass --pyg-sources DIR (docs/firewall.md)"
_LARGEST = 64 << 20  # bytes of an archive
_ASKING = 6.0  # seconds to wait for an address to answer

_Releases = Mapping[str, ExtensionRelease]  # by conda's name


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources that a build will use."""

    #: variant keys, and their values that point to the sources
    overrides: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: extensions whose sources are not available, with the reason
    left_out: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  #: sentences for the plan, by extension
    folders: dict[str, Path] = field(default_factory=dict)  #: local folders to compile, by extension
    #: extensions whose sources the build engine fetches from servers
    remote: set[str] = field(default_factory=set)


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
    by_name = {extension.conda: extension for extension in EXTENSIONS}
    extensions = [by_name[name] for name in sorted(recipes) if name in by_name]
    search = _Search(extensions, variant, given)
    search.archives(cache)
    for extension in extensions:
        search.commit(extension)
    for extension in extensions:
        search.checkout(extension)
    for extension in extensions:
        search.note_remote(extension)
    return search.found


class _Search:
    def __init__(self, extensions: Sequence[Extension], variant: Variant, given: str | None) -> None:
        self.found = Sources()
        self._extensions = extensions
        self._variant = variant
        self._url: str | None = None
        self._folder: Path | None = None
        if given and "://" in given:
            if not is_readable(given):
                raise UsageError(
                    f"--pyg-sources: not an address: {redact.text(given)}", "correct the address"
                )
            self._url = given
        elif given:
            self._folder = Path(given).absolute()
            if not self._folder.is_dir():
                raise UsageError(f"{self._folder}: no such folder", "pass a folder or a URL to --pyg-sources")
        self._why = functools.cache(lambda address: why_unreachable(address, _ASKING))

    def archives(self, cache: Path) -> None:
        """Find archives in the user's folder, at the user's or the variant's address, or on pip's index."""
        wanted = self._published()
        if self._folder and self._use_folder(self._folder, wanted):
            return
        if self._url is None:
            self._use_usual_address(wanted, cache)
        elif redact.address(self._url) != self._url:
            self._download_with_login(self._url, wanted, cache)
        else:
            self.found.overrides[BASE] = (self._url,)
            if reason := self._why_no_archive(self._url, wanted):
                self._leave_out(wanted, reason)

    def _published(self) -> _Releases:
        """Return the releases that have a source archive."""
        wanted = {}
        for extension in self._extensions:
            listed = release(extension, self._variant)
            if listed.sha256:
                wanted[extension.conda] = listed
        return wanted

    def _use_folder(self, folder: Path, wanted: _Releases) -> bool:
        """Use the archives of the user's folder; return False if it has none, but perhaps checkouts."""
        lacking = [name for name, listed in wanted.items() if not listed.within(folder)]
        if len(lacking) == len(wanted):
            return False
        self.found.overrides[BASE] = (folder.as_uri(),)
        for name in sorted(lacking):
            self.found.left_out[name] = f"{folder} has no {wanted[name].archive}"
        return True

    def _use_usual_address(self, wanted: _Releases, cache: Path) -> None:
        """Leave the archives to the engine if the variant's address answers; else download them from pip's index."""
        reason = self._why_no_archive(value_of(self._variant, BASE), wanted)
        if not reason:
            return
        try:
            folder = download(list(wanted.values()), cache)
        except (ProviderError, IntegrityError) as error:
            self._leave_out(wanted, f"{reason}; {error.message}")
            return
        self.found.overrides[BASE] = (folder.as_uri(),)
        self.found.notes.update(dict.fromkeys(wanted, "source archives come from pip's index"))

    def _why_no_archive(self, base: str, wanted: _Releases) -> str:
        """Return why the archives below an address cannot be fetched, or an empty string."""
        if not wanted or base.startswith("file:"):
            return ""
        # all archives are on the same index: one address tells whether it answers
        first = next(iter(wanted.values()))
        return self._why(f"{base}/{first.name}/{first.archive}")

    def _download_with_login(self, url: str, wanted: _Releases, cache: Path) -> None:
        """Download the archives here: the engine would write the address, with its password, into the packages."""
        folder = cache / "sdists"
        try:
            for one in wanted.values():
                fetch(archive_address(url, one), folder / one.archive, one.sha256, limit=_LARGEST)
        except (ProviderError, IntegrityError) as error:
            self._leave_out(wanted, error.message)
        else:
            self.found.overrides[BASE] = (folder.as_uri(),)

    def _leave_out(self, names: Iterable[str], reason: str) -> None:
        text = f"its source archive cannot be reached ({reason}): {_REMEDY}"
        self.found.left_out.update(dict.fromkeys(names, text))

    def commit(self, extension: Extension) -> None:
        """Use the commit that an archive was made from if the archive cannot be reached."""
        name = extension.conda
        if name not in self.found.left_out or extension.git_key not in self._variant:
            return
        if self._why(_A_REPOSITORY):
            return
        self.found.overrides[extension.git_key] = (extension.git,)
        commit = release(extension, self._variant).commit
        source = f"commit {commit[:12]} of {extension.repository}"
        self.found.notes[name] = f"{name}'s source archive cannot be reached: using {source}"
        del self.found.left_out[name]

    def checkout(self, extension: Extension) -> None:
        """Find sources that are a git checkout: in the user's folder, in the variant's folder, or upstream."""
        checkout = extension.checkout
        if checkout is None or not self._uses_checkout(extension):
            return
        name = extension.conda
        local = self._local_checkout(checkout)
        if local is not None:
            self.found.overrides[checkout.key] = (str(local),)
            self.found.folders[name] = local
            return
        reason = self._why(checkout.repository)
        if reason and extension.has_sdist:
            self.found.overrides[METIS] = (_NO_METIS,)
            note = f"METIS's repository cannot be reached ({reason}): building without METIS"
            self.found.notes[name] = note
        elif reason:
            self.found.left_out[name] = f"its repository cannot be reached ({reason}): {_REMEDY}"

    def note_remote(self, extension: Extension) -> None:
        """Note whether the engine fetches sources of an extension from a server: its archive, commit or checkout."""
        name = extension.conda
        if name in self.found.left_out:
            return
        from_commit = extension.git_key in self.found.overrides
        from_archive = name in self._published() and not from_commit
        remote_archive = from_archive and not self._value(BASE).startswith("file:")
        remote_checkout = self._uses_checkout(extension) and name not in self.found.folders
        if from_commit or remote_archive or remote_checkout:
            self.found.remote.add(name)

    def _uses_checkout(self, extension: Extension) -> bool:
        """Return whether sources of an extension are a git checkout; torch_sparse can be built without METIS."""
        if extension.checkout is None:
            return False
        return not extension.has_sdist or self._value(METIS, _NO_METIS) != _NO_METIS

    def _value(self, key: str, default: str = "") -> str:
        """Return the value of a key, as found or as in the variant."""
        return next(iter(self.found.overrides.get(key, ())), value_of(self._variant, key, default))

    def _local_checkout(self, checkout: Checkout) -> Path | None:
        """Return the checkout in the user's folder, or the folder that the variant names."""
        local = checkout.within(self._folder) if self._folder else None
        named = value_of(self._variant, checkout.key)
        if local is None and named not in _NO_FOLDER:
            local = Path(named)
        return local
