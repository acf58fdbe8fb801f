"""A copy of this repository's recipes, and an index with PyTorch's wheels as the real index has them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from wheel_files import make_wheel

#: Of the wheels for x86-64: Pythons, Requires-Python, CUDA's toolkit, Triton, typing_extensions, maker, commit.
TORCH = {
    "2.13.0": (
        "310 311 312 313 314",
        ">=3.10",
        "13.0.3",
        "==3.7.1",
        "4.10.0",
        "setuptools (81.0.0)",
        "cf30153c",
    ),
    "2.14.1": (
        "310 311 312 313 314",
        ">=3.10",
        "13.0.3",
        "~=3.8.0",
        "4.10.0",
        "scikit-build-core 1.1.0",
        "5c488690",
    ),
    "2.15.0": (
        "311 312 313 314 315",
        ">=3.11",
        "13.2.2",
        "~=3.9.0",
        "4.13.0",
        "scikit-build-core 1.1.1",
        "d0f2af8b",
    ),
}
OF_PYTORCH = (
    "conda_build_config.yaml",
    ".ci_support",
    "recipe/recipe.yaml",
    "recipe/wheel",
    "recipe/pyg",
    "recipe/patches",
)


def index(folder: Path) -> Path:
    """Write wheels of three releases of PyTorch, as far as a bump reads them."""
    for version, (pythons, python, toolkit, triton, typing, maker, commit) in TORCH.items():
        requires = [
            f"typing-extensions>={typing}",
            "sympy>=1.13.3",
            f'cuda-toolkit[cudart]=={toolkit}; platform_system == "Linux"',
            f'nvidia-cudnn-cu13==9.{version.split(".")[1]}.0; platform_system == "Linux"',
            f'triton{triton}; platform_system == "Linux" and python_version < "3.16"',
        ]
        head = ["Metadata-Version: 2.1", "Name: torch", f"Version: {version}", f"Requires-Python: {python}"]
        metadata = "\n".join([*head, *(f"Requires-Dist: {one}" for one in requires), ""]).encode()
        of_git = f"__version__ = '{version}'\ngit_version = '{commit:0<40}'\n".encode()
        for tag in pythons.split():
            name = f"torch-{version}-cp{tag}-cp{tag}-manylinux_2_28_x86_64.whl"
            make_wheel(folder, name, {"torch/version.py": of_git}, metadata=metadata, generator=maker)
    return folder


def checkout(repository: Path, folder: Path) -> Path:
    """Copy what a bump reads and writes of a repository."""
    for name in OF_PYTORCH:
        source, target = repository / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=_left_out)
        else:
            shutil.copy2(source, target)
    (folder / "README.md").write_text("PyTorch 2.13.0 is built, not 12.13.0 or 2.13.01.\n", encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def _left_out(folder: str, names: list[str]) -> list[str]:
    """Leave out most configs: every one of them is rendered."""
    kept = (
        "linux_64_cpu.yaml",
        "linux_64_cpu_debian.yaml",
        "linux_64_cuda130.yaml",
        "linux_64_cuda130_wheel.yaml",
    )
    return [name for name in names if folder.endswith(".ci_support") and name not in kept]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".git" not in path.parts
    }
