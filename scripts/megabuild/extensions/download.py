"""Pages and files from ``http(s):`` and ``file:`` addresses: in bounded time, with retries, files by atomic rename."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

from megabuild import files
from megabuild.errors import IntegrityError, ProviderError
from megabuild.network import redact
from megabuild.network.client import Client, NetworkError, Patience, why_silent
from megabuild.network.index import local_path

_PAGE = Patience(read=20.0, total=20.0)
_FILE = Patience(read=20.0, total=900.0)  # a wheel with kernels for many GPUs has some tens of megabytes
_ASKING = 6.0  # only whether an address answers
_LOCAL = "check the folder's permissions and the disk"


def answers(address: str) -> str:
    """Return an empty string if an address answers within a few seconds, else the reason why not."""
    return why_silent([address], _ASKING)


def read_page(address: str) -> str | None:
    """Return a page's text, or None where there is no such page.

    Raises
    ------
    ProviderError
        No answer within 20 seconds, or a refusal.
    """
    try:
        if urlsplit(address).scheme == "file":
            return local_path(address).read_text(encoding="utf-8", errors="replace")
        return Client(patience=_PAGE).get(address).body.decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except NetworkError as error:
        # a bucket behind a web server that may not be listed answers 403 for what it does not have
        if error.status in (403, 404):
            return None
        raise
    except OSError as error:
        raise ProviderError(f"cannot read {local_path(address)}: {error.strerror}", _LOCAL) from error


def fetch(address: str, target: Path, sha256: str | None) -> Path:
    """Copy a file to ``target``, where it appears complete and with the right hash or not at all.

    Parameters
    ----------
    address:
        ``http:``, ``https:`` or ``file:``.
    target:
        The file to make; its folder may be missing.
    sha256:
        The hash it must have, in hex, or None where none is known.

    Raises
    ------
    ProviderError
        No answer, no such file, or the connection broke three times.
    IntegrityError
        The file has another hash.
    """
    try:
        with files.scratch(target.parent) as empty:
            partial = empty / target.name
            if urlsplit(address).scheme == "file":
                shutil.copyfile(local_path(address), partial)
            else:
                Client(patience=_FILE).save(address, partial)
            found = files.sha256(partial)
            if sha256 is not None and found != sha256:
                raise IntegrityError(
                    f"{target.name}: sha256 is {found[:12]}…, the index says {sha256[:12]}…",
                    "the index or a proxy in between is at fault",
                )
            partial.replace(target)
    except OSError as error:
        raise ProviderError(
            f"cannot copy {redact.address(address)}: {error.strerror or error}", _LOCAL
        ) from error
    return target
