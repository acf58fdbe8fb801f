"""What environment markers of requirements are evaluated for (PEP 508)."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.markers import default_environment


def marker_environment(version: str, platforms: Sequence[str] = ()) -> dict[str, str]:
    """Return the values that markers take for a CPython of a version, ``3.12.1``, on this machine.

    On another one where ``platforms``, of wheels for it, are given: ``manylinux2014_aarch64``.
    """
    values = {key: str(value) for key, value in default_environment().items()}
    if platforms:
        values["platform_machine"] = platforms[-1].partition("_")[2]
    return values | {
        "implementation_version": version,
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
    }
