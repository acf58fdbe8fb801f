"""Stands in for `build-locally.py` in a job: notes how it was called, waits and ends as a test has said.

`turns/NAME` below the test's folder has an exit code for each turn of the build whose output folder is NAME; while
`turns/NAME.wait` exists, it shows itself as 34 % done and does not end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from groundwork.run_state import RunState, TimeLeft
from megabuild.state.state_file import StateFile

_, base, run, *words = sys.argv
output = Path(words[words.index("--output") + 1])
told = Path(base, "turns", output.name)
environment = {
    name: value for name, value in os.environ.items() if name.startswith(("MEGABUILD_", "CPU_COUNT"))
}
call = json.dumps({"name": output.name, "words": words, "environment": environment})
with Path(base, "calls").open("a") as calls:
    calls.write(call + "\n")
left = TimeLeft(likely=130.0, earliest=100.0, latest=200.0, done=0.34)
(output / run).mkdir(parents=True, exist_ok=True)
StateFile(output / run).write(
    RunState(config=run, status="building", began=time.time(), updated=time.time(), left=left)
)
while told.with_name(f"{told.name}.wait").exists():
    time.sleep(0.1)
codes = told.read_text().split() if told.exists() else ["0"]
told.parent.mkdir(exist_ok=True)
told.write_text(" ".join(codes[1:] or ["0"]))
print("this turn ends with", codes[0], flush=True)
sys.exit(int(codes[0]))
