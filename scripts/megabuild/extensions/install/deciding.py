"""Where each extension will come from: what is there and fits, what was compiled earlier, a wheel, its sources."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from megabuild.errors import MegabuildError, ProviderError, UsageError
from megabuild.extension_table import Extension, Release
from megabuild.extensions.archives import identity
from megabuild.extensions.install.kept_wheels import KeptWheels
from megabuild.extensions.install.user_environment import UserEnvironment, why_unfit
from megabuild.extensions.pyg_index import Index
from megabuild.extensions.wheels import Judge, Wanted, choose, offers
from megabuild.network.index import local_path


@dataclass(frozen=True, kw_only=True)
class Request:
    """One extension."""

    extension: Extension  #: which
    #: only this one, or an empty string: the newest wheel that fits, or the matrix's version from source
    version: str
    release: Release  #: what is compiled where there is no wheel


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is to be done about one extension, and then what became of it."""

    request: Request
    #: ``there``, ``prebuilt`` (an index's wheel), ``kept`` (compiled here earlier), ``source``; empty: nothing can be
    how: str = ""
    version: str = ""  #: what will be installed, or is
    wheel: Path | None = None  #: the wheel, where it lies on this machine
    #: the wheel's name, where it is only offered, and its size in bytes, where that is known
    offered: str = ""
    size: int | None = None
    archs: tuple[str, ...] = ()  #: CUDA archs to compile for
    tried: bool = False  #: what is there has been imported
    place: Path | None = None  #: where what is compiled will be kept
    notes: tuple[str, ...] = ()  #: why it is not prebuilt, what is wrong with what is there
    needs: tuple[str, ...] = ()  #: what the wheel that was installed needs besides PyTorch
    error: MegabuildError | None = None  #: why nothing can be done, or why it is not installed
    seconds: float = 0.0  #: wall time spent on it so far


def archs_for(environment: UserEnvironment, asked: Sequence[str]) -> tuple[str, ...]:
    """Return what to compile for: what was asked for, the machine's GPUs, else PyTorch's own list.

    A machine without a GPU may be preparing an environment for any: then what PyTorch runs on, extensions run on too.
    """
    if environment.cuda_version is None:
        return ()
    return tuple(asked) or environment.devices or environment.torch_archs


