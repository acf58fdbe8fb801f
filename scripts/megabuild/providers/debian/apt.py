"""Read this machine's Debian mirror and apt options; there is no default mirror.

apt's files are read directly, because ``apt-get indextargets`` omits mirrors without downloaded lists, which container
images delete. Before apt 2.9 it also omits the keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from email import message_from_string
from pathlib import Path
from typing import NamedTuple

from groundwork.errors import ProviderError
from groundwork.process import run

#: Options that describe how this machine reaches its mirrors.
_OPTIONS = re.compile(
    r"^(Acquire::(Check-|Retries|ForceIPv|http|https|ftp|Proxy)[^ ]*) (\".*\");$", re.IGNORECASE
)

_VARIABLE = "MEGABUILD_DEBIAN_MIRROR"


class AptSource(NamedTuple):
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
    options = []
    if (key := fields.get("signed-by", "").strip()).startswith("/"):  # one line cannot hold an inline key
        options.append(f"signed-by={key}")
    if fields.get("trusted", "").lower() in ("yes", "true"):
        options.append("trusted=yes")
    suites, components = fields.get("suites", "").split(), fields.get("components", "").split()
    yield AptSource(uris[0], suites, components, options)


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"^deb(?:-src)?\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip())
        if match:
            options, uri, suite, components = match.groups()
            chosen = [one for one in (options or "").split() if one.startswith(("signed-by=", "trusted=yes"))]
            yield AptSource(uri, [suite], components.split(), chosen)


def debian_lines(
    suite: str, components: Sequence[str] = (), configured: Iterable[AptSource] | None = None
) -> list[str]:
    """Return the deb and deb-src lines for `suite` on the Debian mirror of MEGABUILD_DEBIAN_MIRROR, else of apt.

    `components`: Components in addition to "main", for binaries only: "contrib", "non-free".

    Raises ProviderError: No Debian mirror is configured.
    """
    mirror = os.environ.get(_VARIABLE, "")
    if not mirror:
        # Debian's main archive: not security, not a third party's, not a flat repository
        usable = (
            source
            for source in (sources() if configured is None else configured)
            if "main" in source.components and re.search(r"/debian(/[0-9TZ]+)?$", source.uri.rstrip("/"))
            if any("/" not in suite and not suite.endswith("-security") for suite in source.suites)
        )
        source = next(usable, None)
        if source is None:
            raise ProviderError(
                "/etc/apt: no Debian mirror is configured, and Debian configs need one",
                f"set {_VARIABLE}=URL, or choose a config of another provider (scripts/megabuild configs)",
            )
        mirror = f"[{' '.join(source.options)}] {source.uri}" if source.options else source.uri
    return [" ".join([f"deb {mirror} {suite} main", *components]), f"deb-src {mirror} {suite} main"]


def options() -> list[str]:
    """Return this machine's apt options for reaching mirrors (proxies, date checks, retries), as apt.conf lines."""
    dump = run(["apt-config", "dump"], timeout=20).stdout
    chosen = [match for line in dump.splitlines() if (match := _OPTIONS.match(line))]
    return [f"{match[1]} {match[3]};" for match in chosen if match[3] != '""']
