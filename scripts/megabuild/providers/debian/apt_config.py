"""Which mirror and which options of apt this machine uses; never a host name of our own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import ProviderError

#: Options that describe how this machine reaches its mirrors.
_OPTIONS = re.compile(
    r"^(Acquire::(Check-|Retries|ForceIPv|http|https|ftp|Proxy)[^ ]*) (\".*\");$", re.IGNORECASE
)

_VARIABLE = "MEGABUILD_DEBIAN_MIRROR"


@dataclass(frozen=True, kw_only=True)
class AptSource:
    """One place of an apt configuration: what kinds, where, and which key signs it."""

    types: tuple[str, ...]
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""
    trusted: bool = False


def sources(folder: Path = Path("/etc/apt")) -> Iterator[AptSource]:
    """The enabled sources of sources.list, sources.list.d/*.list and *.sources."""
    listed = folder / "sources.list.d"
    for path in sorted(listed.glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            yield from _deb822(stanza)
    for path in (folder / "sources.list", *sorted(listed.glob("*.list"))):
        if path.is_file():
            yield from _one_line(path.read_text())


def _deb822(stanza: str) -> Iterator[AptSource]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line[0].isspace():
            fields[name] += " " + line.strip()
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    if "uris" not in fields or fields.get("enabled", "yes").lower() in ("no", "false"):
        return
    key = fields.get("signed-by", "")
    yield AptSource(
        types=tuple(fields.get("types", "").split()),
        uris=tuple(fields["uris"].split()),
        suites=tuple(fields.get("suites", "").split()),
        components=tuple(fields.get("components", "").split()),
        signed_by=key if key.startswith("/") else "",  # a key in the text itself stays where it is
        trusted=fields.get("trusted", "").lower() in ("yes", "true"),
    )


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"^(deb|deb-src)\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip())
        if match is None:
            continue
        kind, options, uri, suite, components = match.groups()
        given = dict(option.partition("=")[::2] for option in (options or "").split())
        yield AptSource(
            types=(kind,),
            uris=(uri,),
            suites=(suite,),
            components=tuple(components.split()),
            signed_by=given.get("signed-by", ""),
            trusted=given.get("trusted", "") == "yes",
        )


def debian_lines(
    suite: str, components: Sequence[str] = (), found: Iterator[AptSource] | None = None
) -> list[str]:
    """sources.list lines for `suite`, binaries and sources, on the mirror this machine uses for Debian.

    Parameters
    ----------
    suite:
        Debian release, such as "trixie".
    components:
        Besides "main", for binaries only: "contrib", "non-free".
    found:
        Sources to choose from; None for this machine's.

    Raises
    ------
    ProviderError
        No Debian mirror is configured.
    """
    mirror = os.environ.get(_VARIABLE, "")
    options = ""
    if not mirror:
        for source in sources() if found is None else found:
            if _is_main_archive(source):
                mirror = source.uris[0]
                options = _bracket(source)
                break
    if not mirror:
        raise ProviderError(
            "no Debian mirror is configured on this machine",
            f"Set {_VARIABLE} to the address of one, or use a config of another provider.",
        )
    return [
        " ".join([f"deb {options}{mirror} {suite} main", *components]),
        f"deb-src {options}{mirror} {suite} main",
    ]


def _is_main_archive(source: AptSource) -> bool:
    """Debian proper: not security, not another project's, not a flat repository."""
    address = source.uris[0].rstrip("/")
    return (
        "main" in source.components
        and bool(re.search(r"/debian(/[0-9TZ]+)?$", address))
        and any("/" not in suite and not suite.endswith("-security") for suite in source.suites)
    )


def _bracket(source: AptSource) -> str:
    given = [f"signed-by={source.signed_by}"] if source.signed_by else []
    given += ["trusted=yes"] if source.trusted else []
    return f"[{' '.join(given)}] " if given else ""


def options() -> list[str]:
    """The machine's apt options about reaching mirrors, as apt.conf lines: proxies, checks of dates, retries."""
    try:
        dump = subprocess.run(
            ["apt-config", "dump"], capture_output=True, text=True, check=True, timeout=20
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    chosen = [match for line in dump.splitlines() if (match := _OPTIONS.match(line))]
    return [f"{match[1]} {match[3]};" for match in chosen if match[3] != '""']
