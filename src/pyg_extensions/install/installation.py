"""The records of an installation: options, and for each extension the request, the origin and the result."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from packaging.version import InvalidVersion, Version

from groundwork.errors import MegabuildError, UsageError
from groundwork.exhaustive import assert_never
from pyg_extensions.install.user_environment import UserEnvironment
from pyg_extensions.pyg_index import PygIndex
from pyg_extensions.table import EXTENSIONS, Extension, ExtensionRelease, Variant, find, release


class Mode(str, Enum):
    """The origins that the user allows."""

    AUTO = "auto"  #: a wheel that fits, else the sources
    SOURCE = "source"  #: no wheel of the index
    PREBUILT = "prebuilt"  #: no compile, and no wheel compiled earlier


class Origin(str, Enum):
    """The origin of an extension."""

    INSTALLED = "there"  #: it was installed before, and works
    PREBUILT = "prebuilt"  #: a wheel of the index
    KEPT = "kept"  #: a wheel compiled here earlier
    SOURCE = "source"  #: compiled by this run

    @property
    def is_compiled(self) -> bool:
        """Whether this machine compiled it, now or earlier, for the requested architectures."""
        return self in (Origin.KEPT, Origin.SOURCE)


@dataclass(frozen=True, kw_only=True)
class InstallOptions:
    """The options for all extensions."""

    environment: UserEnvironment  #: gets the extensions
    mode: Mode
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

    origin: Origin | None = None  #: None: not chosen yet, or none was found
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
        match self.origin:
            case None:
                return ""
            case Origin.INSTALLED:
                return self.installed
            case Origin.PREBUILT | Origin.KEPT | Origin.SOURCE:
                # the version of a wheel has a local part, such as ``+pt213cu130``
                return self._wheel_version() or self.release.version
            case never:
                return assert_never(never)

    def accepts(self, version: str) -> bool:
        """Return whether a version is the requested one, or none is requested; its local part does not count."""
        return not self.asked or _is_same(version, self.asked)

    def _wheel_version(self) -> str:
        """Return the version in the wheel's name, or an empty string without a wheel."""
        name = self.wheel.name if self.wheel else self.offered
        _, _, rest = name.partition("-")
        return rest.partition("-")[0]

    @contextlib.contextmanager
    def attempt(self, report: Callable[[str], None]) -> Iterator[None]:
        """Record a step's time and its error; an error does not stop the other extensions."""
        started = time.monotonic()
        try:
            yield
        except MegabuildError as error:
            report(f"{self.name} failed: {error.message}")
            self.error = error
            self.origin = None
            self.wheel = None
            self.offered = ""
        finally:
            self.seconds += time.monotonic() - started


def parse_requests(words: Sequence[str], variant: Variant) -> list[Installation]:
    """Parse requests such as ``torch_scatter`` and ``torch_scatter==2.1.2``; no words means all extensions.

    Each extension appears once, in the order of their dependencies.

    Raises UsageError: Not an extension, not a version, or an operator other than ``==``.
    """
    asked: dict[str, str] = {}
    for word in words:
        name, version = _parse_word(word)
        asked[find(name).name] = version
    if not asked:
        asked = {extension.name: "" for extension in EXTENSIONS}
    requests = []
    for extension in EXTENSIONS:
        if extension.name in asked:
            requests.append(_request(extension, asked[extension.name], variant))
    return requests


def _parse_word(word: str) -> tuple[str, str]:
    """Return the name and the version, or an empty string, of a request.

    A local part, which `pip freeze` shows, does not count: it names the PyTorch and CUDA of the environment.
    """
    name, _, version = word.partition("==")
    if re.search(r"[<>~!=;\[]", name):
        start = re.split(r"[<>~!=;\[ ]", name)[0]
        remedy = f"write {start} or {start}==VERSION"
        raise UsageError(f"{word}: unsupported version, only == works", remedy)
    if not version:
        return name, ""
    try:
        return name, Version(version).public
    except InvalidVersion as error:
        raise UsageError(f"'{version}': not a version", f"write it like {name}==2.1.2") from error


def _request(extension: Extension, version: str, variant: Variant) -> Installation:
    listed = release(extension, variant)
    if version and not _is_same(version, listed.version):  # the matrix does not have its hash and commit
        listed = ExtensionRelease(name=extension.name, version=version)
    return Installation(extension=extension, asked=version, release=listed)


def _is_same(version: str, asked: str) -> bool:
    """Return whether two texts are one version, apart from local parts: ``0.8`` and ``0.8.0+pt213cu130``."""
    try:
        return Version(Version(version).public) == Version(asked)
    except InvalidVersion:
        return False
