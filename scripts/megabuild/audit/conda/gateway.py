"""A channel's records through py-rattler, in bounded time; a platform that fails is a sentence, not an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

from rattler import Channel, Gateway, RepoDataRecord, SourceConfig
from rattler.exceptions import GatewayError
from rattler.networking.fetch_repo_data import CacheAction
from rattler.platform.subdir import SubdirLiteral

from megabuild.network import redact
from megabuild.network.bounded import within

Records = list[RepoDataRecord]


def ask(
    url: str, wanted: Mapping[str, Collection[str]], cache: Path, action: CacheAction, seconds: float
) -> dict[str, Records | str]:
    """Return the records of some packages by platform, or why there are none.

    Parameters
    ----------
    url:
        The channel's; ``file:`` for a folder.
    wanted:
        Names of packages by conda's platform.
    cache:
        A folder for rattler's cache.
    action:
        How it is used.
    seconds:
        For all platforms together, which are asked at once.
    """

    async def every() -> list[Records | str]:
        gateway = Gateway(cache_dir=cache, default_config=SourceConfig(cache_action=action))
        return await asyncio.gather(*(one(gateway, platform) for platform in wanted))

    async def one(gateway: Gateway, platform: str) -> Records | str:
        query = gateway.query(
            [Channel(url)],
            [cast(SubdirLiteral, platform)],
            sorted(wanted[platform]),
            recursive=False,
            channel_relations="disabled",
        )
        try:
            answer = await asyncio.wait_for(query, seconds)
        except asyncio.TimeoutError:
            return _late(seconds)
        # Rust's panics have a class of their own, and are not Exceptions
        except (GatewayError, OSError, ValueError, RuntimeError, TypeError) as error:
            return _reason(error)
        return [record for records in answer for record in records]

    try:
        answers = within(seconds + 1.0, lambda: asyncio.run(every()))
    except TimeoutError:
        return dict.fromkeys(wanted, _late(seconds))
    except Exception as error:
        return dict.fromkeys(wanted, _reason(error))
    return dict(zip(wanted, answers, strict=True))


def _late(seconds: float) -> str:
    return f"no end after {seconds:.0f} s"


def _reason(error: BaseException) -> str:
    """Return the first and the last line: what failed, and what was at the bottom of it."""
    lines = [line.strip() for line in redact.text(str(error)).splitlines() if line.strip()] or [
        type(error).__name__
    ]
    last = lines[-1].removeprefix("Caused by:").strip()
    return lines[0] if len(lines) == 1 else f"{lines[0]}: {last}"
