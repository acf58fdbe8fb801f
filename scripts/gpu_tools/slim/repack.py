"""Smaller copies of packages: a wheel, a conda package, or all packages of a channel."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpu_tools.sizes.packed import explain_damage
from gpu_tools.slim.listing import Contents, Note, scan
from gpu_tools.slim.savings import SlimPlan, make_plan
from gpu_tools.slim.steps import SlimRequest
from gpu_tools.slim.unused_nvidia import is_nvidia_library
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
        yield scan(root, name=str(package), kind=kind, originals={})


def repack(
    package: Path,
    folder: Path,
    request: SlimRequest,
    note: Note,
    *,
    for_myself: bool,
    beside: Collection[str] = (),
) -> tuple[SlimPlan, Path]:
    """Write a smaller copy of a package into a folder, and return the plan and the new file, whose name says so.

    ``for_myself``: NVIDIA's libraries may be changed, which their licence forbids to pass on. ``beside`` names the
    packages of its channel, itself among them: they all get the same ending to their build strings, and what asks for
    one build of another asks for the new one.

    Raises UsageError: NVIDIA's libraries would be changed, or there is nothing to take away.
    """
    with unpack_package(package, folder) as contents:
        into = contents.root.parent / "new"
        plan = make_plan(contents, request, note, into=into)
        theirs = [path for path in plan.slimmed if is_nvidia_library(path)]
        if theirs and not for_myself:
            raise UsageError(
                f"{package.name} holds libraries of NVIDIA's ({Path(theirs[0]).name}), whose licence does not let "
                "changed copies be passed on",
                "slim them where they are installed: megabuild slim ENV --apply; or, for a package that stays with "
                "you, --for-myself",
            )
        if not plan.rows and not beside:
            raise UsageError(
                f"nothing can be taken away from {package.name}", "slim without --output lists the steps"
            )
        for path in plan.gone:
            (contents.root / path).unlink()
        for path, new in plan.new.items():
            os.replace(new, contents.root / path)
        note("packing")
        made = _wheel(package, plan) if contents.kind == "wheel" else _conda(package, plan, beside)
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(made, folder / made.name)
        return plan, folder / made.name


def repack_channel(
    packages: Sequence[Path], folder: Path, request: SlimRequest, note: Note, *, for_myself: bool
) -> Iterator[tuple[SlimPlan, Path]]:
    """Write smaller copies of a channel's packages into another folder; they ask for one another, and are indexed."""
    from groundwork.channel_folder import index

    # a package without its build string is its name and version
    beside = {path.name.rsplit("-", 2)[0] for path in packages}
    for package in packages:
        subdir = folder / package.parent.name
        yield repack(package, subdir, request, note, for_myself=for_myself, beside=beside)
    index(folder, next((path.parent.name for path in packages if path.parent.name != "noarch"), "noarch"))


def _tag(gpus: Sequence[str]) -> str:
    """Return what a file name says of a slimming: ``slim_sm90_sm120``."""
    return "_".join(["slim", *(gpu.replace("_", "") for gpu in gpus)])


def _gpus(plan: SlimPlan) -> tuple[str, ...]:
    """Return the GPUs that a package is for from now on; none where there was no code for others in it."""
    return plan.request.gpus if any(row.step.name == "gpu-code" for row in plan.rows) else ()


def _wheel(package: Path, plan: SlimPlan) -> Path:
    """Pack a wheel with a build tag, so that requirements of its version still mean it, and pip prefers it."""
    root = plan.contents.root
    name, version, *build, python, abi, platform = package.stem.split("-")
    number = f"{build[0] if build else 1}{_tag(_gpus(plan))}"
    about = wheel_file.metadata(root) / "WHEEL"
    lines = [line for line in about.read_text().splitlines() if line and not line.startswith("Build:")]
    about.write_text("\n".join([*lines, f"Build: {number}", ""]))
    made = root.parent / "-".join([name, version, number, python, abi, f"{platform}.whl"])
    return wheel_file.pack(root, made, OLDEST_IN_ZIP)


def _conda(package: Path, plan: SlimPlan, beside: Collection[str]) -> Path:
    """Pack a conda package under a build string of its own, for machines whose GPUs it has code for."""
    root = plan.contents.root
    index_file = root / "info" / "index.json"
    index = json.loads(index_file.read_text())
    ending = f"_{_tag(plan.request.gpus if beside else _gpus(plan))}"
    index["build"] += ending
    for key in ("depends", "constrains"):
        index[key] = [
            f"{spec}{ending}" if len(spec.split()) == 3 and spec.split()[0] in beside else spec
            for spec in index.get(key, ())
        ]
    if gpus := _gpus(plan):
        index["constrains"].append(f"__cuda_arch {_for_archs(gpus)}")
    index_file.write_text(json.dumps(index, indent=2))
    stem = "-".join([index["name"], index["version"], index["build"]])
    made = root.parent / f"{stem}.conda"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as new:
        new.writestr("metadata.json", old.read("metadata.json"))
        for kind in ("pkg-", "info-"):
            (former,) = (name for name in old.namelist() if name.startswith(kind))
            with (
                old.open(former) as source,
                new.open(f"{kind}{stem}.tar.zst", "w", force_zip64=True) as target,
            ):
                _tar(source, target, plan)
    return made


def _tar(source: IO[bytes], target: IO[bytes], plan: SlimPlan) -> None:
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


def _for_archs(gpus: Sequence[str]) -> str:
    """Return the compute capabilities that code runs on: that of each GPU, and later ones of the same major number.

    ``__cuda_arch`` is the virtual package of CEP 46 (https://conda.org/learn/ceps/cep-0046).
    """
    ranges = []
    for gpu in gpus:
        digits = gpu.removeprefix("sm_").rstrip("af")
        ranges.append(f">={digits[:-1]}.{digits[-1]},<{int(digits[:-1]) + 1}.0a0")
    return "|".join(ranges)
