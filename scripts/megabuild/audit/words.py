"""Conditions in few words: ``CUDA 13.0, linux-64``; sets of configs as ``cuda130``, ``linux cpu`` or ``mkl``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from megabuild.audit.facts import Build, Holds


@dataclass(frozen=True)
class _Term:
    """Some words, and the configs for which all of them hold."""

    words: tuple[str, str, str]  # platform, accelerator, BLAS or provider; empty: any
    members: frozenset[str]

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if word)

    def worth(self, covered: frozenset[str]) -> tuple[int, int, bool, int]:
        """Say how well it serves: much that is not covered yet, few words, those that say most to a reader."""
        few = -sum(map(bool, self.words))
        return len(self.members - covered), few, not self.words[-1], -len(self.text)


def of(holds: Holds, builds: Sequence[Build]) -> str:
    """Return where a fact holds; an empty string where that is everywhere.

    Parameters
    ----------
    builds:
        All configs that are looked at.
    """
    parts = [
        f"CUDA {', '.join(holds.cuda)}" if holds.cuda else "",
        ", ".join(holds.platforms),
        f"Python {', '.join(holds.pythons)}" if holds.pythons else "",
        f"PyTorch {holds.torch}" if holds.torch else "",
        holds.marker,
        holds.elsewhere,
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
    terms = [term for term in _terms(tuple(configs)) if term.members <= wanted]
    covered: frozenset[str] = frozenset()
    groups: list[str] = []
    while covered != wanted:
        useful = [term for term in terms if term.members - covered]
        if not useful:
            return ", ".join(sorted(wanted))
        best = max(useful, key=lambda term: term.worth(covered))
        groups.append(best.text)
        covered |= best.members
    return ", ".join(sorted(groups))


@cache
def _terms(configs: tuple[Build, ...]) -> list[_Term]:
    """Return every combination of words that means something, in the order of the alphabet."""
    axes = [_axis(configs, describe) for describe in (_platforms, _accelerators, _kinds)]
    found = []
    for platform, accelerator, kind in product(*axes):
        members = frozenset.intersection(platform[1], accelerator[1], kind[1])
        if members:
            found.append(_Term((platform[0], accelerator[0], kind[0]), members))
    return sorted((term for term in found if term.text), key=lambda term: term.text)


def _axis(
    configs: Sequence[Build], describe: Callable[[Build], Iterable[str]]
) -> list[tuple[str, frozenset[str]]]:
    found: dict[str, set[str]] = {"": set()}
    for config in configs:
        for word in ("", *describe(config)):
            found.setdefault(word, set()).add(config.name)
    return [(word, frozenset(names)) for word, names in found.items()]


def _platforms(config: Build) -> Iterable[str]:
    return (config.platform, config.platform.partition("-")[0])


def _accelerators(config: Build) -> Iterable[str]:
    return (config.accelerator, "cuda") if config.cuda else (config.accelerator,)


def _kinds(config: Build) -> Iterable[str]:
    return dict.fromkeys((config.blas, config.provider))
