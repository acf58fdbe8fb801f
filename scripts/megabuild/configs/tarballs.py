"""What is known of releases: sha256 of official tarballs that somebody has published, and CUDA of upstream's wheels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tarball:
    """A release's ``pytorch-v<version>.tar.gz``."""

    sha256: str
    source: str  #: who published it
    confirmed: bool = True  #: whether packages are known to have been built from the file that has it


TARBALLS = {
    "2.13.0": Tarball(
        "66614a19060f69cfd63cd0295f65a1241bd15df2fa65c60ae51066c11c2ce812",
        "conda-forge's recipe, pytorch-cpu-feedstock 74dd3d46",
    ),
    "2.14.1": Tarball(
        "d0ebad9ca4219959b29b7ad9ab6469fe49a3d668f8b5a62dd115f02f3a914447",
        "one copy of Homebrew's formula, not compared with the file",
        confirmed=False,
    ),
}

#: CUDA versions that upstream compiles wheels for, by series of releases (.ci/manywheel/build_env_setup.py at commit
#: 00505f2920); it tests no compile for another one.
UPSTREAM_CUDA = {"2.14": ("12.6", "13.0", "13.2"), "2.15": ("13.0", "13.2")}
