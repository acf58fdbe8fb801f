"""Where the extensions' sources come from, and whether they can be had at all: asked before anything is compiled."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from megabuild.errors import UsageError

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
    found: list[str] = []

    def ask() -> None:
        try:
            with httpx.Client(timeout=_SECONDS, follow_redirects=True) as client:
                response = client.head(url)
                found.append("" if response.is_success else f"HTTP status {response.status_code}")
        except (httpx.HTTPError, OSError, ValueError) as error:
            found.append(str(error) or type(error).__name__)

    # A name server that never answers is beyond the client's timeouts, but not of a thread that is given up.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS + 1)
    return found[0] if found else f"no answer within {_SECONDS:.0f} seconds"


def find(
    recipes: Mapping[str, Path],
    variant: Mapping[str, tuple[str, ...]],
    given: str | None,
    ask: Callable[[str], str] = answers,
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
        archives as checkouts with their submodules.
    ask:
        Says why an address does not answer.

    Raises
    ------
    UsageError
        ``given`` is neither a URL nor a folder.
    """
    overrides, left_out, folders = dict[str, tuple[str, ...]](), dict[str, str](), dict[str, Path]()
    notes: dict[str, str] = {}
    folder = _folder(given)
    base = folder.as_uri() if folder else given or variant.get(BASE, ("",))[0]
    if given:
        overrides[BASE] = (base,)
    checked: dict[str, str] = {}

    def why(url: str) -> str:
        if url not in checked:
            checked[url] = ask(url)
        return checked[url]

    for extension, recipe in recipes.items():
        archive = _archive(extension, variant)
        if archive:
            name, path = archive
            if folder is not None:
                there = any((folder / place).is_file() for place in (path, Path(path).name))
                missing = "" if there else f"{folder} has no {Path(path).name}"
            elif base.startswith("file:"):
                missing = ""
            else:
                # one address speaks for all: they are on the same index
                first = next(path for path in _archives(recipes, variant) if path)
                missing = why(f"{base}/{first}")
                missing = f"{name}'s source cannot be had ({missing}): {_REMEDY}" if missing else ""
            if missing:
                left_out[extension] = missing
        if extension not in _CHECKOUTS:
            continue
        key, names = _CHECKOUTS[extension]
        local = next((folder / name for name in names if folder and (folder / name).is_dir()), None)
        named = variant.get(key, ("None",))[0]
        if local is None and named not in ("None", ""):
            local = Path(named)
        if local is not None:
            overrides[key], folders[extension] = (str(local),), local
            continue
        repositories = re.findall(r"^\s*-?\s*git:\s*(\S+)", recipe.read_text(encoding="utf-8"), re.MULTILINE)
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


def _archive(extension: str, variant: Mapping[str, tuple[str, ...]]) -> tuple[str, str] | None:
    """Return the name on PyPI of an extension that has an archive there, and the archive's path below the base."""
    key = extension.replace("pytorch_", "pyg_")
    if f"{key}_sha256" not in variant:
        return None
    name = extension.replace("pytorch_", "torch_")
    return name, f"{name}/{name}-{variant[f'{key}_version'][0]}.tar.gz"


def _archives(recipes: Mapping[str, Path], variant: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [found[1] for extension in recipes if (found := _archive(extension, variant))]
