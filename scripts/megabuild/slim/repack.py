"""Smaller copies of packages: a wheel, a conda package, or all packages of a channel."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import zstandard

from megabuild.errors import IntegrityError, UsageError
from megabuild.files import scratch
from megabuild.slim.listing import Contents, look
from megabuild.slim.needed import is_nvidia_library
from megabuild.slim.records import corrected
from megabuild.slim.savings import Note, Plan, make_plan
from megabuild.slim.steps import Request

_LEVEL = 15  # what rattler calls the default


@contextmanager
def unpacked(package: Path, near: Path | None = None) -> Iterator[Contents]:
    """Unpack a wheel or conda package for as long as the context lasts.

    Parameters
    ----------
    near:
        The folder to unpack below; None: the system's for temporary files.

    Raises
    ------
    UsageError
        It is neither a ``.whl`` nor a ``.conda`` file.
    IntegrityError
        It is damaged.
    """
    if package.suffix not in (".whl", ".conda") or not package.is_file():
        raise UsageError(
            f"{package} is nothing to slim", "give the folder of an environment, or a .whl or .conda file"
        )
    with tempfile.TemporaryDirectory(prefix="megabuild-slim-") if near is None else scratch(near) as folder:
        root = Path(folder, "package")
        root.mkdir()
        try:
            if package.suffix == ".whl":
                with zipfile.ZipFile(package) as archive:
                    archive.extractall(root)
            else:
                from rattler.package_streaming import extract

                extract(package, root)
        except OSError as error:
            if error.filename or error.errno:
                raise
            raise _damaged(package, error) from error
        except Exception as error:  # zipfile's and rattler's errors share no base class
            raise _damaged(package, error) from error
        kind = "wheel" if package.suffix == ".whl" else "package"
        yield look(root, name=str(package), kind=kind, aside={})


def repacked(
    package: Path,
    folder: Path,
    request: Request,
    note: Note,
    *,
    for_myself: bool,
    beside: Collection[str] = (),
) -> tuple[Plan, Path]:
    """Write a smaller copy of a package, whose file name says so.

    Parameters
    ----------
    folder:
        Where to.
    for_myself:
        NVIDIA's libraries may be changed, which their licence forbids to pass on.
    beside:
        Names of the packages of its channel, itself among them: they all get the same ending to their build strings,
        and what asks for one build of another asks for the new one.

    Returns
    -------
    The plan, and the new file.

    Raises
    ------
    UsageError
        NVIDIA's libraries would be changed, or there is nothing to take away.
    """
    with unpacked(package, folder) as contents:
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
            raise UsageError(f"nothing can be taken away from {package.name}", "see --plan")
        for path in plan.gone:
            (contents.root / path).unlink()
        for path, new in plan.new.items():
            os.replace(new, contents.root / path)
        note("packing")
        made = (
            _wheel(package, contents, plan)
            if contents.kind == "wheel"
            else _conda(package, contents, plan, beside)
        )
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(made, folder / made.name)
        return plan, folder / made.name


def channel(
    packages: Sequence[Path], folder: Path, request: Request, note: Note, *, for_myself: bool
) -> Iterator[tuple[Plan, Path]]:
    """Write smaller copies of all packages of a channel, which ask for one another, and index them.

    Parameters
    ----------
    packages:
        Its ``.conda`` files.
    folder:
        The new channel.
    """
    from megabuild.channel_folder import index

    # a package without its build string is its name and version
    beside = {path.name.rsplit("-", 2)[0] for path in packages}
    for package in packages:
        yield repacked(
            package, folder / package.parent.name, request, note, for_myself=for_myself, beside=beside
        )
    index(folder, next((one.parent.name for one in packages if one.parent.name != "noarch"), "noarch"))


def _tag(gpus: Sequence[str]) -> str:
    """Return what a file name says of a slimming: ``slim_sm90_sm120``."""
    return "_".join(["slim", *(gpu.replace("_", "") for gpu in gpus)])


def _gpus(plan: Plan) -> tuple[str, ...]:
    """Return the GPUs that a package is for from now on; none where there was no code for others in it."""
    return plan.request.gpus if any(row.step.name == "gpu-code" for row in plan.rows) else ()


def _wheel(package: Path, contents: Contents, plan: Plan) -> Path:
    """Pack a wheel with a build tag, so that requirements of its version still mean it, and pip prefers it."""
    name, version, *build, python, abi, platform = package.stem.split("-")
    number = f"{build[0] if build else 1}{_tag(_gpus(plan))}"
    made = contents.root.parent / "-".join([name, version, number, python, abi, f"{platform}.whl"])
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        members = {one.filename: one for one in old.infolist()}
        (about,) = (path for path in members if path.endswith(".dist-info/WHEEL") and path.count("/") == 1)
        record = about.removesuffix("WHEEL") + "RECORD"
        _name_build(contents.root, about, record, number)
        for path in sorted(members, key=lambda path: path == record):  # the list comes last
            if path not in plan.gone and not members[path].is_dir() and path in contents.every:
                with (
                    (contents.root / path).open("rb") as source,
                    new.open(_header(members[path]), "w", force_zip64=True) as target,
                ):
                    shutil.copyfileobj(source, target, 1 << 20)
    return made


def _header(old: zipfile.ZipInfo) -> zipfile.ZipInfo:
    header = zipfile.ZipInfo(old.filename, old.date_time)
    header.external_attr, header.compress_type = old.external_attr, zipfile.ZIP_DEFLATED
    return header


def _name_build(root: Path, about: str, record: str, number: str) -> None:
    lines = [
        line for line in (root / about).read_text().splitlines() if line and not line.startswith("Build:")
    ]
    (root / about).write_text("\n".join([*lines, f"Build: {number}", ""]))
    text = corrected(root / record, record, (), {about: root / about})
    if text is not None:
        (root / record).write_text(text)


def _conda(package: Path, contents: Contents, plan: Plan, beside: Collection[str]) -> Path:
    """Pack a conda package under a build string of its own, for machines whose GPUs it has code for."""
    index_file = contents.root / "info" / "index.json"
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
    made = contents.root.parent / f"{stem}.conda"
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as new:
        new.writestr("metadata.json", old.read("metadata.json"))
        for kind in ("pkg-", "info-"):
            (former,) = (name for name in old.namelist() if name.startswith(kind))
            with (
                old.open(former) as source,
                new.open(f"{kind}{stem}.tar.zst", "w", force_zip64=True) as target,
            ):
                _tar(source, target, contents, plan)
    return made


def _tar(source: IO[bytes], target: IO[bytes], contents: Contents, plan: Plan) -> None:
    """Copy an archive entry by entry, with the files as they are now."""
    reader = zstandard.ZstdDecompressor().stream_reader(source)
    writer = zstandard.ZstdCompressor(level=_LEVEL, threads=-1).stream_writer(target, closefd=False)
    with (
        reader,
        writer,
        tarfile.open(fileobj=reader, mode="r|") as old,
        tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in old:
            path = os.path.normpath(member.name)
            if path in plan.gone:
                continue
            if not member.isreg():
                new.addfile(member)
            elif path in contents.every:  # and no place outside, which was not unpacked
                with (contents.root / path).open("rb") as content:
                    member.size = os.fstat(content.fileno()).st_size
                    new.addfile(member, content)


def _for_archs(gpus: Sequence[str]) -> str:
    """Return the compute capabilities that code runs on: that of each GPU, and later ones of the same major number.

    ``__cuda_arch`` is the virtual package of CEP 46 (https://conda.org/learn/ceps/cep-0046).
    """
    found = []
    for gpu in gpus:
        digits = gpu.removeprefix("sm_").rstrip("af")
        found.append(f">={digits[:-1]}.{digits[-1]},<{int(digits[:-1]) + 1}.0a0")
    return "|".join(found)


def _damaged(package: Path, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"{package} cannot be read: {error or type(error).__name__}", "get or build it again"
    )
