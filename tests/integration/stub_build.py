"""Stands in for `build-locally.py` in a job: notes how it was called; ends with the next code in `codes/NAME`."""

import json
import os
import sys
import time
from pathlib import Path

here = Path(__file__).parent
words = sys.argv[1:]
name = Path(words[words.index("--output") + 1]).name
environment = {key: os.environ[key] for key in ("CPU_COUNT", "MEGABUILD_STORE", "MEGABUILD_STORE_WRITES")}
with (here / "calls").open("a") as calls:
    calls.write(json.dumps({"name": name, "words": words, "environment": environment}) + "\n")
while (here / "codes" / f"{name}.wait").exists():
    time.sleep(0.1)
told = here / "codes" / name
code, *rest = told.read_text().split() if told.exists() else ["0"]
if rest:
    told.write_text(" ".join(rest))
print("ended with", code, flush=True)
sys.exit(int(code))
