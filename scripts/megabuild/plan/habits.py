"""The variables of conda-smithy's build scripts: what means the same here, and a sentence for what has no effect."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence

from groundwork.errors import UsageError
from megabuild.isolation.base import Isolation
from megabuild.isolation.container import Container

CONTAINERS = ("docker", "podman")
_ENGINE, _RUN_ARGS, _IMAGE = "DOCKER_EXECUTABLE", "CONDA_FORGE_DOCKER_RUN_ARGS", "DOCKER_IMAGE"
_DEBUG, _OUTPUT = "BUILD_WITH_CONDA_DEBUG", "BUILD_OUTPUT_ID"

#: What has no effect, and what there is instead; no value is ever shown.
_NO_EFFECT = {
    "BINSTAR_TOKEN": "nothing is uploaded, so no token is read",
    "CI": "a run asks nothing and shows no bars where there is no terminal",
    "FEEDSTOCK_NAME": "which packages a feedstock may publish is conda-forge's to check, when they are uploaded",
    "MINIFORGE_HOME": "no conda takes part; --output and MEGABUILD_CACHE name the folders that are written to",
    "OSX_SDK_DIR": "no SDK is downloaded; compilers take the one that this system has",
    "UPLOAD_PACKAGES": "nothing is uploaded; the channel that a run ends with is a folder",
}
_NO = frozenset({"", "0", "false", "no", "off"})


def image(environ: Mapping[str, str]) -> str:
    """Return the container image that was chosen in place of the config's, or nothing."""
    return environ.get(_IMAGE, "").strip()


def engines(environ: Mapping[str, str]) -> Sequence[str]:
    """Return the container engines to try: the one that ``DOCKER_EXECUTABLE`` names, else docker, then podman.

    Raises UsageError: It names another program.
    """
    named = environ.get(_ENGINE, "").strip()
    if not named:
        return CONTAINERS
    name = os.path.basename(named)
    if name not in CONTAINERS or (named != name and shutil.which(name) != named):
        raise UsageError(
            f"{_ENGINE} is '{named}', and containers are run with the docker or podman that is first on PATH",
            f"set it to docker or podman, or unset it and use --engine {CONTAINERS[1]}",
        )
    return (name,)


def run_arguments(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return further arguments of ``docker run``.

    Raises UsageError: They cannot be taken apart as a shell would.
    """
    try:
        return tuple(shlex.split(environ.get(_RUN_ARGS, "")))
    except ValueError as error:
        raise UsageError(f"{_RUN_ARGS} cannot be read: {error}", "quote it as for a shell") from error


def debug(environ: Mapping[str, str]) -> tuple[bool, str | None]:
    """Return whether ``BUILD_WITH_CONDA_DEBUG`` asks for what ``--debug`` does, and of which output."""
    wanted = environ.get(_DEBUG, "").strip().lower() not in _NO
    return wanted, environ.get(_OUTPUT) or None


def notes(environ: Mapping[str, str], isolation: Isolation | None) -> tuple[str, ...]:
    """Return a sentence for every variable that is set and has no effect on a run; None: it cannot be built here."""
    found = {
        name: why for name, why in _NO_EFFECT.items() if environ.get(name, "").strip().lower() not in _NO
    }
    if environ.get(_OUTPUT):
        found[_OUTPUT] = "it goes with --debug"
    if isolation is not None and not isinstance(isolation, Container):
        place = "on the host" if isolation.name == "host" else f"in {isolation.name}"
        others = (_ENGINE, _RUN_ARGS, _IMAGE)
        found |= {name: f"this is built {place}; see --engine" for name in others if environ.get(name)}
    elif isolation is not None and os.path.basename(environ.get(_ENGINE, "")) not in ("", isolation.name):
        found[_ENGINE] = f"--engine {isolation.name} counts"
    return tuple(f"{name} has no effect: {why}" for name, why in found.items())
