"""Sets of configs in few words: ``cuda130``, ``linux cpu``, ``mkl``, instead of a list of names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from megabuild.configs.config import Config


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


def words(chosen: Collection[str], configs: Sequence[Config]) -> str:
    """Return in words which of the configs are meant.

    Parameters
    ----------
    chosen:
        Names of configs.
    configs:
        All there are.

    Returns
    -------
    An empty string for all of them; words of which all must hold, ``linux cuda130``; several such groups with commas
    between them; or names, where no words fit.
    """
    wanted = frozenset(chosen)
    if wanted >= {config.name for config in configs}:
        return ""
    terms = [term for term in _terms(configs) if term.members <= wanted]
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


def _terms(configs: Sequence[Config]) -> list[_Term]:
    """Return every combination of words that means something, in the order of the alphabet."""
    axes = [_axis(configs, describe) for describe in (_platforms, _accelerators, _kinds)]
    found = []
    for platform, accelerator, kind in product(*axes):
        members = frozenset.intersection(platform[1], accelerator[1], kind[1])
        if members:
            found.append(_Term((platform[0], accelerator[0], kind[0]), members))
    return sorted((term for term in found if term.text), key=lambda term: term.text)


def _axis(
    configs: Sequence[Config], describe: Callable[[Config], Iterable[str]]
) -> list[tuple[str, frozenset[str]]]:
    found: dict[str, set[str]] = {"": set()}
    for config in configs:
        for word in ("", *describe(config)):
            found.setdefault(word, set()).add(config.name)
    return [(word, frozenset(names)) for word, names in found.items()]


def _platforms(config: Config) -> Iterable[str]:
    return (config.platform, config.platform.partition("-")[0])


def _accelerators(config: Config) -> Iterable[str]:
    return (config.accelerator, "cuda") if config.cuda_version else (config.accelerator,)


def _kinds(config: Config) -> Iterable[str]:
    return dict.fromkeys((config.blas, config.provider))
