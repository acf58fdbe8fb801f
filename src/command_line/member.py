"""The process that builds one of several configs side by side; :mod:`command_line.side_by_side` starts it.

Standard output has its answers, standard error the lines that its parent shows. A process of its own, because a run
needs one: it has signals, one log and one record of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console

from command_line.member_request import (
    MemberEnded,
    MemberRequest,
    MemberStarted,
    answer_line,
    take_request,
)
from command_line.progress_display import View
from command_line.run_command import Invocation, end_process, finish
from command_line.running import ConfigRequest, build_config
from groundwork import interrupts
from groundwork.errors import Interrupted
from groundwork.result import Result
from megabuild.configs.config import load
from megabuild.status.status import PHASE


def main() -> None:
    """Build the config of the request in the environment, then end the process with the config's exit code."""
    answers = os.dup(1)
    os.dup2(2, 1)  # from here on, everything else that is printed is for people
    request = take_request(os.environ)
    invocation = Invocation(log_folder=request.log_folder, json=True)  # the parent prints the result
    lines: list[str] = []
    with interrupts.stop_on_signals():
        try:
            os.write(answers, answer_line(MemberStarted(pid=os.getpid())))
            ending = finish(partial(_build, request, invocation, lines), invocation)
            exit_code = ending.exit_code
            document = ending.document
        except KeyboardInterrupt:  # a signal while an error was printed
            exit_code = Interrupted.exit_code
            document = None
        interrupts.ignore_signals()
    log = str(invocation.log) if invocation.log else None
    end = MemberEnded(exit_code=exit_code, document=document, lines=lines, log=log)
    with open(answers, "wb") as stream:
        stream.write(answer_line(end))
    end_process(exit_code)


def _build(request: MemberRequest, invocation: Invocation, lines: list[str]) -> Result:
    """Build the config; add the lines of its result to ``lines``."""
    asked = ConfigRequest(
        file=load(request.root, request.config),
        build_options=request.build_options,
        root=request.root,
        output=request.output,
        earlier=request.earlier,
    )
    options = replace(asked.options(), pool=request.pool)
    level = PHASE if request.shows_phases else logging.INFO
    view = View(console=Console(stderr=True, soft_wrap=True), relay_level=level)
    result = build_config(options, request.build_options, view, invocation)
    lines += _without_blank_start(result.lines)
    return result


def _without_blank_start(lines: Sequence[str]) -> Sequence[str]:
    if lines and not lines[0]:
        return lines[1:]
    return lines