def _number(arch: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", arch))


def _size(address: str) -> int | None:
    """Return the size of a file on this machine; an index's page does not say it."""
    with contextlib.suppress(OSError):
        return local_path(address).stat().st_size if address.startswith("file:") else None
    return None


@dataclass(frozen=True, kw_only=True)
class Decider:
    """Decides for one environment."""

    environment: UserEnvironment  #: where to
    mode: str  #: ``auto``, ``prebuilt`` or ``source``
    index: Index  #: where wheels are looked for
    sources: Path | None  #: a folder with the extensions' sources, or None
    cache: Path  #: the folder that configs share
    #: CUDA archs to compile for and to ask of wheels; empty: those of the machine's GPUs, else PyTorch's own
    archs: tuple[str, ...]
    force: bool  #: install what is there and works once more
    judge: Judge  #: looks inside a wheel, or into an environment
    report: Callable[[str], None]  #: takes a sentence for everything that takes time

    def steps(self, requests: Sequence[Request], *, fetch: bool) -> Iterator[Step]:
        """Decide about each extension.

        Parameters
        ----------
        requests:
            In the order in which they need each other.
        fetch:
            Whether wheels are fetched and looked into; without, nothing is read but the index's pages.
        """
        changes = False
        for request in requests:
            started, notes = time.monotonic(), list[str]()
            self.report(f"{request.extension.name}:")
            try:
                # what imports another one can be tried only when that one is as it will be
                there = self._there(request, notes, imported=not changes)
                step = Step(request=request, how="there", version=there, tried=not changes) if there else None
                step = step or self.not_there(request, notes, fetch=fetch)
            except MegabuildError as error:
                self.report(f"  failed: {error.message}")
                step = Step(request=request, error=error)
            changes = changes or step.how != "there"
            yield replace(step, notes=tuple(notes), seconds=time.monotonic() - started)

    def _there(self, request: Request, notes: list[str], *, imported: bool) -> str:
        """Return the version of what is there and fits, else nothing."""
        there = self.environment.distributions.get(request.extension.name)
        if there is None or self.force:
            return ""
        if request.version and there.partition("+")[0] != request.version:
            notes.append(f"{there} was there, {request.version} is asked for")
            return ""
        problem = self.judge(self.environment.prefix, self.wanted(request))
        if not problem and imported:
            problem = why_unfit(request.extension, self.environment)
        if problem:
            notes.append(f"{there} was there, but {problem}")
            self.report(f"  {notes[-1]}")
        return "" if problem else there

    def not_there(
        self, request: Request, notes: list[str], *, fetch: bool = True, compiled: bool = False
    ) -> Step:
        """Decide where an extension comes from that is not there: what was compiled earlier, a wheel, its sources.

        Raises
        ------
        ProviderError
            There is no wheel, and nothing may be compiled.
        UsageError
            There is nothing to compile for.
        """
        if self.mode == "prebuilt":
            kept = Step(request=request)
        else:
            kept = self._from_source(request)
            if kept.wheel is not None:
                return kept
        if self.mode != "source" and not compiled:
            if not fetch:
                fit = offers(self.wanted(request), request.version, self.index)
                if fit.wheels:
                    best = fit.wheels[0]
                    return Step(
                        request=request,
                        how="prebuilt",
                        version=str(best.version),
                        offered=best.name,
                        size=_size(best.url),
                    )
                notes.append(f"no wheel: {fit.reason}")
            else:
                choice = choose(
                    self.wanted(request),
                    request.version,
                    index=self.index,
                    cache=self.cache,
                    report=lambda sentence: self.report(f"  {sentence}"),
                    judge=self.judge,
                )
                if choice.wheel is not None:
                    return Step(request=request, how="prebuilt", version=choice.version, wheel=choice.wheel)
                notes.append(f"no wheel: {choice.reason}")
            self.report(f"  {notes[-1]}")
        if self.mode == "prebuilt":
            raise ProviderError(notes[-1], "allow compiling it: --pyg auto")
        if self.environment.cuda_version is not None and not kept.archs:
            raise UsageError(
                "it is not known what to compile for: there is no GPU here, and this PyTorch names no archs",
                'name them: --arch-list "9.0;12.0"',
            )
        return kept

    def wanted(self, request: Request) -> Wanted:
        """Return what an extension must be, from an index or there already."""
        # A wheel, and what is there, must run on the GPUs that were named or are here. Where neither is known, the look
        # inside asks that it runs on whatever the PyTorch beside it runs on.
        archs = self.archs or self.environment.devices
        return Wanted(
            extension=request.extension,
            target=self.environment.target,
            archs=tuple(archs) if self.environment.cuda_version else (),
            beside=self.environment.prefix,
        )

    def _from_source(self, request: Request) -> Step:
        """What compiling it is, or the wheel that an earlier compile made."""
        extension, version = request.extension, request.release.version
        archs = archs_for(self.environment, self.archs)
        archs = tuple(arch for arch in archs if _number(arch) >= _number(extension.oldest_arch))
        kept = KeptWheels(cache=self.cache, environment=self.environment)
        source = identity(extension, request.release, self.sources)
        place = kept.place(extension.name, version, source, archs, os.environ)
        wheel = kept.find(place)
        return Step(
            request=request,
            how="source" if wheel is None else "kept",
            version=version if wheel is None else wheel.name.split("-")[1],
            wheel=wheel,
            size=wheel.stat().st_size if wheel else None,
            archs=archs,
            place=place,
        )
