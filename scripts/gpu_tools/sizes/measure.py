"""What can be measured: an environment, a package, a wheel, a channel, or a requirement."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from gpu_tools.sizes.installed import is_environment, measure_environment
from gpu_tools.sizes.packed import CONDA, find_packages, measure_channel, measure_conda_package, measure_wheel
from gpu_tools.sizes.tree import Sizes
from groundwork.errors import UsageError

_REMEDY = (
    "give the folder of an environment or a channel, a .conda, .tar.bz2 or .whl file, or a requirement such as "
    "torch==2.15.0"
)


def measure(*subjects: str, python: str | None = None) -> Sizes:
    """Measure a path, or requirements as pip takes them, for a Python (``3.12``), by default the one that runs this.

    Raises UsageError: It is neither, or ``python`` is not a version.
    Raises IntegrityError: A package or wheel is damaged.
    Raises ProviderError: A requirement cannot be looked up.
    """
    if len(subjects) == 1 and (sizes := _measure_path(Path(subjects[0]))):
        return sizes
    python = python or f"3.{sys.version_info.minor}"
    if not re.fullmatch(r"3\.\d{1,3}", python):
        raise UsageError(f"{python} is not a version of Python such as 3.12", "see --python")
    for subject in subjects:
        if Path(subject).exists():
            raise UsageError(f"{subject} is measured alone", "megabuild sizes --compare A B compares two")
        try:
            Requirement(subject)
        except InvalidRequirement:
            raise UsageError(f"there is no {subject}", _REMEDY) from None
        if subject.endswith((".whl", *CONDA)):
            raise UsageError(f"there is no {subject}", _REMEDY)
    # a client of indexes takes a moment to import
    from gpu_tools.sizes.requirement import measure_requirements

    return measure_requirements(subjects, python)


def _measure_path(path: Path) -> Sizes | None:
    if path.is_dir():
        if is_environment(path):  # conda's own has a folder with packages, too
            return measure_environment(path)
        if find_packages(path):
            return measure_channel(path)
        raise UsageError(f"{path} is neither an environment nor a channel", _REMEDY)
    if not path.is_file():
        return None
    if path.suffix == ".whl":
        return Sizes(subject=path.name, kind="wheel", packages=(measure_wheel(path),))
    if path.name.endswith(CONDA):
        return Sizes(subject=path.name, kind="package", packages=(measure_conda_package(path)[0],))
    raise UsageError(f"{path} cannot be measured", _REMEDY)
