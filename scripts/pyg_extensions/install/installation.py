"""The records of an installation: what is asked for, where it comes from, how it ended."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from groundwork.errors import MegabuildError, UsageError
from groundwork.network.index import File
from pyg_extensions.install.user_environment import UserEnvironment
from pyg_extensions.pyg_index import PygIndex
from pyg_extensions.table import EXTENSIONS, Extension, ExtensionRelease, Variant, find, release


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """The options for all extensions."""

    environment: UserEnvironment  #: where to
    mode: str  #: ``auto``, ``prebuilt`` or ``source``
    index: PygIndex  #: where wheels are searched
    sources: Path | None  #: a folder with the extensions' sources, or None
    cache: Path  #: the folder that configs share
    #: CUDA archs to compile for and to ask of wheels; empty: those of the machine's GPUs, else PyTorch's own
    archs: tuple[str, ...]
    logs: Path  #: where each run makes a folder for its logs
    jobs: int  #: compile jobs at a time
    report: Callable[[str], None]  #: gets a sentence for each slow step
    #: gets what is compiled, and how far it is: steps done, and in all
    progress: Callable[[str, int, int], None]


@dataclass(kw_only=True)
class Installation:
    """One extension: the request, its origin, the result."""

    extension: Extension
    #: only this one, or an empty string: the newest wheel that fits, or the matrix's version from source
    asked: str = ""
    release: ExtensionRelease  #: what is compiled if no wheel fits

    #: ``there`` (installed), ``prebuilt`` (an index's wheel), ``kept`` (compiled earlier), ``source``; empty: nowhere
    how: str = ""
    installed: str = ""  #: the version that was there
    wheel: Path | None = None  #: the wheel, where it lies on this machine
    offered: File | None = None  #: an index's wheel that was not fetched
    archs: tuple[str, ...] = ()  #: CUDA archs to compile for
    imported: bool = False  #: the installed one was imported with all that it imports
    #: why it is not prebuilt, what is wrong with the installed one
    notes: list[str] = field(default_factory=list)
    error: MegabuildError | None = None  #: why nothing can be done, or why it is not installed
    seconds: float = 0.0  #: wall time spent on it

    @property
    def name(self) -> str:
        """The distribution and the module."""
        return self.extension.name

    @property
    def version(self) -> str:
        """What will be installed, or is."""
        wheel = self.wheel.name if self.wheel else self.offered.name if self.offered else ""
        versions = {"there": self.installed, "source": self.release.version}
        return wheel.split("-")[1] if wheel else versions.get(self.how, "")

    @contextlib.contextmanager
    def attempt(self, report: Callable[[str], None]) -> Iterator[None]:
        """Record the time of a step, and its error, which does not stop the others."""
        started = time.monotonic()
        try:
            yield
        except MegabuildError as error:
            report(f"{self.name} failed: {error.message}")
            self.error, self.how, self.wheel, self.offered = error, "", None, None
        finally:
            self.seconds += time.monotonic() - started


def parse_requests(words: Sequence[str], variant: Variant) -> list[Installation]:
    """Return what each of the words asks for, ``torch_scatter`` or ``torch_scatter==2.1.2``; without any, all.

    Each appears once, in the order of their dependencies.
    """
    asked: dict[str, str] = {}
    for word in words or [extension.name for extension in EXTENSIONS]:
        name, _, version = word.partition("==")
        if re.search(r"[<>~!=;\[]", name):
            start = re.split(r"[<>~!=;\[ ]", name)[0]
            raise UsageError(f"'{word}': only == can be asked for", f"write {start}, or {start}==VERSION")
        try:
            asked[find(name).name] = str(Version(version)) if version else ""
        except InvalidVersion as error:
            raise UsageError(f"'{version}' is not a version", f"write it like {name}==2.1.2") from error
    requests = []
    for extension in EXTENSIONS:
        if extension.name in asked:
            listed, version = release(extension, variant), asked[extension.name]
            if version not in ("", listed.version):  # the matrix knows nothing of that one
                listed = ExtensionRelease(name=extension.name, version=version)
            requests.append(Installation(extension=extension, asked=version, release=listed))
    return requests
