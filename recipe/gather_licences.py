"""Gather the licence texts of a source tree and of its vendored libraries; every package contains them.

Standard library only.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from whole_walk import walk

#: LICENSE, LICENSE.txt, LICENCE-MIT, COPYING.LESSER, NOTICE, LICENSES_BUNDLED.txt …, but not source files so named.
_TEXT = re.compile(
    r"(licen[cs]es?|copying|copyright|notice|patents)([._-][\w.-]*)?(?<!\.py)(?<!\.h)(?<!\.cpp)",
    re.IGNORECASE,
)
#: Folders that the build makes, and folders of tests, which are not packaged.
_LEFT_OUT = {".git", "build", "licenses", "test", "tests"}


def texts(tree: Path) -> Iterator[Path]:
    """Yield the licence texts below a folder, as paths relative to it, sorted within each folder."""
    for folder, folders, files in walk(tree):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(files):
            if _TEXT.fullmatch(name):
                yield Path(folder, name).relative_to(tree)


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``TREE FOLDER``; FOLDER is emptied first. Return 1 if TREE has no licence text."""
    tree, target = map(Path, arguments)
    paths = list(texts(tree))
    shutil.rmtree(target, ignore_errors=True)
    for path in paths:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / path, target / path)
    print(f"::megabuild:: licences files={len(paths)}")
    return 0 if paths else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
