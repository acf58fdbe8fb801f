"""Small environments as pip leaves them, some with real libraries, for what measures and slims them."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from small_files import shared_library

SITE = f"lib/python3.{sys.version_info.minor}/site-packages"
#: Names that a RECORD and a manifest must stand: a line's end, a quote, and bytes that are no UTF-8.
HOSTILE = ('torch/include/a\nb,"c".h', os.fsdecode(b"torch/include/\xff\xfe.h"))


def venv(root: Path) -> Path:
    """Make an empty virtual environment of this Python."""
    (root / SITE).mkdir(parents=True)
    (root / "bin").mkdir()
    python = os.path.realpath(sys.executable)
    (root / "bin/python").symlink_to(python)
    (root / "pyvenv.cfg").write_text(f"home = {os.path.dirname(python)}\n")
    return root


def install(
    root: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *,
    version: str = "1",
    requires: Iterable[str] = (),
    more: Iterable[str] = (),
    ending: str = "\n",
) -> Path:
    """Install a package, and return its RECORD; ``more`` are further names in it."""
    site, info = root / SITE, f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    rows = []
    for path, content in {**files, f"{info}/METADATA": f"{metadata}\nRead me.\n"}.items():
        data = content.encode() if isinstance(content, str) else content
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        rows.append((path, _digest(data), str(len(data))))
    record = site / info / "RECORD"
    with record.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        rows += [(path, "", "") for path in (*more, f"{info}/RECORD")]
        csv.writer(stream, lineterminator=ending).writerows(rows)
    return record


def library(path: Path, name: str, *, names: Iterable[str] = (), linked: Iterable[Path] = ()) -> Path:
    """Compile a library that has symbol tables and names others in its strings."""
    functions = "".join(f"static int quiet_{name}_{n}(void) {{ return {n}; }}\n" for n in range(120))
    calls = " + ".join(f"(quiet_{name}_{n}() - {n})" for n in range(120))
    strings = "".join(f'"{one}\\0"' for one in names) or '""'
    opened = f"const char *volatile opened_{name} = {strings};\n"
    source = f"{functions}{opened}int {name}(void) {{ return 42 + {calls}; }}\n"
    places = "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/cu13/lib"
    words = ["-g", "-O0", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed", *map(str, linked), places]
    return shared_library(path, source, *words)


def environment(root: Path) -> Path:
    """Make an environment with a torch, a Triton and libraries of NVIDIA's; nothing of them is a true copy."""
    venv(root)
    site, work = root / SITE, root.parent / "made"
    (root / "lib64").symlink_to("lib")
    (root / "notes.txt").write_text("nobody's\n")
    cudart = library(work / "libcudart.so.13", "cudart")
    cupti = library(work / "libcupti.so.13", "cupti", names=["libnvperf_host.so"])
    cudnn = library(work / "libcudnn.so.9", "cudnn", names=["libcudnn_ops.so"])
    theirs = [
        cudart,
        cupti,
        cudnn,
        library(work / "libnvperf_host.so", "nvperf"),
        library(work / "libcusolverMg.so.12", "solver_mg", linked=[cudart]),
        library(work / "libcudnn_ops.so.9", "cudnn_ops"),
    ]
    files = {f"nvidia/cu13/lib/{path.name}": path.read_bytes() for path in theirs}
    header = {"nvidia/cu13/include/cuda.h": b"/* cuda */\n" * 100}
    install(root, "nvidia-cuda-runtime", {**files, **header}, version="13.0")
    torch = library(work / "libtorch_cuda.so", "torch_cuda", linked=[cudart, cupti, cudnn]).read_bytes()
    links = {"torch/lib/libtorch_also.so": "libtorch_cuda.so", "torch/include/alias.h": "torch.h"}
    files = {
        "torch/__init__.py": b"import os\n",
        "torch/lib/libtorch_cuda.so": torch,
        "torch/include/torch.h": b"/* torch */\n" * 100,
        "torch/lib/libtorch.a": b"!<arch>\n" * 100,
        "../../../bin/torchrun": f"#!{root}/bin/python\n".encode(),
        **dict.fromkeys(HOSTILE, b"/* hostile */\n"),
    }
    files |= {link: files[f"{os.path.dirname(link)}/{target}"] for link, target in links.items()}
    install(root, "torch", files, version="2.13.0")
    for link, target in links.items():
        (site / link).unlink()
        (site / link).symlink_to(target)
    (site / "torch/lib/libtorch_cuda.so").chmod(0o555)
    (site / "torch/include/torch.h").chmod(0o440)
    files = {
        "triton/__init__.py": b"",
        "triton/_C/libtriton.so": library(work / "libtriton.so", "triton").read_bytes(),
        "triton/backends/nvidia/bin/ptxas": b"#!/bin/sh\n" * 100,
        "triton/backends/nvidia/bin/ptxas-blackwell": b"#!/bin/sh\n" * 200,
    }
    install(root, "triton", files, version="3.7.1")
    # its list changes in hashes only, and keeps its size
    install(root, "single", {"single/_x.so": library(work / "_x.so", "x").read_bytes()})
    for number, one in enumerate(sorted(root.rglob("*"))):
        os.utime(one, ns=(10**18, 10**18 + number * 1001), follow_symlinks=False)
    os.utime(root, ns=(10**18, 10**18 + 7))
    return root


def wrong_in_records(root: Path) -> list[str]:
    """Return what RECORDs say that is not so: missing files, other hashes, other sizes."""
    wrong = []
    for listing in sorted(root.glob("lib/python3*/site-packages/*.dist-info/RECORD")):
        with listing.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            for path, digest, size in csv.reader(stream):
                file = listing.parent.parent / path
                if not file.exists():
                    wrong.append(f"{path} is missing")
                elif digest and (digest != _digest(file.read_bytes()) or size != str(file.stat().st_size)):
                    wrong.append(f"{path} is another")
    return wrong


def tree(root: Path) -> Mapping[str, tuple[object, ...]]:
    """Return everything of a tree that undoing must bring back: kinds, modes, links, content, and files' dates."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        if path.is_symlink():
            content = os.readlink(path)
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        links = status.st_nlink if stat.S_ISREG(status.st_mode) else 0
        key = os.fsencode(path.relative_to(root)).decode(errors="backslashreplace")
        when = 0 if path.is_dir() and not path.is_symlink() else status.st_mtime_ns
        found[key] = (status.st_mode, when, links, content)
    return found


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
