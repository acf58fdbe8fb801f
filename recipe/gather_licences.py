"""Gather the licence texts of a source tree and of what it vendors, for every package to carry them.

Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

#: LICENSE, LICENSE.txt, LICENCE-MIT, COPYING.LESSER, NOTICE, LICENSES_BUNDLED.txt …, but no source file of such a name.
_TEXT = re.compile(
    r"(licen[cs]es?|copying|copyright|notice|patents)([._-][\w.-]*)?(?<!\.py)(?<!\.h)(?<!\.cpp)",
    re.IGNORECASE,
)
#: Made by the build, or about tests that are not packaged.
_LEFT_OUT = {".git", "build", "licenses", "test", "tests"}


def texts(tree: Path) -> Iterator[Path]:
    """Give the licence texts below a folder, as paths relative to it, sorted within each folder."""
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        yield from (Path(folder, name).relative_to(tree) for name in sorted(files) if _TEXT.fullmatch(name))


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``TREE FOLDER``; what FOLDER held before is gone."""
    tree, target = map(Path, arguments)
    found = list(texts(tree))
    shutil.rmtree(target, ignore_errors=True)
    for place in found:
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / place, target / place)
    print(f"::megabuild:: licences files={len(found)}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
