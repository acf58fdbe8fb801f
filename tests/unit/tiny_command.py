"""The build command with the tiny megabuild: as users start it, with a provider that has a package to make first."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from tiny import Tiny, provider

from command_line import build as command
from command_line.run_command import Invocation, run
from megabuild.plan import planning
from megabuild.providers.environment import Download, Environment
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local.store import Store
from megabuild.providers.provider import ProviderRequest

HERE = Tiny(output=Path(sys.argv[1]), channel=Path(sys.argv[2]), root=Path(sys.argv[3]))
SIZE = 3_000_000
DOWNLOAD = int(os.environ.get("TINY_DOWNLOAD", SIZE))


def fill(prefix: Path) -> None:
    """Write something that takes a moment to compress."""
    (prefix / "share").mkdir()
    (prefix / "share" / "noise").write_bytes(os.urandom(SIZE))


def provide(request: ProviderRequest) -> Environment:
    """Pack a package, as local channels do, unless it is only for a plan."""
    package = LocalPackage(name="noise", version="1.0", platform="linux-64", fill=fill)
    store = Store(request.cache / "channel", writing=not request.plan)
    environment = provider(HERE.channel)()
    if not request.plan:
        store.ensure([package], request.report, "packing wheels")
        store.channel([package], "linux-64")
        return environment
    if not store.missing([package]):
        return environment
    download = Download(what="wheels", count=2, size=DOWNLOAD)
    return replace(environment, ready=False, downloads=(download,), to_make=2 * DOWNLOAD)


if __name__ == "__main__":
    setattr(planning, "provide", provide)  # noqa: B010
    arguments = ["tiny", "--root", str(HERE.root), "--output", str(HERE.output), *sys.argv[4:]]
    run(
        command.build,
        name="build",
        invocation=Invocation(log_folder=HERE.output / "logs"),
        arguments=arguments,
    )
