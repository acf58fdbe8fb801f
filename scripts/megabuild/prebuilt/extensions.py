"""The extensions under the names that conda, PyPI, Python and the matrix give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from megabuild.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One extension.

    Parameters
    ----------
    conda:
        The conda package: ``pytorch_scatter``.
    name:
        Distribution and Python module, which are the same word: ``torch_scatter``.
    key:
        How its keys in conda_build_config.yaml begin: ``pyg_scatter``.
    repository:
        Where its source lies when there is no sdist of it; empty for those with one.
    """

    conda: str
    name: str
    key: str
    repository: str = ""


#: In the order of installing: torch_sparse imports torch_scatter.
EXTENSIONS = (
    Extension(
        conda="pyg-lib", name="pyg_lib", key="pyg_lib", repository="https://github.com/pyg-team/pyg-lib.git"
    ),
    Extension(conda="pytorch_scatter", name="torch_scatter", key="pyg_scatter"),
    Extension(conda="pytorch_sparse", name="torch_sparse", key="pyg_sparse"),
    Extension(conda="pytorch_cluster", name="torch_cluster", key="pyg_cluster"),
    Extension(conda="pytorch_spline_conv", name="torch_spline_conv", key="pyg_spline_conv"),
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """The version of an extension that the matrix names, and its sdist's sha256 (empty where there is no sdist)."""

    version: str
    sha256: str


def find(name: str) -> Extension:
    """Return the extension somebody means.

    Parameters
    ----------
    name:
        conda's or PyPI's name, with ``-`` or ``_``, or the short one: ``scatter``.

    Raises
    ------
    UsageError
        There is no such extension.
    """
    word = re.sub(r"[-_.]+", "_", name.strip().lower())
    for extension in EXTENSIONS:
        if word in (extension.name, extension.conda.replace("-", "_"), extension.key.removeprefix("pyg_")):
            return extension
    known = ", ".join(extension.name for extension in EXTENSIONS)
    raise UsageError(f"there is no extension '{name}'", f"these are known: {known}")


def release(extension: Extension, variant: Mapping[str, tuple[str, ...]]) -> Release:
    """Return what the matrix says about an extension.

    Parameters
    ----------
    variant:
        A config's keys and values, as `megabuild.configs.config.load` reads them.
    """
    digests = variant.get(f"{extension.key}_sha256", ())
    return Release(version=variant[f"{extension.key}_version"][0], sha256=digests[0] if digests else "")
