"""Names the kinds of subjects that the GPU tools examine."""

from __future__ import annotations

from enum import Enum


class SubjectKind(str, Enum):
    """A kind of subject; the values are those of JSON documents."""

    ENVIRONMENT = "environment"
    WHEEL = "wheel"
    CONDA_PACKAGE = "package"
    REQUIREMENTS = "requirements"  #: Packages that are not installed.
