"""Where the extensions' sources come from, and whether they can be had at all: asked before anything is compiled."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from megabuild.errors import IntegrityError, ProviderError, UsageError
from megabuild.network.client import why_silent
from megabuild.run.pyg.sdists import Sdist

BASE = "pyg_source_base"
METIS = "pyg_sparse_metis"
_SECONDS = 6.0
#: The extension that is built from a repository, and the one that takes METIS in: which variant key names a checkout,
#: and how its folder is called below the one with the archives.
_CHECKOUTS = {
    "pyg-lib": ("pyg_lib_source_path", ("pyg-lib", "pyg_lib")),
    "pytorch_sparse": ("pyg_metis_source_path", ("METIS", "metis")),
}
_REMEDY = "put its sources into a folder (README) and name it with --pyg-sources"


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What was found out.

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


def answers(url: str) -> str:
    """Return an empty string if an address answers within a few seconds, else the reason why not."""
    return why_silent([url], _SECONDS)


def find(
    recipes: Mapping[str, Path],
    variant: Mapping[str, tuple[str, ...]],
    given: str | None,
    ask: Callable[[str], str] = answers,
    download: Callable[[Sequence[Sdist]], Path] | None = None,
) -> Sources:
    """Look for the sources of some extensions.

    Parameters
    ----------
    recipes:
        Recipe files by extension.
    variant:
        The config's values.
    given:
        The user's folder or URL of source archives, or None. In a folder, ``pyg-lib`` and ``METIS`` may lie beside the
        archives as checkouts with their submodules, and clones such as ``pytorch_scatter`` in place of archives.
    ask:
        Says why an address does not answer.
    download:
        Gets archives from pip's index into a folder, for where the usual address does not answer; None to do without.

    Raises
    ------
    UsageError
        ``given`` is neither a URL nor a folder.
    """
    checked: dict[str, str] = {}

    def why(url: str) -> str:
        if url not in checked:
            checked[url] = ask(url)
        return checked[url]

    folder = _folder(given)
    archives = _archives(recipes, variant, given, folder, why, download)
    clones = _clones(recipes, variant, folder, archives.left_out, why)
    checkouts = _checkouts(recipes, variant, folder, why)
    unhad = {name: reason for name, reason in archives.left_out.items() if git_key(name) not in clones.overrides}
    return Sources(
        overrides={**archives.overrides, **clones.overrides, **checkouts.overrides},
        left_out={**checkouts.left_out, **unhad, **clones.left_out},
        notes={**archives.notes, **clones.notes, **checkouts.notes},
        folders=checkouts.folders,
    )


def _archives(
    recipes: Mapping[str, Path],
    variant: Mapping[str, tuple[str, ...]],
    given: str | None,
    folder: Path | None,
    why: Callable[[str], str],
    download: Callable[[Sequence[Sdist]], Path] | None,
) -> Sources:
    """Find the extensions' archives: in the user's folder, at the usual address or the user's, in pip's index."""
    wanted = {extension: sdist for extension in recipes if (sdist := _sdist(extension, variant))}
    if folder is not None and (there := {name for name, sdist in wanted.items() if _in(folder, sdist)}):
        lacking = {name: f"{folder} has no {sdist.file_name}" for name, sdist in wanted.items() if name not in there}
        return Sources(overrides={BASE: (folder.as_uri(),)}, left_out=lacking)
    base = given if given and folder is None else variant.get(BASE, ("",))[0]
    overrides = {BASE: (base,)} if given and folder is None else {}
    if not wanted or base.startswith("file:"):
        return Sources(overrides=overrides)
    # one address speaks for all: they are on the same index
    first = next(iter(wanted.values()))
    reason = why(f"{base}/{first.name}/{first.file_name}")
    if not reason:
        return Sources(overrides=overrides)
    if download is not None and not overrides:
        try:
            found = download(list(wanted.values()))
        except (ProviderError, IntegrityError) as error:
            reason = f"{reason}; {error.message}"
        else:
            note = "source archives come from the index that pip is configured to use"
            return Sources(overrides={BASE: (found.as_uri(),)}, notes=dict.fromkeys(wanted, note))
    unhad = {
        extension: f"{sdist.name}'s source cannot be had ({reason}): {_REMEDY}" for extension, sdist in wanted.items()
    }
    return Sources(overrides=overrides, left_out=unhad)


def git_key(extension: str) -> str:
    """Return the variant key that names the repository an extension's archive was made from."""
    return f"{extension.replace('pytorch_', 'pyg_')}_git"


