"""A small environment as pip leaves it, with real libraries, for what slims it."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

SITE = "lib/python3.11/site-packages"
#: Names that a RECORD and a manifest must stand: a line's end, a quote, and bytes that are no UTF-8.
HOSTILE = ('torch/include/a\nb,"c".h', os.fsdecode(b"torch/include/\xff\xfe.h"))


def library(path: Path, name: str, *, names: Iterable[str] = (), linked: Iterable[Path] = ()) -> Path:
    """Compile a library that has symbol tables and names others in its strings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    functions = "".join(f"static int quiet_{name}_{n}(void) {{ return {n}; }}\n" for n in range(120))
    calls = " + ".join(f"(quiet_{name}_{n}() - {n})" for n in range(120))
    strings = "".join(f'"{one}\\0"' for one in names) or '""'
    source.write_text(
        f"{functions}const char *volatile opened_{name} = {strings};\nint {name}(void) {{ return 42 + {calls}; }}\n"
    )
    command = [
        "cc",
        "-g",
        "-O0",
        "-shared",
        "-fPIC",
        "-o",
        str(path),
        str(source),
        f"-Wl,-soname,{path.name}",
    ]
    command += ["-Wl,--no-as-needed", *map(str, linked), "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/cu13/lib"]
    subprocess.run(command, check=True)
    source.unlink()
    return path


def environment(root: Path) -> Path:
    """Make an environment with a torch, a Triton and libraries of NVIDIA's; nothing of them is a true copy."""
    site = root / SITE
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to("/usr/bin/python3")
    (root / "bin" / "torchrun").write_text(f"#!{root}/bin/python\n")
    (root / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (root / "lib64").symlink_to("lib")
    (root / "notes.txt").write_text("nobody's\n")
    cuda = site / "nvidia/cu13/lib"
    cudart = library(cuda / "libcudart.so.13", "cudart")
    cupti = library(cuda / "libcupti.so.13", "cupti", names=["libnvperf_host.so"])
    library(cuda / "libnvperf_host.so", "nvperf")
    library(cuda / "libcusolverMg.so.12", "solver_mg", linked=[cudart])
    library(cuda / "libcudnn_ops.so.9", "cudnn_ops")
    cudnn = library(cuda / "libcudnn.so.9", "cudnn", names=["libcudnn_ops.so"])
    (cuda.parent / "include").mkdir()
    (cuda.parent / "include" / "cuda.h").write_text("/* cuda */\n" * 100)
    torch = library(site / "torch/lib/libtorch_cuda.so", "torch_cuda", linked=[cudart, cupti, cudnn])
    torch.chmod(0o555)
    (site / "torch/lib/libtorch_also.so").symlink_to("libtorch_cuda.so")
    library(site / "triton/_C/libtriton.so", "triton")
    files = {
        "torch/__init__.py": b"import os\n",
        "torch/include/torch.h": b"/* torch */\n" * 100,
        "torch/lib/libtorch.a": b"!<arch>\n" * 100,
        **dict.fromkeys(HOSTILE, b"/* hostile */\n"),
        "triton/__init__.py": b"",
        "triton/backends/nvidia/bin/ptxas": b"#!/bin/sh\n" * 100,
        "triton/backends/nvidia/bin/ptxas-blackwell": b"#!/bin/sh\n" * 200,
    }
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
    (site / "torch/include/torch.h").chmod(0o440)
    (site / "torch/include/alias.h").symlink_to("torch.h")
    library(site / "single/_x.so", "x")  # its list changes in hashes only, and keeps its size
    record(root, "single", "1.0", ["single"])
    record(root, "torch", "2.13.0", ["torch"], more=["../../../bin/torchrun"])
    record(root, "triton", "3.7.1", ["triton"])
    record(root, "nvidia_cuda_runtime", "13.0", ["nvidia"])
    for number, one in enumerate(sorted(root.rglob("*"))):
        os.utime(one, ns=(10**18, 10**18 + number * 1001), follow_symlinks=False)
    os.utime(root, ns=(10**18, 10**18 + 7))
    return root


def record(root: Path, name: str, version: str, folders: Iterable[str], *, more: Iterable[str] = ()) -> Path:
    """Write the metadata of a package that has all files in folders, as pip does."""
    site = root / SITE
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    paths = [*more, f"{info.name}/METADATA", f"{info.name}/INSTALLER"]
    for folder in folders:
        paths += [
            os.path.relpath(os.path.join(at, one), site)
            for at, _, names in os.walk(site / folder)
            for one in sorted(names)
        ]
    rows = []
    for path in paths:
        data = (site / path).read_bytes()
        rows.append([path, _digest(data), str(len(data))])
    rows.append([f"{info.name}/RECORD", "", ""])
    with (info / "RECORD").open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    return info / "RECORD"


def wrong_in_records(root: Path, site: str = SITE) -> list[str]:
    """Return what RECORDs say that is not so: missing files, other hashes, other sizes."""
    wrong = []
    for listing in sorted((root / site).glob("*.dist-info/RECORD")):
        with listing.open(encoding="utf-8", errors="surrogateescape", newline="") as stream:
            for path, digest, size in csv.reader(stream):
                file = listing.parent.parent / path
                if not file.exists():
                    wrong.append(f"{path} is missing")
                elif digest and (digest != _digest(file.read_bytes()) or size != str(file.stat().st_size)):
                    wrong.append(f"{path} is another")
    return wrong


def tree(root: Path) -> Mapping[str, tuple[object, ...]]:
    """Return everything of a tree that undoing must bring back: kinds, modes, dates, links, content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        if path.is_symlink():
            content = os.readlink(path)
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        links = status.st_nlink if stat.S_ISREG(status.st_mode) else 0
        key = os.fsencode(path.relative_to(root)).decode(errors="backslashreplace")
        found[key] = (status.st_mode, status.st_mtime_ns, links, content)
    return found


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
