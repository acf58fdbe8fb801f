"""What `megabuild upload` says: packages, what is wrong with them, and the lines that upload them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groundwork.errors import VerdictError
from groundwork.result import Result
from groundwork.text import UNICODE, display, size, table, wrapped
from groundwork.wording import counted
from megabuild.upload import steps
from megabuild.upload.release import Release
from megabuild.upload.rules import CANDIDATES, FEEDSTOCKS, MAIN, Finding

#: Stands where `--user` names no channel.
_SOMEBODY = "YOUR_CHANNEL"


def result(
    release: Release,
    findings: Sequence[Finding],
    logs: Sequence[Path],
    *,
    user: str | None,
    label: str | None,
    checked: bool,
) -> Result:
    """Return packages, findings, logs and, where nothing is refused, commands.

    `user`: the channel; None for one that is not named. `label`: None for the usual one. `checked`: the packages were
    read.
    """
    target = CANDIDATES if release.candidate else MAIN
    direct = user == steps.CONDA_FORGE
    label = label or (target if direct else steps.DELEGATE)
    somebody = user or _SOMEBODY
    refused = any(finding.refused for finding in findings)
    uploads = [] if refused else steps.uploads(release, somebody, label)
    copies = [] if refused or direct else steps.copies(release, somebody, label, target)
    return Result(
        format="upload",
        document={
            "config": release.config,
            "label": label,
            "checked": checked,
            "packages": [
                {
                    "file": str(one.path),
                    **one.package._asdict(),
                    "subdir": one.subdir,
                    "feedstock": FEEDSTOCKS.get(one.package.name),
                    "size": one.size,
                    "sha256": one.sha256,
                }
                for one in release.artifacts
            ],
            "left_out": list(release.former),
            "findings": [vars(finding) for finding in findings],
            "logs": [str(log) for log in logs],
            "upload": uploads,
            "copy": copies,
        },
        lines=[
            *_package_lines(release),
            "",
            *_finding_lines(findings, checked=checked),
            *_command_lines(uploads, copies),
            *_log_lines(logs),
        ],
        exit_code=VerdictError.exit_code if refused else 0,
    )


def _package_lines(release: Release) -> list[str]:
    lines = []
    for one in release.artifacts:
        lines += [f"{one.path.name}  {size(one.size)}", f"  sha256 {one.sha256}"]
    total = size(sum(one.size for one in release.artifacts))
    lines.append(f"{counted(len(release.artifacts), 'package')}, {total}")
    if release.former:
        lines += wrapped(
            f"{counted(len(release.former), 'former build')} left out: {', '.join(release.former)}"
        )
    return lines


def _finding_lines(findings: Sequence[Finding], *, checked: bool) -> list[str]:
    lines = []
    for finding in findings:
        sign = UNICODE.failed if finding.refused else UNICODE.warning
        lines += wrapped(f"{sign} {finding.rule}: {finding.subject} {finding.text}")
    if not checked:
        lines += wrapped(f"{UNICODE.warning} names and dependencies only; --check reads every package")
    elif not findings:
        lines.append(f"{UNICODE.done} nothing that conda-forge would refuse was found")
    return [*lines, ""]


def _command_lines(uploads: Sequence[str], copies: Sequence[str]) -> list[str]:
    if not uploads:
        return ["nothing to run: what is marked above comes first", ""]
    lines = ["after `anaconda login`, in this order; a line that failed can be run again:"]
    lines += [f"  {line}" for line in uploads]
    if copies:
        lines += ["then, for a member of conda-forge's core team (CFEP-03), also in this order:"]
        lines += [f"  {line}" for line in copies]
    return [*lines, ""]


def _log_lines(logs: Sequence[Path]) -> list[str]:
    if not logs:
        return ["no logs are left of this config's runs, and CFEP-03 asks for them"]
    rows = [(f"  {display(log)}", size(log.stat().st_size)) for log in logs]
    return table(("logs for the pull request; --logs FILE.zip packs them", ""), rows, right=frozenset({1}))
