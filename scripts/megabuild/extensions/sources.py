"""Where the extensions' sources are: in a folder that a user names, on an index, or in upstream's repository.

A folder may hold archives as on the index or flat as pip leaves them, checkouts (``pyg-lib``, ``METIS``) with their
submodules, and clones (``pytorch_scatter``, bare ones will do) that have the commit an archive was made from.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.errors import IntegrityError, ProviderError, UsageError
from megabuild.extensions.download import answers
from megabuild.extensions.sdist import Sdist, sdist_of
from megabuild.extensions.table import EXTENSIONS, Extension, Variant, release

BASE = "pyg_source_base"
METIS = "pyg_sparse_metis"
_REMEDY = "put its sources into a folder (README) and name it with --pyg-sources"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What a build will take.

    Parameters
    ----------
    overrides:
        Variant values that lead to the sources.
    left_out:
        Extensions whose sources cannot be had, with the reason.
    notes:
        By extension: a sentence for the plan.
    folders:
        Local folders that are compiled, by extension.
    """

    overrides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)


def checkout_in(folder: Path | None, extension: Extension) -> Path | None:
    """Return the checkout of an extension's sources, or of those it takes in, that a folder has."""
    names = extension.checkout.folders if extension.checkout else ()
    return next((folder / name for name in names if folder and (folder / name).is_dir()), None)


def find(
    recipes: Collection[str],
    variant: Variant,
    given: str | None,
    ask: Callable[[str], str] = answers,
    download: Callable[[Sequence[Sdist]], Path] | None = None,
) -> Sources:
    """Look for the sources of some extensions; nothing is fetched that the engine can fetch by itself.

    Parameters
    ----------
    recipes:
        conda's names of the extensions.
    variant:
        The config's values.
    given:
        The user's folder or URL of source archives, or None.
    ask:
        Says why an address does not answer.
    download:
        Gets archives from pip's index into a folder, for where the usual address does not answer; None to do without.

    Raises
    ------
    UsageError
        ``given`` is neither a URL nor a folder.
    """
    wanted = sorted((one for one in EXTENSIONS if one.conda in recipes), key=lambda one: one.conda)
    return _Search(wanted, variant, given, ask).all(download)


class _Search:
    """One search; what was found so far is kept in it."""

    def __init__(
        self, extensions: Sequence[Extension], variant: Variant, given: str | None, ask: Callable[[str], str]
    ) -> None:
        self._extensions = extensions
        self._variant = variant
        self._url = given if given and "://" in given else None
        self._folder = Path(given).absolute() if given and not self._url else None
        if self._folder and not self._folder.is_dir():
            raise UsageError(f"there is no folder {self._folder}", "--pyg-sources takes a folder or a URL")
        self._ask = ask
        self._asked: dict[str, str] = {}
        self._overrides: dict[str, tuple[str, ...]] = {}
        self._left_out: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._folders: dict[str, Path] = {}

    def all(self, download: Callable[[Sequence[Sdist]], Path] | None) -> Sources:
        """Look for everything."""
        self._archives(download)
        for extension in self._extensions:
            self._commit(extension)
        for extension in self._extensions:
            self._checkout(extension)
        return Sources(
            overrides=self._overrides, left_out=self._left_out, notes=self._notes, folders=self._folders
        )

    @property
    def _first_repository(self) -> str:
        return next(one.repository for one in self._extensions if one.has_sdist)

    def _why(self, url: str) -> str:
        """Say why an address does not answer; each is asked once."""
        if url not in self._asked:
            self._asked[url] = self._ask(url)
        return self._asked[url]

    def _archives(self, download: Callable[[Sequence[Sdist]], Path] | None) -> None:
        """Archives: in the user's folder, at the usual address or the user's, in pip's index."""
        wanted = {one.conda: archive for one in self._extensions if (archive := sdist_of(one, self._variant))}
        folder = self._folder
        if folder and (there := {name for name, one in wanted.items() if one.within(folder)}):
            self._overrides[BASE] = (folder.as_uri(),)
            lacking = wanted.keys() - there
            self._left_out |= {name: f"{folder} has no {wanted[name].file_name}" for name in sorted(lacking)}
            return
        if self._url:
            self._overrides[BASE] = (self._url,)
        base = self._url or self._variant.get(BASE, ("",))[0]
        if not wanted or base.startswith("file:"):
            return
        # one address speaks for all: they are on the same index
        first = next(iter(wanted.values()))
        reason = self._why(f"{base}/{first.name}/{first.file_name}")
        if reason and download is not None and not self._url:
            try:
                self._overrides[BASE] = (download(list(wanted.values())).as_uri(),)
            except (ProviderError, IntegrityError) as error:
                reason = f"{reason}; {error.message}"
            else:
                note = "source archives come from the index that pip is configured to use"
                self._notes |= dict.fromkeys(wanted, note)
                return
        if reason:
            self._left_out |= {
                name: f"{one.name}'s source cannot be had ({reason}): {_REMEDY}"
                for name, one in wanted.items()
            }

    def _commit(self, extension: Extension) -> None:
        """Find the commit an archive was made from: in a clone in the user's folder, or, if need be, upstream."""
        name, key, commit = extension.conda, f"{extension.key}_git", release(extension, self._variant).commit
        if key not in self._variant:
            return
        places = [self._folder / name, self._folder / f"{name}.git"] if self._folder else []
        clone = next((place for place in places if place.is_dir()), None)
        if clone is not None and not _has(clone, commit):
            self._left_out[name] = f"{clone} has no commit {commit}: fetch the tag of that version into it"
        elif clone is not None:
            self._overrides[key] = (clone.as_uri(),)
            self._notes[name] = f"{name}'s source is commit {commit[:12]} of {clone}"
            self._left_out.pop(name, None)
        # one repository speaks for all: they are on the same host
        elif name in self._left_out and not self._why(self._first_repository):
            self._overrides[key] = (f"{extension.repository}.git",)
            self._notes[name] = (
                f"{name}'s archive cannot be had: commit {commit[:12]} of {extension.repository} instead"
            )
            del self._left_out[name]

    def _checkout(self, extension: Extension) -> None:
        """Find sources that are a repository: in the user's folder, one that the config names, or upstream's."""
        about, name = extension.checkout, extension.conda
        if about is None or (extension.has_sdist and self._variant.get(METIS, ("none",))[0] == "none"):
            return
        named = self._variant.get(about.key, ("None",))[0]
        local = checkout_in(self._folder, extension) or (Path(named) if named not in ("None", "") else None)
        if local is not None:
            self._overrides[about.key] = (str(local),)
            self._folders[name] = local
        elif reason := self._why(about.repository):
            if extension.has_sdist:
                self._overrides[METIS] = ("none",)
                self._notes[name] = f"METIS's sources cannot be had ({reason}): {name} is built without METIS"
            else:
                self._left_out[name] = f"its repository cannot be reached ({reason}): {_REMEDY}"


def _has(clone: Path, commit: str) -> bool:
    """Say whether a clone, with or without a work tree, has a commit."""
    asked = ["git", "-C", str(clone), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
