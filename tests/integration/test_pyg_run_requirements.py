"""What an extension's package requires at run time is what its Python files import, no less and no more.

The four are read from their source archives. pyg-lib has none: MEGABUILD_TEST_PYG_LIB names a checkout of it.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest

from groundwork import files
from groundwork.errors import ProviderError
from megabuild.configs.config import load
from megabuild.configs.render import render
from pyg_extensions.archives import download
from pyg_extensions.table import EXTENSIONS, Extension, matrix, release

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("MEGABUILD_CACHE") or platformdirs.user_cache_path("megabuild"))
PACKAGES = {"torch": "pytorch", **{extension.name: extension.conda for extension in EXTENSIONS}}
#: In every one of them: PyTorch itself and the part of it that libraries link to.
ALWAYS = {"python", "pytorch", "libtorch"}


class Imports(ast.NodeVisitor):
    """The modules that a file cannot do without: what stands in a ``try`` has another way."""

    def __init__(self, package: str) -> None:
        self.package, self.found = package, set[str]()

    def visit_Try(self, node: ast.Try) -> None:
        """Leave it out."""

    def visit_Import(self, node: ast.Import) -> None:
        self.found |= {name.name for name in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = ".".join(filter(None, [self.package if node.level else "", node.module]))
        # `from .. import x` may mean a module or a name in one
        self.found |= {module, *(f"{module}.{name.name}" for name in node.names)}


def imported(folder: Path, package: str) -> set[str]:
    """Return the projects that ``import package`` and what that imports need; test helpers it does not reach."""
    waiting, seen, projects = {package}, set[str](), set[str]()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        if module.partition(".")[0] != package:
            projects.add(module.partition(".")[0])
            continue
        for file in _files(folder, module):
            inside = module if file.name == "__init__.py" else module.rpartition(".")[0]
            imports = Imports(inside)
            imports.visit(ast.parse(file.read_text()))
            waiting |= imports.found - seen
    return projects - set(sys.stdlib_module_names)


def _files(folder: Path, module: str) -> Iterator[Path]:
    place = folder.joinpath(*module.split("."))
    yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())


def sources(extension: Extension, folder: Path) -> Path:
    if not extension.has_sdist:
        named = os.environ.get("MEGABUILD_TEST_PYG_LIB")
        if not named:
            pytest.skip("MEGABUILD_TEST_PYG_LIB names no checkout")
        return Path(named)
    known = release(extension, matrix())
    try:
        archive = download([known], CACHE) / known.archive
    except ProviderError as error:
        pytest.skip(f"its archive cannot be had: {error}")
    files.unpack(archive, folder)
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.mark.parametrize("extension", EXTENSIONS, ids=lambda extension: extension.name)
def test_a_package_requires_what_its_files_import(extension: Extension, tmp_path: Path) -> None:
    modules = imported(sources(extension, tmp_path), extension.name)
    assert "torch" in modules
    wanted = {PACKAGES.get(module, module) for module in modules}
    config = load(ROOT, "linux_64_cuda130")
    recipe = ROOT / "recipe" / "pyg" / extension.conda / "recipe.yaml"
    for package in render(config, recipe, overrides={"pyg_torch_pin": ("exact",)}):
        assert {spec.split()[0] for spec in package.run} - ALWAYS == wanted - ALWAYS


def test_an_import_is_followed_through_the_package_and_one_in_a_try_is_none(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "__init__.py").write_text("import os\nfrom .more import f\nimport one.third\n")
    (tmp_path / "one" / "more.py").write_text("def f():\n    import numpy.linalg\n")
    (tmp_path / "one" / "third.py").write_text(
        "try:\n    import triton\nexcept ImportError:\n    triton = None\n"
    )
    (tmp_path / "one" / "testing.py").write_text("import pytest\n")
    assert imported(tmp_path, "one") == {"numpy"}
