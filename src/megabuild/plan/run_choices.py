"""The options of a run that users choose, each declared once: the command line shows and reads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from groundwork.interrupts import Deadline, parse_deadline
from groundwork.option_fields import either, option, repeatable, switch
from megabuild.isolation.engine import AUTO, Engine, parse_engine

#: Sections of the help text.
SELECT = "Select"
BUILD = "Build"
EXTENSIONS = "PyTorch Geometric's extensions"


class PygMode(str, Enum):
    """The source of PyTorch Geometric's extensions."""

    AUTO = "auto"  #: a wheel if one fits, else compile
    SOURCE = "source"
    PREBUILT = "prebuilt"
    NONE = "none"  #: no extensions


class EnvironmentChoice(str, Enum):
    """The packages of the build environments."""

    AUTO = "auto"  #: the last run's to resume an unfinished one, else the newest
    KEPT = "kept"  #: those of the config's last run
    NEWEST = "newest"  #: the newest of the channels


def _octets(gigabytes: float) -> int:
    return int(gigabytes * 1e9)


@dataclass(frozen=True, kw_only=True)
class RunChoices:
    """The choices that all configs of a command share; None and empty tuples leave the choice to the config."""

    pythons: tuple[str, ...] = repeatable(
        SELECT, "--python", "-p", metavar="X.Y",
        help="Only this Python, repeatable.  [default: all of the config]",
    )  # fmt: skip
    torch: str | None = option(
        SELECT, "--torch", metavar="X.Y.Z",
        help="Another release, also a nightly for wheel configs. To compile one, add --torch-source.",
    )  # fmt: skip
    #: folder or tarball with PyTorch's source
    torch_source: Path | None = option(
        SELECT, "--torch-source", metavar="DIR|TARBALL", convert=Path.absolute,
        help="Source of PyTorch with submodules, instead of the provider's.",
    )  # fmt: skip
    #: build a scaled model of PyTorch, for the Pythons of this machine
    rehearse: bool = switch(
        SELECT, "--rehearse",
        help="Build a small model of PyTorch: minutes, not hours.",
    )  # fmt: skip
    engine: Engine | None = option(
        BUILD, "--engine", choices=(AUTO, *(engine.value for engine in Engine)), default_word=AUTO, show_default=True,
        convert=parse_engine,
        help="Where the build runs; auto follows the provider.",
    )  # fmt: skip
    cpu_count: int | None = option(
        BUILD, "--jobs", "-j", metavar="N", at_least=1,
        help="Compile jobs.  [default: CPU_COUNT, or by cores and memory]",
    )  # fmt: skip
    #: most bytes for all compilers together
    memory: int | None = option(
        BUILD, "--memory", metavar="GB", at_least=1, typed=float, convert=_octets,
        help="Memory for all compilers together, in GB.  [default: the free memory]",
    )  # fmt: skip
    arch_list: str | None = option(
        BUILD, "--arch-list", metavar="LIST",
        help="CUDA architectures to compile for, such as '9.0;12.0'.  [default: the config's]",
    )  # fmt: skip
    optimization: str | None = option(
        BUILD, "--optimization", choices=("0", "2"),
        help="Optimization level: 2 as released, 0 for a quick trial.  [default: 2]",
    )  # fmt: skip
    upstream_tests: bool | None = either(
        BUILD, "--upstream-tests", "--no-upstream-tests",
        help="Run PyTorch's own tests (package pytorch-tests) for each Python, or leave them out.  [default: run for "
        "conda-forge's Linux configs; leave out for Debian's, macOS's, and rehearsals]",
    )  # fmt: skip
    keep_going: bool = switch(
        BUILD, "--keep-going", "-k",
        help="After a failure, build the packages that do not need the failed one.",
    )  # fmt: skip
    environments: EnvironmentChoice = option(
        BUILD, "--environments", choices=[choice.value for choice in EnvironmentChoice],
        default=EnvironmentChoice.AUTO, default_word=EnvironmentChoice.AUTO.value, show_default=True,
        convert=EnvironmentChoice,
        help="Packages to build with. kept: those of the last run. newest: those of the channels. auto: kept to resume "
        "an unfinished run, else newest.",
    )  # fmt: skip
    deadline: Deadline | None = option(
        BUILD, "--deadline", metavar="TIME", typed=str, convert=parse_deadline,
        help="Stop after this time (5h30m, 90m) with exit code 28; run again to resume.",
    )  # fmt: skip
    pyg: PygMode = option(
        EXTENSIONS, "--pyg", choices=[mode.value for mode in PygMode], default=PygMode.AUTO,
        default_word=PygMode.AUTO.value, show_default=True, convert=PygMode,
        help="auto: a verified wheel of the index, else compile. source: compile. prebuilt: wheels only. none: no "
        "extensions.",
    )  # fmt: skip
    extensions: tuple[str, ...] = repeatable(
        EXTENSIONS, "--extension", "-e", metavar="NAME",
        help="Only this extension and those it needs, repeatable.",
    )  # fmt: skip
    pyg_index: str | None = option(
        EXTENSIONS, "--pyg-index", metavar="URL|DIR",
        help="Index of the extensions' wheels.  [default: the official one]",
    )  # fmt: skip
    pyg_sources: str | None = option(
        EXTENSIONS, "--pyg-sources", metavar="URL|DIR",
        help="The extensions' source archives.  [default: PyPI]",
    )  # fmt: skip
