"""``.ninja_log``: what every step of a compiled tree took."""

from __future__ import annotations

import re

#: Start and end in milliseconds since ninja began, a date, the output, a hash of the command.
_LINE = re.compile(r"(\d{1,9})\t(\d{1,9})\t\d{1,20}\t([ -~]{1,300})\t([0-9a-f]{1,16})")
#: A build writes it: what is more than this is not read. PyTorch's code generators alone have 14,000 lines.
MOST_BYTES = 16_000_000


def read(content: bytes) -> dict[str, float]:
    """Return the seconds of every step by its output, on the clock, in the order in which they ended.

    Of a step with several outputs the first stands for all; of an output made several times the last time counts.
    What is no line of such a log is left out.
    """
    found: dict[str, float] = {}
    seen: set[tuple[str, ...]] = set()
    for line in content.decode(errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        begin, end, output, command = match.groups()
        if (begin, end, command) in seen:
            continue
        seen.add((begin, end, command))
        found.pop(output, None)
        found[output] = max(0.0, (int(end) - int(begin)) / 1000)
    return found
