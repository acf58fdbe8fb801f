"""The records of an installation: options, and for each extension the request, the origin and the result."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from groundwork.errors import MegabuildError, UsageError
from pyg_extensions.install.user_environment import UserEnvironment
from pyg_extensions.pyg_index import PygIndex
from pyg_extensions.table import EXTENSIONS, Extension, ExtensionRelease, Variant, find, release


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """The options for all extensions."""

    environment: UserEnvironment  #: gets the extensions
    mode: str  #: ``auto``, ``prebuilt`` or ``source``
    index: PygIndex  #: is searched for wheels
    sources: Path | None  #: a folder with the extensions' sources, or None
    cache: Path  #: the folder that configs share
    #: CUDA archs to compile for and to require of wheels; empty: those of the machine's GPUs, else PyTorch's own
    archs: tuple[str, ...]
    logs: Path  #: each run makes a folder for its logs in it
    jobs: int  #: compile jobs at a time
    report: Callable[[str], None]  #: gets a sentence for each slow step
    progress: Callable[[str], None]  #: gets a compile's name with its counter of steps


@dataclass(kw_only=True)
class Installation:
    """One extension: the request, its origin, the result."""

    extension: Extension
    #: the requested version; empty: the newest wheel that fits, or the matrix's version from source
    asked: str = ""
    release: ExtensionRelease  #: is compiled if no wheel fits

    #: ``there`` (already installed), ``prebuilt`` (an index's wheel), ``kept`` (compiled earlier), ``source``;
    #: empty: no origin
    how: str = ""
    installed: str = ""  #: the version that was installed before
    wheel: Path | None = None  #: the wheel's file on this machine
    offered: str = ""  #: the name of an index's wheel that was not fetched
    archs: tuple[str, ...] = ()  #: CUDA archs to compile for
    imported: bool = False  #: the version installed before was imported and works
    #: why no prebuilt wheel is used, and the fault of the version installed before
    notes: list[str] = field(default_factory=list)
    error: MegabuildError | None = None  #: why it cannot be installed, or was not
    seconds: float = 0.0  #: wall time spent on it

    @property
    def name(self) -> str:
        """The name of the distribution and of the module."""
        return self.extension.name

    @property
    def version(self) -> str:
        """The version that is installed, or will be; empty if unknown."""
        wheel = self.wheel.name if self.wheel else self.offered
        versions = {"there": self.installed, "source": self.release.version}
        return wheel.split("-")[1] if wheel else versions.get(self.how, "")

    @contextlib.contextmanager
    def attempt(self, report: Callable[[str], None]) -> Iterator[None]:
        """Record a step's time and its error; an error does not stop the other extensions."""
        started = time.monotonic()
        try:
            yield
        except MegabuildError as error:
            report(f"{self.name} failed: {error.message}")
            self.error, self.how, self.wheel, self.offered = error, "", None, ""
        finally:
            self.seconds += time.monotonic() - started


def parse_requests(words: Sequence[str], variant: Variant) -> list[Installation]:
    """Parse requests such as ``torch_scatter`` and ``torch_scatter==2.1.2``; no words means all extensions.

    Each extension appears once, in the order of their dependencies.

    Raises UsageError: Not an extension, not a version, or an operator other than ``==``.
    """
    asked: dict[str, str] = {}
    for word in words or [extension.name for extension in EXTENSIONS]:
        name, _, version = word.partition("==")
        if re.search(r"[<>~!=;\[]", name):
            start = re.split(r"[<>~!=;\[ ]", name)[0]
            remedy = f"write {start} or {start}==VERSION"
            raise UsageError(f"{word}: unsupported version, only == works", remedy)
        try:
            asked[find(name).name] = str(Version(version)) if version else ""
        except InvalidVersion as error:
            raise UsageError(f"'{version}': not a version", f"write it like {name}==2.1.2") from error
    requests = []
    for extension in EXTENSIONS:
        if extension.name in asked:
            listed, version = release(extension, variant), asked[extension.name]
            if version not in ("", listed.version):  # the matrix does not have its hash and commit
                listed = ExtensionRelease(name=extension.name, version=version)
            requests.append(Installation(extension=extension, asked=version, release=listed))
    return requests
