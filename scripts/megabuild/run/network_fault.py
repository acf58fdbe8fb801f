"""Whether the network failed, and not what used it: by the words of programs and libraries."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: As libcurl, OpenSSL, glibc, Python (urllib, requests, httpx), conda and Rust's reqwest, which the engine has, put it.
_WORDS = re.compile(
    r"HTTP(?:/\d(?:\.\d)?| Error| status server error \(| status code:?| error:?|:)? ?(?:5\d\d|429)\b"
    r"|HTTP 000 CONNECTION FAILED"
    r"|\b(?:50[0234] (?:Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)|429 Too Many Requests)"
    r"|status code:? 5\d\d\b|returned error: 5\d\d\b"
    r"|error sending request for url|error decoding response body|connection closed before message completed"
    r"|Connection (?:reset by peer|aborted|broken|timed out)|ConnectionResetError|RemoteDisconnected|IncompleteRead"
    r"|Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|failed to lookup address information|dns error|getaddrinfo failed"
    r"|Max retries exceeded with url|Read timed out|(?:Connect|Read)Timeout(?:Error)?\b|operation timed out"
    r"|Network is unreachable|No route to host|TLS handshake|SSL_ERROR_SYSCALL|UNEXPECTED_EOF_WHILE_READING",
    re.IGNORECASE,
)
#: What comes at the end of a failure; before that a program may have mended what it complains about.
_LINES = 60


def network_failed(lines: Sequence[str]) -> str:
    """Return the line that says so among the last ones, or nothing."""
    return next((line.strip() for line in reversed(lines[-_LINES:]) if _WORDS.search(line)), "")