def _clones(
    recipes: Mapping[str, Path],
    variant: Mapping[str, tuple[str, ...]],
    folder: Path | None,
    unhad: Mapping[str, str],
    why: Callable[[str], str],
) -> Sources:
    """Find the commits that archives were made from: in a clone in the user's folder, or, if need be, upstream."""
    overrides, left_out, notes = dict[str, tuple[str, ...]](), dict[str, str](), dict[str, str]()
    silent: bool | None = None
    for extension in recipes:
        key = git_key(extension)
        if key not in variant:
            continue
        commit = variant[key.replace("_git", "_commit")][0]
        places = [folder / extension, folder / f"{extension}.git"] if folder else []
        clone = next((place for place in places if place.is_dir()), None)
        if clone is not None:
            if _has(clone, commit):
                overrides[key] = (clone.as_uri(),)
                notes[extension] = f"{extension}'s source is commit {commit[:12]} of {clone}"
            else:
                left_out[extension] = f"{clone} has no commit {commit}: fetch the tag of that version into it"
        elif extension in unhad:
            text = recipes[extension].read_text(encoding="utf-8")
            about = re.search(r"^\s*repository:\s*(\S+)", text, re.MULTILINE)
            if about and silent is None:
                silent = bool(why(about[1]))  # one speaks for all: they are on the same host
            if about and not silent:
                overrides[key] = (f"{about[1]}.git",)
                notes[extension] = f"{extension}'s archive cannot be had: commit {commit[:12]} of {about[1]} instead"
    return Sources(overrides=overrides, left_out=left_out, notes=notes)


def _has(clone: Path, commit: str) -> bool:
    """Say whether a clone, with or without a work tree, has a commit."""
    asked = ["git", "-C", str(clone), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _checkouts(
    recipes: Mapping[str, Path],
    variant: Mapping[str, tuple[str, ...]],
    folder: Path | None,
    why: Callable[[str], str],
) -> Sources:
    """Find what is built from a repository: a checkout in the user's folder, one that the config names, or its host."""
    overrides, left_out, folders = dict[str, tuple[str, ...]](), dict[str, str](), dict[str, Path]()
    notes: dict[str, str] = {}
    for extension in recipes.keys() & _CHECKOUTS.keys():
        key, names = _CHECKOUTS[extension]
        local = next((folder / name for name in names if folder and (folder / name).is_dir()), None)
        named = variant.get(key, ("None",))[0]
        if local is None and named not in ("None", ""):
            local = Path(named)
        if local is not None:
            overrides[key], folders[extension] = (str(local),), local
            continue
        text = recipes[extension].read_text(encoding="utf-8")
        repositories = re.findall(r"^\s*-?\s*git:\s*(\S+)", text, re.MULTILINE)
        reason = next((reason for url in repositories if (reason := why(url))), "")
        if not reason or (extension == "pytorch_sparse" and variant.get(METIS, ("none",))[0] == "none"):
            continue
        if extension == "pytorch_sparse":
            overrides[METIS] = ("none",)
            notes[extension] = f"METIS's sources cannot be had ({reason}): {extension} is built without METIS"
        else:
            left_out[extension] = f"its repository cannot be reached ({reason}): {_REMEDY}"
    return Sources(overrides=overrides, left_out=left_out, notes=notes, folders=folders)


def _folder(given: str | None) -> Path | None:
    if given is None or "://" in given:
        return None
    folder = Path(given).absolute()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", "--pyg-sources takes a folder or a URL")
    return folder


def _sdist(extension: str, variant: Mapping[str, tuple[str, ...]]) -> Sdist | None:
    """Return the archive of an extension that has one on PyPI."""
    key = extension.replace("pytorch_", "pyg_")
    if f"{key}_sha256" not in variant:
        return None
    return Sdist(
        name=extension.replace("pytorch_", "torch_"),
        version=variant[f"{key}_version"][0],
        sha256=variant[f"{key}_sha256"][0],
    )


def _in(folder: Path, sdist: Sdist) -> bool:
    """Say whether a folder has an archive, as on the index or flat as pip leaves it."""
    return any((folder / place).is_file() for place in (f"{sdist.name}/{sdist.file_name}", sdist.file_name))
