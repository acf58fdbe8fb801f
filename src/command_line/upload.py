"""`megabuild upload`: uploads the packages of a config to a channel on anaconda.org."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from command_line.options import builds_folder
from command_line.parameters import command
from command_line.root import output_folder
from groundwork.errors import UpstreamTestError, UsageError
from groundwork.option_fields import argument, option, switch
from groundwork.result import Result
from groundwork.text import Sign, counted, size

if TYPE_CHECKING:
    from megabuild.upload import Release

EXAMPLES = """
{prog} linux_64_cuda130                     list the packages in upload order
{prog} linux_64_cuda130 --user me --apply   upload them to your channel
"""
DESTINATION = "Destination"


@dataclass(frozen=True, kw_only=True)
class UploadOptions:
    """The options of the command."""

    config: str = argument()
    user: str | None = option(DESTINATION, "--user", metavar="CHANNEL", help="Channel on anaconda.org.")
    label: str = option(
        DESTINATION, "--label", metavar="LABEL", default="cfep03", show_default=True, help="Label of the packages."
    )  # fmt: skip
    apply: bool = switch(
        DESTINATION, "--apply", help="Upload, with the token in ANACONDA_API_KEY.  [default: list only]"
    )
    despite_tests: bool = switch(
        DESTINATION,
        "--despite-tests",
        help="Upload packages although tests failed, or never ran.",
    )
    output: str | None = builds_folder()


@command(UploadOptions, examples=EXAMPLES)
def upload(options: UploadOptions) -> Result:
    """List the packages of CONFIG in upload order, and upload them with --apply.

    CONFIG is a folder of output/packages. upload takes the newest of several builds of a package.
    """
    from command_line.progress_display import Screen
    from groundwork.user_folders import cache_folder
    from megabuild import upload as uploading

    user = options.user
    label = options.label
    if options.apply and not (user and label):
        raise UsageError("--apply needs a channel and a label", "add --user CHANNEL")
    release = uploading.find_release(output_folder(options.output), options.config)
    total = size(sum(artifact.size for artifact in release.artifacts))
    lines = _lines(release, total)
    if options.apply and not options.despite_tests:
        _check_tests(options.config, release)
    if not options.apply or not user:
        return Result(lines=[*lines, "upload them with --user CHANNEL --apply"])
    scratch = cache_folder(os.environ) / "tmp"
    with Screen(what=f"uploading {total}"):
        present = uploading.upload(release.artifacts, user, label, scratch=scratch)
    for name in present:
        lines.append(f"{name}: already in the channel, not replaced")
    return Result(lines=[*lines, f"{Sign.done} uploaded to {user}, label {label}"])


def _lines(release: Release, total: str) -> list[str]:
    """Return the packages in upload order, after those that are left out."""
    lines: list[str] = []
    for artifact in release.replaced:
        lines.append(f"{artifact.path.name}: not uploaded, a later build exists")
    for artifact in release.artifacts:
        lines.append(f"{artifact.path.name}  {size(artifact.size)}")
    lines.append(f"{counted(len(release.artifacts), 'package')}, {total}")
    return [*lines, *release.missing_tests.lines, ""]


def _check_tests(config: str, release: Release) -> None:
    """Refuse packages whose tests failed or never ran.

    Raises UpstreamTestError: There are such packages.
    """
    from megabuild.store.published import FAILED_TESTS, UNTESTED, labels

    missing = release.missing_tests
    if missing.failed:
        raise UpstreamTestError(
            f"{config}: {FAILED_TESTS}: {labels(missing.failed)}",
            "correct the cause and build again, or add --despite-tests",
        )
    if missing.untested:
        raise UpstreamTestError(
            f"{config}: {UNTESTED}: {labels(missing.untested)}",
            "build again on a machine that can test them, or add --despite-tests",
        )
