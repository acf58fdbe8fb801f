"""Finds the modules of an environment whose libraries link to torch's: torchvision, torchaudio, xformers."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from cuda_code.elf_file import NotElf, opened

_TORCHS = re.compile(r"lib(?:torch|c10)\w*\.so")
#: Folders that can be large and never link to torch.
_SKIPPED = ("nvidia", "triton")
_SKIPPED_ENDS = (".dist-info", ".libs", ".egg-info", "__pycache__")


def find_torch_users(site: Path, known: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield module and library of each library in ``site`` that links to torch's, except of the ``known`` modules.

    Links are not followed into other folders; unreadable libraries are skipped.
    """
    for top in sorted(site.iterdir()):
        module = top.name.partition(".")[0]
        if module in known or module in _SKIPPED or top.name.endswith(_SKIPPED_ENDS):
            continue
        for path in _libraries(top) if top.is_dir() else [top] if ".so" in top.suffixes else []:
            with suppress(NotElf, OSError), opened(path) as library:
                if any(map(_TORCHS.match, library.needed())):
                    yield module, path


def _libraries(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".so") or ".so." in name)
