"""pip's configuration of indexes and network access, without that of where to install.

Standard library only.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence

from groundwork import process

#: Options of ``pip install`` that reaching an index behind a firewall may take.
_KEPT = frozenset(
    {
        "index-url", "pypi-url", "extra-index-url", "no-index", "find-links", "trusted-host", "cert", "client-cert",
        "proxy", "timeout", "default-timeout", "retries", "resume-retries", "keyring-provider", "use-feature",
        "use-deprecated", "cache-dir", "no-cache-dir",
    }
)  # fmt: skip
#: The sections that count, from the weakest: what pip calls a variable's section comes last.
_SECTIONS = ("global", "install", ":env:")
_VARIABLE = "PIP_"
_FILE = "PIP_CONFIG_FILE"
_SECONDS = 60.0


def environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which pip uses the configured indexes, but installs only where it is told to.

    Others of pip's variables, and its files, could send the packages elsewhere (``target``, ``user``, ``prefix``) or
    nowhere (``dry-run``). ``--isolated`` would leave out the user's proxy with them, and keep the machine's own file.
    """
    bare = {name: value for name, value in environ.items() if not name.upper().startswith(_VARIABLE)}
    asked = {name: value for name, value in environ.items() if name == _FILE or _option(name) in _KEPT}
    command = [python, "-I", "-m", "pip", "config", "list", "--disable-pip-version-check"]
    done = process.run(command, timeout=_SECONDS, environ=bare | asked)
    found = {_variable(name): value for name, value in settings(done.stdout).items()}
    return bare | asked | found | {_FILE: os.devnull}


def settings(listed: str, sections: Sequence[str] = _SECTIONS) -> dict[str, str]:
    """Return those options of a ``pip config list`` that configure network access, the last section's."""
    found: dict[str, dict[str, str]] = {section: {} for section in sections}
    for line in listed.splitlines():
        key, _, written = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in found and name in _KEPT:
            try:
                found[section][name] = str(ast.literal_eval(written))
            except (SyntaxError, ValueError):
                continue  # not a setting, but a warning of pip's
    return {name: value for section in sections for name, value in found[section].items()}


def _option(variable: str) -> str:
    return (
        variable.removeprefix(_VARIABLE).lower().replace("_", "-") if variable.startswith(_VARIABLE) else ""
    )


def _variable(option: str) -> str:
    return _VARIABLE + option.upper().replace("-", "_")
