"""The kinds of things that builds leave: what needs them, and what is to be paid where they are gone."""

from __future__ import annotations

from dataclasses import dataclass

_DAY = 86400.0


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind."""

    name: str
    what: str
    costs: str  #: what the next run that needs it pays
    expires: float | None = (
        None  #: seconds after which nobody is expected to want it; None: it stays until asked for
    )
    by_name_only: bool = False  #: it is what was built: removed only where its kind is named
    unneeded_only: bool = False  #: it expires only where nothing needs it


_ALL = (
    Kind(
        name="packages",
        what="the published channel of a config",
        costs="what was built is lost: the next run makes all of it again",
        by_name_only=True,
    ),
    Kind(
        name="made-wheels",
        what="wheels made of a config's packages",
        costs="`megabuild wheels` makes them again, in minutes",
        by_name_only=True,
    ),
    Kind(
        name="tree",
        what="the compiled tree, from which a killed or changed run goes on",
        costs="libtorch is compiled again if a package of PyTorch is missing; in minutes out of a full object cache",
    ),
    Kind(
        name="work",
        what="the engine's folders, copies of built packages, unfinished extensions",
        costs="staging runs again over the tree, in minutes; an unfinished extension begins again",
    ),
    Kind(name="debug", what="the environment of --debug", costs="--debug makes it again"),
    Kind(name="logs", what="logs of runs, and crash files", costs="nothing but the logs", expires=90 * _DAY),
    Kind(name="records", what="the record of each run", costs="nothing but the records", expires=365 * _DAY),
    Kind(
        name="objects",
        what="compiled objects (ccache)",
        costs="everything is compiled that would have come from it: hours for PyTorch",
    ),
    Kind(
        name="engine-packages", what="packages unpacked by the engine", costs="unpacked, or downloaded, again"
    ),
    Kind(name="downloads", what="wheels and source archives", costs="downloaded again"),
    Kind(name="torch-source", what="source trees taken out of tarballs", costs="unpacked again"),
    Kind(
        name="channels",
        what="channels of this machine's Pythons, compilers and wheels",
        costs="packed again, in minutes; what was built with one cannot be installed without it",
        expires=30 * _DAY,
        unneeded_only=True,
    ),
    Kind(
        name="channel-packages",
        what="the packages in these channels",
        costs="packed again, in minutes",
        expires=30 * _DAY,
        unneeded_only=True,
    ),
    Kind(
        name="planned",
        what="indexes of channels that were only planned",
        costs="written again, in seconds",
        expires=7 * _DAY,
    ),
    Kind(
        name="debian",
        what="Debian roots with compilers and libraries",
        costs="made again, in one to seven minutes, with up to 2 GB of downloads",
    ),
    Kind(name="environments", what="packages unpacked for `env create`", costs="unpacked again"),
    Kind(name="install-pyg", what="what install-pyg compiled: objects and wheels", costs="compiled again"),
    Kind(name="audit", what="answers of servers, and git clones", costs="fetched again, 64 MB for PyTorch"),
    Kind(name="leftovers", what="the rest of what was being removed", costs="nothing", expires=0.0),
)
#: By name, what one asks for by name first.
KINDS = {kind.name: kind for kind in _ALL}
