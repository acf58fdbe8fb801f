"""Smaller copies of packages: of a wheel, or of a conda package."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpu_tools.sizes.measure import explain_damage
from gpu_tools.slim.contents import Contents, Note, scan
from gpu_tools.slim.plan import SlimPlan, make_plan
from gpu_tools.slim.steps import SlimRequest
from groundwork import archives, wheel_file
from groundwork.errors import UsageError
from groundwork.files import OLDEST_IN_ZIP, scratch

_LEVEL = 15  # what rattler calls the default


@contextmanager
def unpack_package(package: Path, near: Path | None = None) -> Iterator[Contents]:
    """Unpack a wheel or conda package for as long as the context lasts: below a folder, or among temporary files.

    Raises UsageError: It is neither a ``.whl`` nor a ``.conda`` file.
    Raises IntegrityError: It is damaged.
    """
    if package.suffix not in (".whl", ".conda") or not package.is_file():
        raise UsageError(
            f"{package} cannot be slimmed", "give the folder of an environment, or a .whl or .conda file"
        )
    with tempfile.TemporaryDirectory(prefix="megabuild-slim-") if near is None else scratch(near) as folder:
        root = Path(folder, "package")
        root.mkdir()
        with explain_damage(package):
            if package.suffix == ".whl":
                wheel_file.unpack(package, root)
            else:
                from rattler.package_streaming import extract

                extract(package, root)
        kind = "wheel" if package.suffix == ".whl" else "package"
        yield scan(root, name=str(package), kind=kind)


def repack(package: Path, folder: Path, request: SlimRequest, note: Note) -> tuple[SlimPlan, Path]:
    """Write a smaller copy of a package into a folder, and return the plan and the new file, whose name says so.

    Raises UsageError: There is nothing to take away.
    """
    with unpack_package(package, folder) as contents:
        into = contents.root.parent / "new"
        plan = make_plan(contents, request, note, into=into)
        if not plan.rows:
            raise UsageError(
                f"nothing can be taken away from {package.name}", "slim without --output lists the steps"
            )
        for path in plan.gone:
            (contents.root / path).unlink()
        for path, new in plan.new.items():
            os.replace(new, contents.root / path)
        note("packing")
        # none where there was no code for others in it
        gpus = request.gpus if any(row.step.name == "gpu-code" for row in plan.rows) else ()
        tag = "_".join(["slim", *(gpu.replace("_", "") for gpu in gpus)])  # slim_sm90_sm120
        if contents.kind == "wheel":
            written = _pack_wheel(package, contents.root, tag)
        else:
            written = _pack_conda(package, plan, tag, gpus)
        os.replace(written, folder / written.name)
        return plan, folder / written.name


def _pack_wheel(package: Path, root: Path, tag: str) -> Path:
    """Pack a wheel with a build tag, so that requirements of its version still mean it, and pip prefers it."""
    name, version, *build, python, abi, platform = package.stem.split("-")
    number = f"{build[0] if build else 1}{tag}"
    about = wheel_file.metadata(root) / "WHEEL"
    lines = [line for line in about.read_text().splitlines() if line and not line.startswith("Build:")]
    about.write_text("\n".join([*lines, f"Build: {number}", ""]))
    target = root.parent / "-".join([name, version, number, python, abi, f"{platform}.whl"])
    return wheel_file.pack(root, target, OLDEST_IN_ZIP)


def _pack_conda(package: Path, plan: SlimPlan, tag: str, gpus: Sequence[str]) -> Path:
    """Pack a conda package under a build string of its own, for machines whose GPUs it has code for."""
    root = plan.contents.root
    index_file = root / "info" / "index.json"
    index = json.loads(index_file.read_text())
    index["build"] += f"_{tag}"
    if gpus:
        index["constrains"] = [*index.get("constrains", ()), f"__cuda_arch {_version_range(gpus)}"]
    index_file.write_text(json.dumps(index, indent=2))
    stem = "-".join([index["name"], index["version"], index["build"]])
    target = root.parent / f"{stem}.conda"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        new.writestr("metadata.json", old.read("metadata.json"))
        for kind in ("pkg-", "info-"):
            (former,) = (name for name in old.namelist() if name.startswith(kind))
            with (
                old.open(former) as source,
                new.open(f"{kind}{stem}.tar.zst", "w", force_zip64=True) as copy,
            ):
                _copy_tar(source, copy, plan)
    return target


def _copy_tar(source: IO[bytes], target: IO[bytes], plan: SlimPlan) -> None:
    """Copy an archive entry by entry, with the files as they are now."""
    with archives.open_tar_pair(source, target, level=_LEVEL) as (old, new):
        for member in old:
            path = os.path.normpath(member.name)
            if path in plan.gone:
                continue
            if not member.isreg():
                new.addfile(member)
            elif path in plan.contents.every:  # and no place outside, which was not unpacked
                with (plan.contents.root / path).open("rb") as content:
                    member.size = os.fstat(content.fileno()).st_size
                    new.addfile(member, content)


def _version_range(gpus: Sequence[str]) -> str:
    """Return the compute capabilities that code runs on: that of each GPU, and later ones of the same major number.

    ``__cuda_arch`` is the virtual package of CEP 46 (https://conda.org/learn/ceps/cep-0046).
    """
    ranges = []
    for gpu in gpus:
        digits = gpu.removeprefix("sm_").rstrip("af")
        ranges.append(f">={digits[:-1]}.{digits[-1]},<{int(digits[:-1]) + 1}.0a0")
    return "|".join(ranges)
