"""The options of an audit, each declared once: the command line shows and reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from groundwork.option_fields import PathRule, option, repeatable, switch

#: Sections of the help text.
_SELECT = "Select"
_LOCAL = "Local files"
_OUTPUT = "Output"
_NETWORK = "Network"


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The command-line options of ``audit``."""

    package_words: tuple[str, ...] = repeatable(
        _SELECT, "--package", metavar="NAME",
        help="Package, repeatable: pytorch, pyg-lib, pytorch_scatter, ..., or all.  [default: pytorch]",
    )  # fmt: skip
    root: Path | None = option(
        _SELECT, "--root", metavar="DIR", path_rule=PathRule.EXISTING_FOLDER, convert=Path.absolute,
        help="Repository with a recipe.  [default: the current one]",
    )  # fmt: skip
    release: str | None = option(
        _SELECT, "--release", metavar="VERSION|newest", help="Release to audit.  [default: the recipe's]"
    )
    #: needs `ref`
    upstream: str | None = option(
        _SELECT, "--upstream", metavar="URL",
        help="Another project's repository, with --ref; needs no recipe.",
    )  # fmt: skip
    ref: str | None = option(_SELECT, "--ref", metavar="TAG", help="Tag or commit of upstream's repository.")
    bump: str | None = option(
        _SELECT, "--bump", metavar="VERSION|newest", help="List the changes that another version needs."
    )
    tree: Path | None = option(
        _LOCAL, "--tree", metavar="DIR", path_rule=PathRule.EXISTING_FOLDER,
        help="Unpacked source of upstream, for its CI pins.",
    )  # fmt: skip
    pinning: Path | None = option(
        _LOCAL, "--pinning", metavar="PATH", path_rule=PathRule.EXISTING,
        help="conda-forge-pinning: a conda_build_config.yaml, or its folder with migrations.",
    )  # fmt: skip
    #: print also the rows that need no decision; the command line sets it for other outputs than narrow terminals
    every_row: bool = switch(
        _OUTPUT, "--all", help="Show all rows, also on a terminal of less than 160 columns."
    )
    write: Path | None = option(
        _OUTPUT, "--write", metavar="FILE", path_rule=PathRule.EXISTING_FILE,
        help="Replace the text between <!-- audit:begin --> and <!-- audit:end --> in FILE.",
    )  # fmt: skip
    snapshot: bool = switch(
        _OUTPUT, "--snapshot", help="Renew the committed facts in src/pin_audit/releases."
    )
    fail_on: str | None = option(
        _OUTPUT,
        "--fail-on",
        metavar="STATUS[,STATUS]",
        help="Exit with 14 if a row has one of these statuses.",
    )
    offline: bool = switch(_NETWORK, "--offline", help="Use only the cache and local files.")
    timeout: float = option(
        _NETWORK, "--timeout", metavar="SECONDS", at_least=1, default=300.0, show_default=True,
        help="Time limit of the whole audit.",
    )  # fmt: skip

    @property
    def every(self) -> bool:
        """Whether ``--package all`` was passed."""
        return "all" in self.package_words
