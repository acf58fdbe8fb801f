"""The build command with the tiny megabuild: as users start it, with a provider that has a package to make first."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from tiny import Made, Tiny

from command_line import build as command
from command_line.run_command import Invocation, run
from groundwork.channel import Channel
from megabuild.plan import planning
from megabuild.providers.environment import Environment, Pending, ProviderRequest
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local.package_store import PackageStore
from megabuild.providers.provider import Provider

HERE = Tiny(output=Path(sys.argv[1]), channel=Path(sys.argv[2]), root=Path(sys.argv[3]))
SIZE = 3_000_000
DOWNLOAD = int(os.environ.get("TINY_DOWNLOAD", SIZE))


def fill(prefix: Path) -> None:
    """Write something that takes a moment to compress, after as many seconds as a test asks for."""
    time.sleep(float(os.environ.get("TINY_PACKING_SECONDS", "0")))
    (prefix / "share").mkdir()
    (prefix / "share" / "noise").write_bytes(os.urandom(SIZE))


class Packing(Made):
    """Packs a package, as local channels do, unless it only surveys."""

    _package = LocalPackage(name="noise", version="1.0", platform="linux-64", fill=fill)

    def survey(self) -> Environment:
        """Report the package to pack."""
        if not PackageStore(self.request.cache / "channel").missing([self._package]):
            return self.environment
        pending = Pending(wheels=2, download=DOWNLOAD, bytes=2 * DOWNLOAD)
        return replace(self.environment, pending=pending)

    def provide(self) -> Environment:
        """Pack the package."""
        store = PackageStore(self.request.cache / "channel")
        store.ensure([self._package], self.request.report, "packing wheels")
        store.channel([self._package], "linux-64")
        return self.environment


def choose_provider(request: ProviderRequest) -> Provider:
    """Return the provider that packs."""
    return Packing(
        request,
        Environment(channels=(Channel.of_folder(HERE.channel, this_machine=True),), pythons=("3.11", "3.12")),
    )


if __name__ == "__main__":
    setattr(planning, "choose_provider", choose_provider)  # noqa: B010
    sys.argv[1:] = ["tiny", "--root", str(HERE.root), "--output", str(HERE.output), *sys.argv[4:]]
    run(command.build, name="build", invocation=Invocation(log_folder=HERE.output / "logs"))
