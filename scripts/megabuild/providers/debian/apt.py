"""This machine's Debian mirror and apt options; there is no default mirror.

Read from apt's files: ``apt-get indextargets`` knows only mirrors with downloaded lists (container images delete them),
and before apt 2.9 not their keys.
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
    """One place of an apt configuration: where, what of it, and which key signs it."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""
    trusted: bool = False

    @property
    def is_main_archive(self) -> bool:
        """Whether this is Debian proper: not security, not another project's, not a flat repository."""
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
    fields = message_from_string(stanza.lstrip())  # of the same form as a mail's head
    if "uris" not in fields or fields.get("enabled", "yes").lower() in ("no", "false"):
        return
    key = fields.get("signed-by", "").strip()
    yield AptSource(
        uri=fields["uris"].split()[0],
        suites=tuple(fields.get("suites", "").split()),
        components=tuple(fields.get("components", "").split()),
        signed_by=key if key.startswith("/") else "",  # a key in the text itself stays where it is
        trusted=fields.get("trusted", "").lower() in ("yes", "true"),
    )


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        match = re.match(r"^deb(?:-src)?\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip())
        if match is None:
            continue
        options, uri, suite, components = match.groups()
        given = dict(option.partition("=")[::2] for option in (options or "").split())
        yield AptSource(
            uri=uri,
            suites=(suite,),
            components=tuple(components.split()),
            signed_by=given.get("signed-by", ""),
            trusted=given.get("trusted", "") == "yes",
        )


def debian_lines(
    suite: str, components: Sequence[str] = (), configured: Iterable[AptSource] | None = None
) -> list[str]:
    """Return sources.list lines for `suite`, binaries and sources, on the mirror this machine uses for Debian.

    `components`: Besides "main", for binaries only: "contrib", "non-free".

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
                "no Debian mirror is configured on this machine",
                f"Set {_VARIABLE} to the address of one, or use a config of another provider.",
            )
        given = [f"signed-by={source.signed_by}"] if source.signed_by else []
        given += ["trusted=yes"] if source.trusted else []
        mirror = f"[{' '.join(given)}] {source.uri}" if given else source.uri
    return [" ".join([f"deb {mirror} {suite} main", *components]), f"deb-src {mirror} {suite} main"]


def options() -> list[str]:
    """Return the machine's apt options about reaching mirrors, as apt.conf lines: proxies, checks of dates, retries."""
    dump = run(["apt-config", "dump"], timeout=20).stdout
    chosen = [match for line in dump.splitlines() if (match := _OPTIONS.match(line))]
    return [f"{match[1]} {match[3]};" for match in chosen if match[3] != '""']
