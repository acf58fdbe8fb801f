"""The cause in the output of a pip that failed."""

from __future__ import annotations

import pytest

from groundwork.pip_output import explain

UNREACHABLE = """\
WARNING: Retrying (Retry(total=1)) after connection broken by 'E(': [Errno 101] Network is unreachable')': /x/
WARNING: Retrying (Retry(total=0)) after connection broken by 'E(': [Errno 111] Connection refused')': /x/
"""
HASHES = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
    click==8.1.8 from https://me:s3cret@index.example/click.whl:
        Expected sha256 00
             Got        11
"""


SLOW = "WARNING: connection broken by 'ReadTimeoutError(read timeout=15)'\n"
LACKING = "ERROR: No matching distribution found for click==8 (from x)\n"
REFUSED = "WARNING: 401 Error, Credentials not correct for https://me:s3cret@index.example/simple/click/\n"
CAUSES = {
    f"{REFUSED}{LACKING}": "click==8: 401 Error, Credentials not correct for https://index.example/simple/click/",
    f"{UNREACHABLE}{LACKING}": "click==8: Connection refused",
    f"{UNREACHABLE}ERROR: other\n": "Connection refused; ERROR: other",
    f"{SLOW}ERROR: x\n": "the index did not answer in time; ERROR: x",
    f"ERROR: first\n{LACKING}hint: y\n": f"ERROR: first; {LACKING.strip()}",
    HASHES: "; ".join(line.strip() for line in HASHES.replace("me:s3cret@", "").splitlines()),
    "one\ntwo\n": "one; two",
    "": "no output",
}


@pytest.mark.parametrize("output", CAUSES)
def test_the_cause_is_one_line(output: str) -> None:
    assert explain(output) == CAUSES[output]
