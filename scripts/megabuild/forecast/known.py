"""What earlier runs of a kind of config took, on this machine: kept whether they were whole, resumed or cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from groundwork import files

_FOLDER = "forecast"
#: PyTorch with CUDA has some 2,500 steps. What is more than this is not kept.
_MOST_STEPS = 20_000
_MOST_SECONDS = 100_000.0


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of the work of one kind of config."""

    #: by what goes on (:mod:`megabuild.forecast.outline` has the words): seconds of one core, without ninja's steps
    phases: Mapping[str, float] = field(default_factory=dict)
    #: CPU seconds of ninja's steps, by output
    steps: Mapping[str, float] = field(default_factory=dict)
    #: the outputs of each phase that is ninja's, in the order in which they are made
    order: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: what all objects were compiled from that the object cache has: the digest of libtorch's inputs
    cached: str = ""
    #: CPU seconds here for each in the tables that come with megabuild
    speed: float = 1.0
    #: bytes of the largest process, 0 where nobody knows; of the state folder at its peak, and for how many Pythons
    memory: int = 0
    disk: int = 0
    pythons: int = 0
    measured: bool = False  #: on this machine; not shipped with megabuild

    def without(self, dropped: Callable[[str], bool]) -> Known:
        """Return it without some steps, by name."""
        orders = {phase: [name for name in names if not dropped(name)] for phase, names in self.order.items()}
        steps = {name: took for name, took in self.steps.items() if not dropped(name)}
        return replace(self, steps=steps, order=orders)

    def with_steps(self, phase: str, found: Mapping[str, float], *, whole: bool) -> Known:
        """Return it with steps of a phase, in order; of a phase that was not ``whole`` the others stay."""
        kept = [] if whole else [name for name in self.order.get(phase, ()) if name not in found]
        order = [*kept, *found][:_MOST_STEPS]
        steps = {**self.steps, **{name: min(seconds, _MOST_SECONDS) for name, seconds in found.items()}}
        orders = {**self.order, phase: order}
        used = {name for names in orders.values() for name in names}
        return replace(self, steps={name: steps[name] for name in steps if name in used}, order=orders)


def read(cache: Path, names: Sequence[str], report: Callable[[str], None]) -> Known | None:
    """Return what is known by the first of several names; a damaged file is reported, and the next name tried."""
    for name in names:
        path = _path(cache, name)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Known)
        except OSError:
            continue
        except msgspec.MsgspecError:
            report(f"! {path} is damaged: what earlier runs took is not known")
    return None


def keep(cache: Path, names: Sequence[str], known: Known) -> None:
    """Remember it under several names: the config's, and its kind's for those that were never built."""
    for name in names:
        files.write(_path(cache, name), msgspec.json.encode(known))


def _path(cache: Path, name: str) -> Path:
    return cache / _FOLDER / f"{name}.json"
