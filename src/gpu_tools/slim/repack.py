"""Writes smaller copies of wheels and conda packages."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from gpu_tools.contents import scan
from gpu_tools.slim.library import Shrinking
from gpu_tools.slim.plan import SlimPlan, make_plan
from gpu_tools.slim.steps import SlimRequest
from gpu_tools.subject_kind import SubjectKind
from gpu_tools.unpacked_package import unpack_package
from groundwork import archives, wheel_file
from groundwork.damage import reading_archive
from groundwork.errors import UsageError
from groundwork.files import OLDEST_IN_ZIP
from groundwork.progress import Notes
from groundwork.zip_archive import open_zip, read_member

_LEVEL = 15  # rattler's default zstd level


def repack(package: Path, folder: Path, request: SlimRequest, note: Notes) -> tuple[SlimPlan, Path]:
    """Write a smaller copy of a package into ``folder``; return the plan and the new file (``…slim_sm90…``).

    Raises UsageError: No step removes anything, or the package has another format.
    """
    if package.suffix not in (".whl", ".conda"):
        raise UsageError(f"{package}: only wheels and .conda packages are packed again", "pass one of these")
    with unpack_package(package, folder) as (root, kind):
        contents = scan(root, name=str(package), kind=kind)
        into = root.parent / "new"
        plan = make_plan(contents, request, note, into=into)
        if not plan.rows:
            raise UsageError(
                f"{package.name}: nothing to remove", "list the steps: run slim without --output"
            )
        for path in plan.gone:
            (contents.root / path).unlink()
        for path, new in plan.new.items():
            os.replace(new, contents.root / path)
        note(f"packing {package.name}")
        gpus: tuple[str, ...] = ()
        if any(row.step.shrinks is Shrinking.GPU_CODE for row in plan.rows):
            gpus = request.gpus  # without the step, the package had no code for other GPUs
        tag = "_".join(["slim", *(gpu.replace("_", "") for gpu in gpus)])  # slim_sm90_sm120
        with reading_archive(package):
            if contents.kind is SubjectKind.WHEEL:
                written = _pack_wheel(package, contents.root, tag)
            else:
                written = _pack_conda(package, plan, tag, gpus)
        os.replace(written, folder / written.name)
        return plan, folder / written.name


def _pack_wheel(package: Path, root: Path, tag: str) -> Path:
    """Pack a wheel with a build tag: pip prefers it, and requirements on its version still match."""
    name, version, *build, python, abi, platform = package.stem.split("-")
    former = "1"
    if build:
        former = build[0]
    number = f"{former}{tag}"
    about = wheel_file.metadata(root, package.name) / "WHEEL"
    lines = [line for line in about.read_text().splitlines() if line and not line.startswith("Build:")]
    lines += [f"Build: {number}", ""]
    about.write_text("\n".join(lines))
    target = root.parent / "-".join([name, version, number, python, abi, f"{platform}.whl"])
    return wheel_file.pack(root, target, OLDEST_IN_ZIP)


def _pack_conda(package: Path, plan: SlimPlan, tag: str, gpus: Sequence[str]) -> Path:
    """Pack a conda package with its own build string and a constraint to GPUs that it has code for."""
    root = plan.contents.root
    index_file = root / "info" / "index.json"
    index = json.loads(index_file.read_text())
    index["build"] += f"_{tag}"
    if gpus:
        index["constrains"] = [*index.get("constrains", ()), f"__cuda_arch {_version_range(gpus)}"]
    index_file.write_text(json.dumps(index, indent=2))
    stem = "-".join([index["name"], index["version"], index["build"]])
    target = root.parent / f"{stem}.conda"
    with open_zip(package) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        new.writestr("metadata.json", read_member(old, "metadata.json"))
        for kind in ("pkg-", "info-"):
            (former,) = (name for name in old.namelist() if name.startswith(kind))
            with old.open(former) as source, new.open(f"{kind}{stem}.tar.zst", "w", force_zip64=True) as copy:
                _copy_tar(source, copy, plan)
    return target


def _copy_tar(source: IO[bytes], target: IO[bytes], plan: SlimPlan) -> None:
    """Copy an archive entry by entry, with the slimmed files' content and without removed files."""
    with archives.open_tar_pair(source, target, level=_LEVEL) as (old, new):
        for member in archives.entries(old):
            path = os.path.normpath(member.name)
            if path in plan.gone:
                continue
            if not member.isreg():
                new.addfile(member)
            elif path in plan.contents.every:  # not unpacked if the path leads outside
                with (plan.contents.root / path).open("rb") as content:
                    member.size = os.fstat(content.fileno()).st_size
                    new.addfile(member, content)


def _version_range(gpus: Sequence[str]) -> str:
    """Return a version range of compute capabilities: each GPU's, and later ones with the same major number.

    ``__cuda_arch`` is the virtual package of CEP 46 (https://conda.org/learn/ceps/cep-0046).
    """
    ranges = []
    for gpu in gpus:
        digits = gpu.removeprefix("sm_").rstrip("af")
        ranges.append(f">={digits[:-1]}.{digits[-1]},<{int(digits[:-1]) + 1}.0a0")
    return "|".join(ranges)
