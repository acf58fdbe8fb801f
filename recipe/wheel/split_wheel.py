"""Make libtorch and pytorch out of official wheels of PyTorch instead of compiling them.

``libtorch`` unpacks libtorch's files from the wheel of one Python into an environment. ``pytorch`` unpacks the wheel of
another Python: files that are the same in both wheels become links to libtorch's, all others belong to that Python. The
files are compared one by one, because wheels of one release need not come from one build. Needs only the standard
library and the modules of PyTorch's own recipe, which the caller puts on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import share_libtorch
import wheel_parts
from install_libtorch import HEADERS
from same_code import same_code
from wheel_parts import Wheel

_LIBTORCH = "libtorch"  # an action
_PROGRAM = """\
#!{python}
import sys
from {module} import {top}
if __name__ == "__main__":
    sys.exit({attribute}())
"""


def libtorch(wheel: Wheel, prefix: Path) -> int:
    """Unpack libtorch's files and headers that they include into an environment; return their number."""
    places = {}
    for member in wheel.members:
        # PyTorch's own wheel keeps a copy of the headers in torch/include, where extensions look first
        place = wheel_parts.libtorch_place(member) or wheel_parts.bundled_header(member)
        if place is not None:
            places[member] = place
    _extract(wheel, places, prefix)
    settle_cmake(prefix / "share" / "cmake")
    return len(places)


def licences(wheel: Wheel, folder: Path) -> int:
    """Unpack the licence texts of PyTorch and of its vendored libraries into a folder; return their number."""
    places = {}
    for member in wheel.members:
        place = wheel_parts.licence_place(member)
        if place:
            places[member] = place
    _extract(wheel, places, folder)
    return len(places)


def pytorch(wheel: Wheel, base: Wheel, prefix: Path, site_packages: Path, python: str) -> tuple[int, int]:
    """Unpack the files of one Python, and link the others to libtorch; return the number of files and of links."""
    common = shared(wheel, base)
    own = {}
    for member in wheel.members:
        if member not in common and not wheel_parts.left_out(member):
            own[member] = member
    _extract(wheel, own, site_packages)
    taken = linked_places(wheel, common)
    links = share_libtorch.link(site_packages / "torch", prefix, taken)
    _programs(site_packages / wheel.metadata, prefix, python)
    _settle_metadata(site_packages, wheel.metadata, wheel.members.keys() - own.keys())
    return len(own), links


def shared(wheel: Wheel, base: Wheel) -> set[str]:
    """Return the files of libtorch that are the same in two wheels; of libraries only loaded sections count."""
    common = set()
    for member in wheel.members.keys() & base.members.keys():
        if wheel_parts.libtorch_place(member) is not None and _is_same(member, wheel, base):
            common.add(member)
    return common


def _is_same(member: str, wheel: Wheel, base: Wheel) -> bool:
    if wheel.members[member] == base.members[member]:
        return True
    if ".so" not in PurePosixPath(member).name:
        return False
    with tempfile.TemporaryDirectory(dir=os.environ.get("SRC_DIR")) as folder:
        _extract(wheel, {member: "ours"}, Path(folder))
        _extract(base, {member: "theirs"}, Path(folder))
        return same_code(Path(folder, "ours"), Path(folder, "theirs"))


def linked_places(wheel: Wheel, common: set[str]) -> list[str]:
    """Return the links of ``torch``: header folders of which all files are shared, and single files."""
    links = []
    whole = []
    for name in HEADERS:
        folder = f"torch/include/{name}/"
        below = {member for member in wheel.members if member.startswith(folder)}
        if below and below <= common:
            whole.append(folder)
            links.append(f"include/{name}")
    for member in common:
        inside = member.removeprefix("torch/")
        # vendored libraries need no links: those of libtorch's libraries find them
        is_vendored = wheel_parts.libtorch_place(member) != inside
        if not is_vendored and not member.startswith(tuple(whole)):
            links.append(inside)
    return sorted(links)


