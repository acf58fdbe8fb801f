"""What a process that builds one of several configs side by side is asked, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from command_line.build_options import BuildOptions
from groundwork.job_pool import PoolMember

#: The variable with the request: in no file and no command line, since options may contain passwords.
_VARIABLE = "MEGABUILD_MEMBER"


@dataclass(frozen=True, kw_only=True)
class MemberRequest:
    """The request to build one config."""

    config: str
    root: Path  #: the repository, or another feedstock
    output: Path  #: folder for states and packages
    earlier: tuple[str, ...]  #: configs that the command builds first
    build_options: BuildOptions
    log_folder: Path  #: for crash files
    shows_phases: bool  #: print phases too
    pool: PoolMember | None = None


class MemberStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The process can be interrupted."""

    pid: int


class MemberEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The end of the config."""

    exit_code: int
    document: Mapping[str, Any] | None  #: for ``--json``
    lines: Sequence[str]  #: the result for people
    log: str | None


_ANSWERS = msgspec.json.Decoder(MemberStarted | MemberEnded)


def with_request(environ: Mapping[str, str], request: MemberRequest) -> dict[str, str]:
    """Return the environment of the process that is asked."""
    return {**environ, _VARIABLE: msgspec.json.encode(request, enc_hook=os.fspath).decode()}


def take_request(environ: MutableMapping[str, str]) -> MemberRequest:
    """Return the request, and remove it from the environment: builds inherit that."""
    return msgspec.json.decode(environ.pop(_VARIABLE), type=MemberRequest, dec_hook=_make)


def _make(kind: type, value: str) -> object:
    """Return a value of a type that JSON does not have."""
    return kind(value)


def answer_line(answer: MemberStarted | MemberEnded) -> bytes:
    """Return an answer as a line for standard output."""
    return msgspec.json.encode(answer) + b"\n"


def read_answer(line: bytes) -> MemberStarted | MemberEnded | None:
    """Return the answer in a line; None if the process was killed while it wrote the line."""
    try:
        answer: MemberStarted | MemberEnded = _ANSWERS.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return answer
