"""Reads the user's pip settings from pip, and runs pip with only those that lead to packages.

Settings such as ``target`` or ``dry-run`` change where pip installs, or whether it does: they belong to commands that
the user types, not to those that megabuild runs. Standard library only, because the private environment is made with
it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groundwork import process, redact
from groundwork.errors import ProviderError

#: Settings that every pip gets: indexes, the way to them, caches, time limits.
_ACCESS = frozenset(
    {
        "cache-dir",
        "cert",
        "client-cert",
        "default-timeout",
        "extra-index-url",
        "find-links",
        "index-url",
        "keyring-provider",
        "no-cache-dir",
        "no-index",
        "proxy",
        "resume-retries",
        "retries",
        "trusted-host",
        "use-deprecated",
        "use-feature",
    }
)
#: Settings that also apply to the user's own environments: the user's limits of versions, and permission (PEP 668).
ENVIRONMENT = frozenset({"break-system-packages", "constraint"})
#: Settings that change neither packages nor their place.
_DISPLAY = frozenset(
    {
        "config-file",
        "debug",
        "disable-pip-version-check",
        "log",
        "log-file",
        "no-color",
        "no-input",
        "no-python-version-warning",
        "no-warn-conflicts",
        "no-warn-script-location",
        "progress-bar",
        "quiet",
        "require-virtualenv",
        "root-user-action",
        "verbose",
    }
)
#: Second names of options, by which a setting would count twice.
_ALIASES = {"timeout": "default-timeout", "pypi-url": "index-url"}
#: Asks any pip for all of its settings, also where the user's settings silence it.
_AUDIBLE = {"PIP_QUIET": "0", "PIP_VERBOSE": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "200"}
_LINE = re.compile(r"([\w-]+)\.([\w-]+)=(.*)")
#: pip takes a second, but over 20 on a busy machine that emulates another processor.
_SECONDS = 120.0
_TRUE = ("1", "true", "yes", "on", "y", "t")  # pip's words
REMEDY = "check pip's configuration (pip config list)"


@dataclass(frozen=True)
class PipSettings:
    """The user's settings for one pip, by the long names of its options: ``index-url``."""

    values: Mapping[str, str]  #: lists have their entries separated by white space

    def is_on(self, name: str) -> bool:
        """Return whether a switch is on."""
        return self.values.get(name, "").lower() in _TRUE

    def environ(self, environ: Mapping[str, str], more: frozenset[str] = frozenset()) -> dict[str, str]:
        """Return the environment variables of a pip that gets the way to packages, and the settings ``more``.

        It reads no configuration file. The variables may hold credentials.
        """
        variables = without_pip(environ)
        for name, value in self.values.items():
            if name in _ACCESS or name in more:
                variables[f"PIP_{name.upper().replace('-', '_')}"] = value
        variables["PIP_CONFIG_FILE"] = os.devnull
        return variables

    def ignored(self) -> tuple[str, ...]:
        """Return the names of the settings that megabuild's pips never get, sorted."""
        return tuple(sorted(self.values.keys() - _ACCESS - ENVIRONMENT - _DISPLAY))


def own_pip() -> tuple[str, ...]:
    """Return the words that start the pip of the running Python."""
    return (sys.executable, "-I", "-m", "pip")


def without_pip(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without pip's own."""
    return {name: value for name, value in environ.items() if not name.startswith("PIP_")}


def read(
    pip: Sequence[str], environ: Mapping[str, str], commands: Sequence[str] = ("install",)
) -> PipSettings:
    """Ask a pip for the user's settings: files, then variables; a later one of ``commands`` overrides earlier ones.

    Raises ProviderError: pip is missing, too slow, or cannot read its files. Without its answer, packages of another
    index than the user's would be taken.
    """
    values: dict[str, str] = {}
    by_section = _of_files(ask(pip, environ, "config", "list"))
    for section in ("global", *commands):
        values |= by_section.get(section, {})
    for variable, value in environ.items():
        if variable.startswith("PIP_"):
            name = _full_name(variable.removeprefix("PIP_").lower().replace("_", "-"))
            values[name] = value or values.get(name, "")  # pip, too, passes over an empty variable
    return PipSettings({name: value for name, value in values.items() if value.strip()})


def _of_files(listing: str) -> dict[str, dict[str, str]]:
    """Return the settings that pip lists, by section and name."""
    by_section: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        section, option, value = match.groups()
        with contextlib.suppress(SyntaxError, ValueError):  # a warning of pip, not a setting
            by_section.setdefault(section, {})[_full_name(option)] = str(ast.literal_eval(value))
    return by_section


def _full_name(option: str) -> str:
    return _ALIASES.get(option, option)


def ask(pip: Sequence[str], environ: Mapping[str, str], *arguments: str) -> str:
    """Return the output of a pip that reads the user's files; it may hold credentials: never show or log it.

    Raises ProviderError: pip is missing, too slow, or fails.
    """
    variables = without_pip(environ) | _AUDIBLE
    if "PIP_CONFIG_FILE" in environ:
        variables["PIP_CONFIG_FILE"] = environ["PIP_CONFIG_FILE"]
    done = process.run([*pip, *arguments], timeout=_SECONDS, environ=variables)
    if done.returncode == 0:
        return done.stdout
    if done.returncode == process.TIMED_OUT:
        raise ProviderError(f"pip {' '.join(arguments)}: {done.stderr}", "run again on a less busy machine")
    cause = process.describe_end(done.returncode)
    lines = (done.stdout + done.stderr).strip().splitlines()
    if lines:
        cause = redact.text(lines[-1].strip())
    raise ProviderError(f"{' '.join(pip)} cannot list its configuration: {cause}", _remedy(pip, cause))


def _remedy(pip: Sequence[str], cause: str) -> str:
    if "No module named pip" in cause:
        return f"run: {pip[0]} -m ensurepip"
    if "does not support python" in cause:  # the running Python's pip, started for an older one
        return f"run: {pip[-1]} -m ensurepip"
    return REMEDY
