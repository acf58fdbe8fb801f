"""Pages and benchmarks that count conda-forge's configs in words count those that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import cast

from megabuild.configs.config import available, load

WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
NUMBER = f"({'|'.join(WORDS)})"
#: "the eight configs", "conda-forge's eight configs", "the eight `linux_64_*` configs"; not "two configs of a compiler"
CONFIGS = re.compile(
    rf"\b(?:the|conda-forge's|PyTorch's)\s+{NUMBER}\s+(?:`?[\w*-]+`?\s+)?configs\b", re.IGNORECASE
)
CUDA = re.compile(rf"\b{NUMBER}\s+CUDA\s+versions\b", re.IGNORECASE)


def test_numbers_of_configs_and_cuda_versions_are_those_of_the_matrix(repository: Path) -> None:
    every = [load(repository, name) for name in available(repository)]
    configs = [config for config in every if config.platform == "linux-64" and config.follows_conda_forge]
    versions = {config.cuda_version for config in configs} - {None}
    pages = [
        repository / "README.md",
        *(repository / "docs").glob("*.md"),
        *(repository / "benchmarks").glob("*.py"),
    ]
    counted = set()
    wrong = []
    for page in pages:
        text = page.read_text()
        for pattern, number in ((CONFIGS, len(configs)), (CUDA, len(versions))):
            for word in pattern.findall(text):
                counted.add(page.name)
                if word.lower() != WORDS[number]:
                    wrong.append(f"{page.name}: '{word}', but there are {number}")
    assert wrong == []
    assert {"README.md", "maintainers.md", "matrix.py"} <= counted


def test_the_benchmark_of_configs_has_a_row_for_each(repository: Path) -> None:
    text = (repository / "benchmarks" / "matrix.py").read_text()
    assignments = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    (rows,) = [
        cast(ast.Tuple, node.value).elts for node in assignments if ast.unparse(node).startswith("GAINS = ")
    ]
    every = [load(repository, name) for name in available(repository)]
    assert len(rows) == sum(config.platform == "linux-64" and config.follows_conda_forge for config in every)
