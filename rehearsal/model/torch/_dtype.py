"""The one type of element there is."""

from __future__ import annotations


class dtype:
    """A type of element."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


float64 = double = dtype("float64")


def check(asked: dtype | None, device: str) -> None:
    """Refuse other types and devices than there are.

    Raises
    ------
    TypeError
        For another type than double.
    RuntimeError
        For another device than the CPU.
    """
    if asked not in (None, float64):
        raise TypeError(f"{asked}: the model has doubles only")
    if str(device) != "cpu":
        raise RuntimeError(f"no device {device}: the model computes on the CPU")
