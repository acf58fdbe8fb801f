"""Conditions in few words: ``CUDA 13.0, linux-64``; sets of configs as ``cuda130``, ``linux cpu`` or ``mkl``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from itertools import product

from megabuild.audit.facts import Build, Holds

#: Platform, accelerator, BLAS or provider; empty: any.
_Words = tuple[str, str, str]


def of(holds: Holds, builds: Sequence[Build]) -> str:
    """Return where a fact holds, of all configs that are looked at; an empty string where that is everywhere."""
    parts = [
        f"CUDA {', '.join(holds.cuda)}" if holds.cuda else "",
        ", ".join(holds.platforms),
        f"Python {', '.join(holds.pythons)}" if holds.pythons else "",
        f"PyTorch {holds.torch}" if holds.torch else "",
        holds.marker,
        of_configs(holds.configs, builds),
    ]
    return ", ".join(filter(None, parts))


def of_configs(chosen: Collection[str], configs: Sequence[Build]) -> str:
    """Return in words which of the configs are meant.

    Parameters
    ----------
    chosen:
        Names of configs; none: all of them.
    configs:
        All there are.

    Returns
    -------
    An empty string for all of them; words of which all must hold, ``linux cuda130``; several such groups with commas
    between them; or names, where no words fit.
    """
    wanted = frozenset(chosen)
    if not wanted or wanted >= {config.name for config in configs}:
        return ""
    terms = {words: meant for words, meant in _terms(tuple(configs)).items() if meant <= wanted}
    groups: list[str] = []
    left = wanted
    while left:
        useful = [words for words, meant in terms.items() if meant & left]
        if not useful:
            return ", ".join(sorted(wanted))

        def worth(words: _Words, left: frozenset[str] = left) -> tuple[int, int, bool, int]:
            """Rank what covers much that is left, with few words, those that say most to a reader."""
            return len(terms[words] & left), -sum(map(bool, words)), not words[-1], -len(_text(words))

        best = max(useful, key=worth)
        groups.append(_text(best))
        left -= terms[best]
    return ", ".join(sorted(groups))


@cache
def _terms(configs: tuple[Build, ...]) -> dict[_Words, frozenset[str]]:
    """Return the configs by every combination of words that means some of them, in the order of the alphabet."""
    found: dict[_Words, set[str]] = {}
    for one in configs:
        platforms = ("", one.platform, one.platform.partition("-")[0])
        accelerators = ("", one.accelerator, *(["cuda"] if one.cuda else []))
        for words in product(platforms, accelerators, ("", one.blas, one.provider)):
            if any(words):
                found.setdefault(words, set()).add(one.name)
    return {words: frozenset(found[words]) for words in sorted(found, key=_text)}


def _text(words: _Words) -> str:
    return " ".join(filter(None, words))
