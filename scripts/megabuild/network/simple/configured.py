"""Which package indexes pip is configured to use, and with which certificates."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 20.0
#: pip's help names the index it would ask where nothing is configured, broken over lines.
_DEFAULT = re.compile(r"--index-url <url>.*?\(default\s+(\S+?)\)", re.DOTALL)
#: pip's sections in the order in which later ones win; the environment wins over files.
_SECTIONS = ("global", "download", "install", ":env:")


@dataclass(frozen=True, kw_only=True)
class Configured:
    """What pip would ask.

    Parameters
    ----------
    indexes:
        Addresses of simple indexes, which may hold credentials; the main one first.
    links:
        Folders, and addresses of pages, with links to files.
    certificates:
        A file with certificates to trust, or None.
    proxy:
        Its address, or empty.
    """

    indexes: tuple[str, ...]
    links: tuple[str, ...] = ()
    certificates: Path | None = None
    proxy: str = ""


def configured(environ: Mapping[str, str] | None = None) -> Configured:
    """Ask pip for its configuration and its default index; without pip, go by its environment variables.

    Parameters
    ----------
    environ:
        Environment variables; None for this process's.
    """
    environment = dict(os.environ if environ is None else environ)
    settings = _settings(environment)
    without = settings.get("no-index", "").lower() in ("1", "true", "yes", "on")
    main = "" if without else settings.get("index-url") or settings.get("pypi-url") or _default(environment)
    extra = () if without else settings.get("extra-index-url", "").split()
    certificates = settings.get("cert") or next(
        (environment[name] for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if environment.get(name)), ""
    )
    return Configured(
        indexes=tuple(dict.fromkeys(index.rstrip("/") for index in (main, *extra) if index)),
        links=tuple(settings.get("find-links", "").split()),
        # a folder of certificates is what SSL_CERT_DIR is for
        certificates=Path(certificates) if certificates and Path(certificates).is_file() else None,
        proxy=_with_scheme(settings.get("proxy", "")),
    )


def _with_scheme(proxy: str) -> str:
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy  # pip takes host:port, too


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, dict[str, str]] = {}
    for line in _said(environment, "config", "list").splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.strip().rpartition(".")
        try:
            found.setdefault(section, {})[option.replace("_", "-")] = str(ast.literal_eval(value.strip()))
        except (ValueError, SyntaxError):
            continue
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            found.setdefault(":env:", {})[name[4:].lower().replace("_", "-")] = value
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= found.get(section, {})
    return merged


def _default(environment: Mapping[str, str]) -> str:
    match = _DEFAULT.search(_said(environment, "download", "--help"))
    return match[1] if match else ""


def _said(environment: Mapping[str, str], *arguments: str) -> str:
    """Return what pip says, or nothing where there is none; it may hold credentials: neither shown nor logged."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
