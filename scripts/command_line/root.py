"""Where things lie."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from groundwork.errors import PreflightError
from groundwork.text import display as display
from groundwork.user_folders import home_folder

_ROOT = Path(__file__).resolve().parents[2]


def is_checkout() -> bool:
    """Return whether this runs in the repository, rather than installed in an environment."""
    return (_ROOT / "build-locally.py").is_file()


def repository() -> Path:
    """Return the repository this package is a part of.

    Raises PreflightError: This is an installed copy: configs and recipes are not in it.
    """
    if is_checkout():
        return _ROOT
    raise PreflightError(
        "this needs the repository with its configs and recipes, which are not installed with the program",
        "clone the repository; there: python3 build-locally.py",
    )


def feedstock(given: str | None) -> Path:
    """Return the feedstock to build: the one given, else this repository, which is one.

    Raises ConfigError: There is no recipe in it that can be built.
    """
    if given is None:
        return repository()
    from megabuild.configs.config import check_feedstock

    root = Path(os.path.abspath(given))
    check_feedstock(root)
    return root


def is_own(root: Path) -> bool:
    """Return whether a feedstock is the repository that this program runs in."""
    return is_checkout() and root.resolve() == _ROOT


def lacking_extra(error: ModuleNotFoundError) -> PreflightError | None:
    """Return what to say of an import that failed because a plain `pip install` leaves out conda's side."""
    if is_checkout() or not error.name:
        return None
    return PreflightError(
        f"this needs {error.name.partition('.')[0]}, which comes with the extra 'conda'",
        "install that, too: pip install 'megabuild[conda]', with the address that megabuild came from",
    )


def log_folder() -> Path:
    """Return where logs and crash files go: beside what is built, else into the user's folder for logs."""
    if is_checkout():
        return _ROOT / "output" / "logs"
    if home_folder(os.environ) is None:  # below a null device nothing can be written: it is shown
        return Path(os.environ.get("MEGABUILD_CACHE") or os.devnull).absolute() / "logs"
    return platformdirs.user_log_path("megabuild")


def output_folder(given: str | None, root: Path | None = None) -> Path:
    """Return the output folder of builds: the one given, the feedstock's or repository's, else the current folder's."""
    return Path(given or (root or (_ROOT if is_checkout() else Path())) / "output").absolute()
