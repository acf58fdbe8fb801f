"""``recipe/conda_build_config.yaml``: what this recipe asks for beside conda-forge's pins.

conda-smithy reads it when it renders the feedstock's configs, and so does rattler-build when it is given one of those.
It has this recipe's own keys only: a pin that it named would stay when conda-forge moves on, and our zip is not theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from groundwork.names import accelerator

#: keys that are no pin of conda-forge's, and one where its own is too old for PyTorch
_OWN = re.compile(r"torch_.*|triton_version|pyg_.*|blas_impl|provider|MACOSX_SDK_VERSION")
_ARCHS = "torch_cuda_arch_list"
_SELECTORS = {
    "linux": {"linux-64", "linux-aarch64"},
    "osx": {"osx-64", "osx-arm64"},
    "x86_64": {"linux-64", "osx-64"},
    "linux and x86_64": {"linux-64"},
    "linux and aarch64": {"linux-aarch64"},
    "osx and x86_64": {"osx-64"},
    "osx and arm64": {"osx-arm64"},
}
_NO_TEXT = re.compile(r"[-+.\d]+|true|false|null|~|", re.IGNORECASE)


def text(matrix: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Return the file's text, from the matrix by platform.

    The arch list, which is zipped with CUDA there, is a key for each version of CUDA here, and one for Tegra, among
    which the recipe chooses: a list that is zipped with keys of conda-forge's would have to have their length.
    """
    own = {platform: _own(values) for platform, values in matrix.items()}
    everywhere = set(own)
    lines = []
    for key in sorted({key for values in own.values() for key in values}, key=str.casefold):
        having = {platform for platform in own if key in own[platform]}
        lines.append(_line(f"{key}:", having, everywhere))
        for value in dict.fromkeys(value for platform in own for value in own[platform].get(key, ())):
            holds = {platform for platform in having if value in own[platform][key]}
            lines.append(_line(f"  - {_quoted(value)}", holds, everywhere))
    return "\n".join(lines) + "\n"


def _own(values: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    own: dict[str, Sequence[str]] = {
        key: list(dict.fromkeys(some)) for key, some in values.items() if _OWN.fullmatch(key)
    }
    own.pop(_ARCHS, None)
    versions, archs = (values.get(key, ()) for key in ("cuda_compiler_version", _ARCHS))
    arms = values.get("arm_variant_type", ()) or ("sbsa",) * len(versions)
    if len(versions) == len(archs):  # not on macOS
        for version, arm, row in zip(versions, arms, archs, strict=True):
            if version != "None":
                own[f"{_ARCHS}_{accelerator(version) if arm == 'sbsa' else arm}"] = [row]
    return own


def _line(words: str, platforms: set[str], everywhere: set[str]) -> str:
    if platforms == everywhere:
        return words
    for selector, meant in _SELECTORS.items():
        if meant & everywhere == platforms:
            return f"{words}  # [{selector}]"
    single = [f"({name})" for name, meant in _SELECTORS.items() if " " in name and meant <= platforms]
    return f"{words}  # [{' or '.join(single)}]"


def _quoted(value: str) -> str:
    """Return a value that YAML reads as text, so that it is the same in every file that it gets into."""
    return f'"{value}"' if _NO_TEXT.fullmatch(value) else value
