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

_VARIABLE = "MEGABUILD_DEBIAN_MIRROR"


@dataclass(frozen=True, kw_only=True)
class AptSource:
    """An entry of apt's sources: mirror, suites, components and signing key."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""
    trusted: bool = False

    @property
    def is_main_archive(self) -> bool:
        """Whether this is Debian's main archive: not security, not a third party's, not a flat repository."""
        return (
            "main" in self.components
            and bool(re.search(r"/debian(/[0-9TZ]+)?$", self.uri.rstrip("/")))
            and any("/" not in suite and not suite.endswith("-security") for suite in self.suites)
        )


def sources(folder: Path = Path("/etc/apt")) -> Iterator[AptSource]:
    """Yield the enabled sources of sources.list, sources.list.d/*.list and *.sources."""
    listed = folder / "sources.list.d"
    for path in sorted(listed.glob("*.sources")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
            yield from _deb822(stanza)
    for path in (folder / "sources.list", *sorted(listed.glob("*.list"))):
        if path.is_file():
            yield from _one_line(path.read_text())


def _deb822(stanza: str) -> Iterator[AptSource]:
    fields = message_from_string(stanza.lstrip())  # deb822 has the syntax of mail headers
    uris = fields.get("uris", "").split()
    if not uris or fields.get("enabled", "yes").lower() in ("no", "false"):
        return
    key = fields.get("signed-by", "").strip()
    yield AptSource(
        uri=uris[0],
        suites=tuple(fields.get("suites", "").split()),
        components=tuple(fields.get("components", "").split()),
        signed_by=key if key.startswith("/") else "",  # the one-line format cannot hold an inline key
        trusted=fields.get("trusted", "").lower() in ("yes", "true"),
    )


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"^deb(?:-src)?\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip())
        if match is None:
            continue
        options, uri, suite, components = match.groups()
        settings = dict(option.partition("=")[::2] for option in (options or "").split())
        yield AptSource(
            uri=uri,
            suites=(suite,),
            components=tuple(components.split()),
            signed_by=settings.get("signed-by", ""),
            trusted=settings.get("trusted", "") == "yes",
        )


def debian_lines(
    suite: str, components: Sequence[str] = (), configured: Iterable[AptSource] | None = None
) -> list[str]:
    """Return the deb and deb-src lines for `suite` on the Debian mirror of MEGABUILD_DEBIAN_MIRROR, else of apt.

    `components`: Components in addition to "main", for binaries only: "contrib", "non-free".

    Raises ProviderError: No Debian mirror is configured.
    """
    mirror = os.environ.get(_VARIABLE, "")
    if not mirror:
        usable = (
            source for source in (sources() if configured is None else configured) if source.is_main_archive
        )
        source = next(usable, None)
        if source is None:
            raise ProviderError(
                "/etc/apt: no Debian mirror is configured, and Debian configs need one",
                f"set {_VARIABLE}=URL, or choose a config of another provider (scripts/megabuild configs)",
            )
        settings = [f"signed-by={source.signed_by}"] if source.signed_by else []
        settings += ["trusted=yes"] if source.trusted else []
        mirror = f"[{' '.join(settings)}] {source.uri}" if settings else source.uri
    return [" ".join([f"deb {mirror} {suite} main", *components]), f"deb-src {mirror} {suite} main"]


def options() -> list[str]:
    """Return this machine's apt options for reaching mirrors (proxies, date checks, retries), as apt.conf lines."""
    dump = run(["apt-config", "dump"], timeout=20).stdout
    chosen = [match for line in dump.splitlines() if (match := _OPTIONS.match(line))]
    return [f"{match[1]} {match[3]};" for match in chosen if match[3] != '""']
