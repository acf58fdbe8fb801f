"""Read this machine's Debian mirror and apt options; there is no default mirror.

apt's files are read directly, because ``apt-get indextargets`` omits mirrors without downloaded lists, which container
images delete. Before apt 2.9 it also omits the keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

from groundwork.errors import ProviderError
from groundwork.process import run

#: Options that describe how this machine reaches its mirrors.
_OPTIONS = re.compile(
    r"^(Acquire::(Check-|Retries|ForceIPv|http|https|ftp|Proxy)[^ ]*) (\".*\");$", re.IGNORECASE
)

_EMPTY = '""'
_VARIABLE = "MEGABUILD_DEBIAN_MIRROR"


@dataclass(frozen=True, kw_only=True)
class AptSource:
    """An entry of apt's sources."""

    uri: str
    suites: list[str]
    components: list[str]
    options: list[str]  #: Its signing key, and whether it is trusted, as options of a one-line entry.


def sources(folder: Path = Path("/etc/apt")) -> Iterator[AptSource]:
    """Yield the enabled sources of sources.list, sources.list.d/*.list and *.sources."""
    listed = folder / "sources.list.d"
    for path in sorted(listed.glob("*.sources")):
        text = path.read_text(errors="replace")  # comments may have any encoding
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
            yield from _deb822(stanza)
    for path in (folder / "sources.list", *sorted(listed.glob("*.list"))):
        if path.is_file():
            yield from _one_line(path.read_text(errors="replace"))


def _deb822(stanza: str) -> Iterator[AptSource]:
    fields = message_from_string(stanza.lstrip())  # deb822 has the syntax of mail headers
    uris = fields.get("uris", "").split()
    if not uris or fields.get("enabled", "yes").lower() in ("no", "false"):
        return
    options: list[str] = []
    key = fields.get("signed-by", "").strip()
    if key.startswith("/"):  # one line cannot hold an inline key
        options.append(f"signed-by={key}")
    if fields.get("trusted", "").lower() in ("yes", "true"):
        options.append("trusted=yes")
    yield AptSource(
        uri=uris[0],
        suites=fields.get("suites", "").split(),
        components=fields.get("components", "").split(),
        options=options,
    )


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"^deb(?:-src)?\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip())
        if match:
            options, uri, suite, components = match.groups(default="")
            chosen = [
                option for option in options.split() if option.startswith(("signed-by=", "trusted=yes"))
            ]
            yield AptSource(uri=uri, suites=[suite], components=components.split(), options=chosen)


def debian_lines(
    suite: str, components: Sequence[str] = (), configured: Iterable[AptSource] | None = None
) -> list[str]:
    """Return the deb and deb-src lines for `suite` on the Debian mirror of MEGABUILD_DEBIAN_MIRROR, else of apt.

    `components`: Components in addition to "main", for binaries only: "contrib", "non-free".

    Raises ProviderError: No Debian mirror is configured.
    """
    mirror = os.environ.get(_VARIABLE, "")
    if not mirror:
        if configured is None:
            configured = sources()
        mirror = _mirror(configured)
    return [" ".join([f"deb {mirror} {suite} main", *components]), f"deb-src {mirror} {suite} main"]


def _mirror(configured: Iterable[AptSource]) -> str:
    """Return the options and address of the first source that is a mirror of Debian's main archive."""
    for source in configured:
        if not _has_main_archive(source):
            continue
        if source.options:
            return f"[{' '.join(source.options)}] {source.uri}"
        return source.uri
    raise ProviderError(
        "/etc/apt: no Debian mirror is configured, and Debian configs need one",
        f"set {_VARIABLE}=URL, or choose a config of another provider (scripts/megabuild configs)",
    )


def _has_main_archive(source: AptSource) -> bool:
    """Return whether it has Debian's main archive: not security, not a third party's, not a flat repository."""
    if "main" not in source.components or not re.search(r"/debian(/[0-9TZ]+)?$", source.uri.rstrip("/")):
        return False
    return any("/" not in suite and not suite.endswith("-security") for suite in source.suites)


def options() -> list[str]:
    """Return this machine's apt options for reaching mirrors (proxies, date checks, retries), as apt.conf lines."""
    dump = run(["apt-config", "dump"], timeout=20).stdout
    lines: list[str] = []
    for line in dump.splitlines():
        match = _OPTIONS.match(line)
        if match and match[3] != _EMPTY:
            lines.append(f"{match[1]} {match[3]};")
    return lines
