"""What is asked for, and what became of it: values that pass between the command line and the work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from megabuild.extensions.sdist import Sdist
from megabuild.extensions.table import Extension


@dataclass(frozen=True, kw_only=True)
class Request:
    """One extension.

    Parameters
    ----------
    extension:
        Which.
    version:
        Only this one, or an empty string: the newest wheel that fits, or the matrix's version from source.
    source:
        What is compiled where there is no wheel.
    """

    extension: Extension
    version: str
    source: Sdist


@dataclass(frozen=True, kw_only=True)
class Options:
    """How extensions are installed.

    Parameters
    ----------
    mode:
        ``auto``, ``prebuilt`` or ``source``.
    index:
        URL or folder.
    sources:
        A folder with the extensions' sources, or None.
    cache:
        The folder that configs share.
    wrapper:
        ``recipe/pyg/common/build_wheel.py``.
    logs:
        Where logs of compiles go.
    archs:
        CUDA archs to compile for and to ask of wheels; empty: those of the machine's GPUs, else PyTorch's own.
    force:
        Install what is there and works once more.
    """

    mode: str
    index: str
    sources: Path | None
    cache: Path
    wrapper: Path
    logs: Path
    archs: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """What became of one extension.

    Parameters
    ----------
    extension:
        PyPI's name: ``torch_scatter``.
    version:
        Installed now; empty for nothing.
    source:
        ``prebuilt``, ``source``, ``there``, or empty.
    notes:
        Why it was not prebuilt, what was wrong with what was there.
    error, remedy:
        Why it is not installed; empty where it is.
    exit_code:
        0, or that of the error.
    seconds:
        Wall time.
    """

    extension: str
    version: str
    source: str
    notes: tuple[str, ...]
    error: str
    remedy: str
    exit_code: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Installed and proved."""
        return not self.error
