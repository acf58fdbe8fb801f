"""Removes credentials from addresses and messages before they are shown, logged or kept in reports."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

# Everything up to the last @ before a slash, question mark or blank is user and password; passwords may contain @.
# Path(address) has one slash after the colon.
_USER = re.compile(r"(://|\bhttps?:/)[^/?#\s'\"]*@", re.IGNORECASE)
_QUERY = re.compile(r"(://[^\s?#]*)(?:\?|#(?=[\w-]+=))[^\s'\")>\]]*")
#: conda channels have tokens in the path, ``https://host/t/<token>/conda-forge``. Other folders may be named t, too.
_TOKEN = re.compile(r"(https?:/[^\s'\"]*?/t/)[^/\s'\"]+(?=/)", re.IGNORECASE)
_PARAMETER = re.compile(
    r"([?&#][^=&\s]*(?:token|key|pass|secret|auth|sig|credential)[^=&\s]*=)[^&\s'\"#]+", re.IGNORECASE
)
_SECRET_NAME = re.compile(
    r"TOKEN|PASS|SECRET|KEY|CREDENTIAL|AUTH(?!OR)|(?:^|_)PAT(?:_|$)|(?:^|_)PWD$", re.IGNORECASE
)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
#: Shorter values are common words and numbers; masking them would make logs unreadable.
_SHORTEST_SECRET = 6
MASK = "***"


def secret_names(environ: Mapping[str, str]) -> list[str]:
    """Return variables whose names suggest a secret, except those with an absolute path."""
    return [
        name
        for name, value in environ.items()
        if _SECRET_NAME.search(name) and name not in _FOLDERS and not os.path.isabs(value)
    ]


class Mask:
    """Masks secrets in text: values of secret variables, and credentials in addresses."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {environ[name] for name in secret_names(environ)}
        # logs are masked line by line, and addresses quote values
        texts = set(values)
        for value in values:
            texts.update(line.strip() for line in value.splitlines())
        texts |= {quote(text, safe="") for text in texts}
        secrets = [text for text in texts if len(text) >= _SHORTEST_SECRET]
        self._secrets: re.Pattern[str] | None = None
        if secrets:
            longest_first = sorted(secrets, key=len, reverse=True)
            self._secrets = re.compile("|".join(map(re.escape, longest_first)))

    def __call__(self, text: str) -> str:
        """Return the text with every secret replaced."""
        if self._secrets:
            text = self._secrets.sub(MASK, text)
        if ":/" in text:
            text = _USER.sub(rf"\1{MASK}@", text)
            text = _TOKEN.sub(rf"\1{MASK}", text)
        if "=" in text:
            text = _PARAMETER.sub(rf"\1{MASK}", text)
        return text


def address(url: str) -> str:
    """Return an address without user, password, token, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:  # messages about such addresses have to show them
        return text(url)
    host = parts.netloc.rpartition("@")[2]
    return _TOKEN.sub(r"\1…", urlunsplit((parts.scheme, host, parts.path, "", "")))


def text(message: str) -> str:
    """Return a message without user, password, token, query and parameters in its addresses."""
    without_user = _USER.sub(r"\1", message)
    without_query = _QUERY.sub(r"\1", without_user)
    return _TOKEN.sub(r"\1…", without_query)
