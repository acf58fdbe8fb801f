"""Simulate a Debian root before it is made: ask the mirror for versions and download sizes."""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import msgspec

from groundwork import files
from megabuild.providers.command import run
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import Foreign
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.environment import Download
from megabuild.providers.local.compilers import Toolchain

_DAY = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class AptAnswer:
    """What apt would download."""

    versions: Mapping[str, str]  #: package to version
    files: int  #: source archives included
    size: int


_ANSWERS = msgspec.json.Decoder(AptAnswer)


@dataclass(frozen=True, kw_only=True)
class SimulatedRoot:
    """A root that does not exist yet."""

    root: DebianRoot
    toolchain: Toolchain  #: its compiler
    versions: Mapping[str, str]  #: of its packages
    download: Download  #: what apt would fetch


def simulate_root(
    cache: Path, report: Callable[[str], None], *, cuda: bool = False, foreign: Foreign | None = None
) -> SimulatedRoot:
    """Return what :func:`megabuild.providers.debian.root.make` would make; the mirror's answer is kept for a day.

    Raises ProviderError: No mirror is configured or answers, or a package is gone.
    """
    lines, packages, entry = debian_root.wanted(cache, cuda=cuda, foreign=foreign)
    kept = entry.with_suffix(".json")
    try:
        known = time.time() - kept.stat().st_mtime < _DAY
        answer = _ANSWERS.decode(kept.read_bytes() if known else b"")
    except (OSError, msgspec.MsgspecError):
        report(f"asking the Debian mirror for the packages of a {debian_root.SUITE} root")
        answer = ask_mirror(lines, packages, debian_root.SOURCE, foreign)
        files.write(kept, msgspec.json.encode(answer).decode())
    versions = answer.versions
    release = re.search(r"deb(\d+)u(\d+)$", versions.get("base-files", ""))
    root = DebianRoot(
        path=entry / "root",
        source=entry / "root" / debian_root.SOURCE_FOLDER / "tree",
        fingerprint="not made yet",
        release=".".join(release.groups()) if release else debian_root.SUITE,
        foreign=foreign,
    )
    named = versions.get("gcc", "").partition(":")[2].split(".")[0]
    toolchain = Toolchain(
        cc="/usr/bin/gcc",
        cxx="/usr/bin/g++",
        version=versions.get(f"gcc-{named}", "0").partition("-")[0],
        glibc=versions.get("libc6", "0").partition("-")[0],
        programs={},
        libraries=dict.fromkeys(("libgcc", "libstdcxx", "libgomp"), root.path),
        digest=root.fingerprint,
        triplet=foreign.triplet if foreign else "",
    )
    download = Download(
        what="Debian packages", count=answer.files, size=answer.size, files={entry.name: answer.size}
    )
    return SimulatedRoot(root=root, toolchain=toolchain, versions=versions, download=download)


def ask_mirror(
    lines: Sequence[str], packages: Sequence[str], source: str, foreign: Foreign | None = None
) -> AptAnswer:
    """Ask a Debian mirror, given as sources.list lines, for the packages of a root; nothing is installed.

    Besides the essential packages and those named that is a source package with its build dependencies; where another
    architecture is compiled for, ``packages`` are all that is installed.

    Raises ProviderError: apt is missing, the mirror does not answer, or it lacks a package.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("lists/partial", "archives/partial", "nothing"):
            (folder / part).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("\n".join(lines) + "\n")
        places = {
            "Dir::State::status": "status", "Dir::State::lists": "lists", "Dir::Cache": "",
            "Dir::Etc::SourceList": "sources.list", "Dir::Etc::SourceParts": "nothing",
        }  # fmt: skip
        own = [f"-o={option}={folder / place}" for option, place in places.items()]
        own += ["-o=Acquire::Languages=none", "-o=APT::Sandbox::User=", "-qq"]
        own += (
            [f"-o=APT::Architectures::={arch}" for arch in (foreign.native, foreign.arch)] if foreign else []
        )

        def get(*words: str) -> str:
            remedy = "Check the network and this machine's apt sources (apt-get update)."
            return run(["apt-get", *own, *words], what="asking the Debian mirror", remedy=remedy, timeout=300)

        get("update")
        brief = ("--print-uris", "--no-install-recommends")
        essential = f"?and(?essential,?architecture({foreign.native}))" if foreign else "?essential"
        printed = get("install", *brief, essential, "build-essential", *packages)
        printed += get("source", "--print-uris", source)
        if foreign is None:
            printed += get("build-dep", *brief, source)
        else:
            printed += get("download", "--print-uris", *foreign.python_packages)
    rows = [shlex.split(line)[1:3] for line in printed.splitlines() if line.startswith("'")]
    sizes = {unquote(file): int(size) for file, size in rows}
    debs = (file.split("_") for file in sizes if file.endswith(".deb"))
    return AptAnswer(
        versions={deb: version for deb, version, _ in debs}, files=len(sizes), size=sum(sizes.values())
    )
