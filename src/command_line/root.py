"""The folders of the repository, feedstocks, logs and output; and commands as users type them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import platformdirs

from groundwork.checkout import ROOT, is_checkout
from groundwork.errors import PreflightError
from groundwork.text import display
from groundwork.user_folders import home_folder


def repository() -> Path:
    """Return the repository this package is part of.

    Raises PreflightError: The program is installed, without configs and recipes.
    """
    if is_checkout():
        return ROOT
    raise PreflightError(
        "configs and recipes are not installed with megabuild; this command needs them",
        "clone the repository and run python3 build-locally.py in it",
    )


def feedstock(given: Path | None) -> Path:
    """Return the feedstock to build: ``given``, else this repository.

    Raises ConfigError: ``given`` has no recipe that can be built.
    """
    if given is None:
        return repository()
    from megabuild.configs.config import check_feedstock

    root = Path(os.path.abspath(given))
    check_feedstock(root)
    return root


def is_own(root: Path) -> bool:
    """Return whether a feedstock is the repository this program runs from."""
    return is_checkout() and root.resolve() == ROOT


def lacking_extra(error: ModuleNotFoundError) -> PreflightError | None:
    """Return the error for a module that a plain `pip install` leaves out; None if megabuild runs from a checkout."""
    if is_checkout() or not error.name:
        return None
    name = error.name.partition(".")[0]
    return PreflightError(f"{name} is not installed; this command needs it", f"run: {_install_extra()}")


def _install_extra() -> str:
    """Return the command that installs the extra from where megabuild was installed, with the same installer."""
    requirement = "megabuild[conda]"
    if address := _installed_from():
        requirement = f"{requirement} @ {address}"
    quoted = shlex.quote(requirement)
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force {quoted}"
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install {quoted}"
    if os.environ.get("UV"):  # set by uvx, whose environments are in a cache
        return f"uvx --from {quoted} {shlex.join(['megabuild', *sys.argv[1:]])}"
    return f"{shlex.quote(sys.executable)} -m pip install {quoted}"


def _installed_from() -> str:
    """Return the address that megabuild was installed from (PEP 610), or an empty string if it came from an index."""
    from importlib import metadata  # a third of the time of a short command, and only errors need it

    try:
        text = metadata.distribution("megabuild").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return ""
    if not text:
        return ""
    origin = json.loads(text)
    address = str(origin["url"])
    if "vcs_info" in origin:
        version = origin["vcs_info"]
        return f"{version['vcs']}+{address}@{version['commit_id']}"
    return address


def log_folder() -> Path:
    """Return the folder for logs and crash files: output/logs of a checkout, else the user's log folder."""
    if is_checkout():
        return ROOT / "output" / "logs"
    if home_folder(os.environ) is None:  # a crash file below /dev/null fails, so the crash is printed
        return Path(os.environ.get("MEGABUILD_CACHE") or os.devnull).absolute() / "logs"
    return platformdirs.user_log_path("megabuild")


def output_folder(given: str | None, root: Path | None = None) -> Path:
    """Return the output folder: ``given``, else output/ in the feedstock, the repository or the current folder."""
    if given:
        return Path(given).absolute()
    if root is None:
        root = ROOT if is_checkout() else Path()
    return (root / "output").absolute()


def typed(command: str) -> str:
    """Return ``megabuild status`` as users type it: in a checkout, ``python3 scripts/megabuild status``."""
    if not is_checkout():
        return command
    program, *words = command.split()
    path = ROOT / program
    if not path.is_file():
        path = ROOT / "scripts" / program
    return shlex.join(("python3", display(path), *words))
