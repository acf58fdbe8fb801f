"""Test that exactly one package owns each file: two owners overwrite each other, and removing one breaks the other."""

import json
import sys
from collections import defaultdict
from pathlib import Path

owners = defaultdict(list)
for record in Path(sys.argv[1], "conda-meta").glob("*.json"):
    package = json.loads(record.read_text())
    for path in package["files"]:
        owners[path].append(package["name"])
ours = {"libtorch", "libtorch-cuda-linalg", "pytorch"}
clashes = {path: names for path, names in owners.items() if len(names) > 1 and ours & set(names)}
assert not clashes, f"{len(clashes)} files with several owners: {sorted(clashes.items())[:5]}"
count = sum(1 for names in owners.values() if ours & set(names))
assert count, f"{sys.argv[1]}/conda-meta has no file of {', '.join(sorted(ours))}"
print(f"{count} files of {len(ours)} packages, one owner each")
