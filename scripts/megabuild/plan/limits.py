"""How many compilers run at once and share the memory: ordinary objects on all cores, heavy ones as they fit."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from megabuild.engine.compiler_gate import MARGIN, UNIT
from megabuild.plan.estimate import Estimate

#: Parts of the names of CUDA objects that are heavy before anybody has compiled one.
HEAVY = ("flash_att", "mem_eff_att", "fbgemm_genai")
#: For the engine, ninja, code generators and linkers.
_RESERVE = 500_000_000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What stands in front of the compilers of one run."""

    jobs: int = 1  #: compilers at once
    light: int = 0  #: bytes for ordinary objects
    heavy: int = 0  #: bytes for heavy ones
    at_once: int = 0  #: heavy ones of the usual size that run at once; 0 where there are none
    ordinary: int = 0  #: bytes that an object of C or C++ takes, of which nothing is known
    cuda: int = 0  #: the same of nvcc's
    #: bytes of an object that is heavy by its name
    heavy_by_name: int = 0
    known: Mapping[str, int] = field(default_factory=dict)  #: bytes that objects took before

    @property
    def above(self) -> int:
        """Bytes of more than which an object is heavy."""
        return max(self.ordinary, self.cuda)

    def is_heavy(self, name: str) -> bool:
        """Return whether an object is one of those that wait for each other."""
        if name in self.known:
            return self.known[name] > self.above
        return self.heavy_by_name > 0 and any(part in name for part in HEAVY) and ".cu." in name

    def narrowed(self) -> Limits | None:
        """Return half as much for heavy objects; None where they run one by one already, or there are none."""
        if self.at_once <= 1:
            return None
        return replace(self, heavy=self.heavy // 2, at_once=self.at_once // 2)

    def words(self) -> str:
        """Return what people need to know of it, or nothing."""
        return f"heavy objects {self.at_once} at a time" if 0 < self.at_once < self.jobs else ""

    def text(self) -> str:
        """Return what ``compiler_gate`` reads."""
        values = {
            "light": self.light // UNIT,
            "heavy": self.heavy // UNIT,
            "ordinary": self.ordinary,
            "cuda": self.cuda,
            "above": self.above,
        }
        lines = [f"{word} {value}" for word, value in values.items()]
        lines += [f"name {self.heavy_by_name} {part}" for part in HEAVY if self.heavy_by_name]
        return "\n".join([*lines, "", *(f"{size} {name}" for name, size in self.known.items()), ""])


def ordinary_size(figures: Estimate, known: Mapping[str, int]) -> int:
    """Return the bytes of an ordinary object to reckon with: nine of ten took less, where that is known."""
    sizes = [size for size in known.values() if size <= figures.memory_of_ordinary]
    if len(sizes) < 20:
        return figures.memory_of_ordinary
    return int(statistics.quantiles(sizes, n=10)[-1] * 1.2)


def limits(jobs: int, memory: int, figures: Estimate, known: Mapping[str, int]) -> Limits:
    """Share ``memory`` bytes, which are free, between ordinary objects and heavy ones.

    So many heavy ones run that all other cores have memory for an ordinary object; at least one.
    """
    made = Limits(
        jobs=jobs,
        ordinary=figures.memory_of_ordinary,
        cuda=max(figures.memory_of_ordinary, figures.memory_of_cuda),
        heavy_by_name=figures.memory_per_job if figures.memory_per_job > figures.memory_of_cuda > 0 else 0,
        known=known,
    )
    if not figures.memory_of_ordinary:  # another's recipe: nothing is known, and its compilers are not ours
        return Limits(jobs=jobs)
    usable = max(0, memory - _RESERVE)
    sizes = [size for size in known.values() if size > made.above]
    if not sizes and not made.heavy_by_name:
        return replace(made, light=usable)
    size = max(int(statistics.median(sizes) * MARGIN) if sizes else made.heavy_by_name, made.above + UNIT)
    size = -(-size // UNIT) * UNIT  # as it is taken
    ordinary = ordinary_size(figures, known)
    at_once = min(jobs, max(1, (usable - jobs * ordinary) // max(UNIT, size - ordinary)))
    heavy = min(at_once * size, max(0, usable - made.above))
    return replace(
        made,
        light=usable - heavy,
        heavy=heavy,
        at_once=at_once,
    )