def _extract(wheel: Wheel, places: dict[str, str], folder: Path) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        for member, place in places.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            info = archive.getinfo(member)
            with archive.open(info) as source, target.open("wb") as written:
                while block := source.read(1 << 20):  # checks the CRC at the end
                    written.write(block)
            mode = 0o644
            if ".so" in target.name or "bin/" in place or info.external_attr >> 16 & stat.S_IXUSR:
                mode = 0o755
            target.chmod(mode)


def settle_cmake(folder: Path) -> None:
    """Change the wheel's CMake files as the recipe's patches change their sources."""
    find_cuda = folder / "Caffe2" / "Modules_CUDA_fix" / "FindCUDA.cmake"
    if find_cuda.exists():
        shutil.copyfile(Path(__file__).parent / "../FindCUDA.cmake", find_cuda)
    aten = folder / "ATen" / "ATenConfig.cmake"
    if aten.exists():
        relative = r'\1"${CMAKE_CURRENT_LIST_DIR}/../../../include")'
        aten.write_text(re.sub(r'(set\(ATEN_INCLUDE_DIR )"[^"]*"\)', relative, aten.read_text()))


def _programs(metadata: Path, prefix: Path, python: str) -> None:
    """Write the programs of the wheel's entry points, as pip would."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string((metadata / "entry_points.txt").read_text())
    (prefix / "bin").mkdir(exist_ok=True)
    if not parser.has_section("console_scripts"):
        return
    for name, target in parser.items("console_scripts"):
        module, _, attribute = target.split("[")[0].strip().partition(":")
        text = _PROGRAM.format(python=python, module=module, top=attribute.split(".")[0], attribute=attribute)
        (prefix / "bin" / name).write_text(text)
        (prefix / "bin" / name).chmod(0o755)


def _settle_metadata(site_packages: Path, folder: str, gone: Iterable[str]) -> None:
    """Make METADATA and RECORD describe the installed files."""
    metadata = site_packages / folder
    text = (metadata / "METADATA").read_text(encoding="utf-8")
    (metadata / "METADATA").write_text(wheel_parts.without_nvidia(text), encoding="utf-8")
    (metadata / "INSTALLER").write_text("conda\n")
    changed = {f"{folder}/{name}" for name in ("METADATA", "INSTALLER", "RECORD")}
    lines = [*wheel_parts.record_without((metadata / "RECORD").read_text(), {*gone, *changed})]
    for name in sorted(changed):
        content = (site_packages / name).read_bytes()
        hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        facts = f"sha256={hashed},{len(content)}"
        if name.endswith("/RECORD"):
            facts = ","
        lines.append(f"{name},{facts}")
    (metadata / "RECORD").write_text("\n".join(lines) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``libtorch WHEELS BASE PREFIX`` or ``pytorch WHEELS BASE PREFIX PYTHON SITE PROGRAM``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    actions = parser.add_subparsers(dest="action", required=True)
    core = actions.add_parser(_LIBTORCH)
    of_python = actions.add_parser("pytorch")
    for action in (core, of_python):
        action.add_argument("wheels", type=Path, help="folder with wheels of PyTorch")
        action.add_argument("base", help="Python version of libtorch's wheel, such as 3.12")
        action.add_argument("prefix", type=Path, help="the environment")
    of_python.add_argument("python", help="the environment's Python, such as 3.13")
    of_python.add_argument("site_packages", type=Path, help="that Python's folder for modules")
    of_python.add_argument("program", help="that Python's interpreter")
    options = parser.parse_args(arguments)
    base = wheel_parts.find(options.wheels, options.base)
    print(f"::megabuild:: wheel {base.path.name}")
    if options.action == _LIBTORCH:
        print(f"::megabuild:: installed files={libtorch(base, options.prefix)}")
        print(f"::megabuild:: licences files={licences(base, Path('licenses'))}")
        return 0
    wheel = wheel_parts.find(options.wheels, options.python)
    unpacked, links = pytorch(wheel, base, options.prefix, options.site_packages, options.program)
    print(f"::megabuild:: wheel {wheel.path.name} files={unpacked}")
    print(f"::megabuild:: shared links={links}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
