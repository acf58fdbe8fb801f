"""Submodules described by the audit and by git itself, from one server: `python benchmarks/submodules.py MIRRORS TAG`.

MIRRORS is a folder with bare repositories under the names they have upstream (``pyg-team/pyg-lib.git``, links will do).
They are served by ``git daemon`` through a relay that counts bytes, in place of https://github.com/. Printed are bytes
received and seconds of the audit with an empty cache, of the audit again, and of ``git submodule update --init
--recursive`` followed by ``git submodule status --recursive``; the exit status is 1 where the descriptions differ.

Mirrors that lack some files will do as well: the server then leaves them out, git's side clones with a filter that
keeps out nothing else (files above a gigabyte), and what it could not check out is named with --leave-out. A submodule
whose commit the mirror lacks is left to the audit's own complaint.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from pin_audit.facts import AuditTarget, SourceOutcome, Submodule  # noqa: E402
from pin_audit.request import AuditRequest  # noqa: E402
from pin_audit.services import Services  # noqa: E402
from pin_audit.sources import submodules  # noqa: E402
from pin_audit.trees import open_tree  # noqa: E402

_UPSTREAM = "https://github.com/"
_STATUS = re.compile(r"(?P<mark>.)(?P<commit>[0-9a-f]{40,64}) (?P<path>\S+)(?: \((?P<text>.*)\))?")
_FILTER = "--filter=blob:limit=1g"


class Relay:
    """Passes TCP connections on and counts what comes back."""

    def __init__(self, port: int) -> None:
        self.received = 0
        self._to = port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def taken(self) -> int:
        """Return the bytes received since the last call."""
        time.sleep(1.0)  # what is still under way
        with self._lock:
            found, self.received = self.received, 0
        return found

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self._to))
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                target.sendall(block)
                with self._lock:
                    self.received += len(block) if counted else 0
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def served(mirrors: Path, folder: Path) -> Iterator[int]:
    """Serve bare repositories, by hash and with filters as GitHub does; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    # A mirror that lacks some old files can still send the others.
    hook = folder / "pack-objects"
    hook.write_text('#!/bin/sh\nexec "$@" --missing=allow-any\n', encoding="ascii")
    hook.chmod(0o755)
    settings = ("allowFilter=true", "allowAnySHA1InWant=true", f"packObjectsHook={hook}")
    words = ["git", *(word for text in settings for word in ("-c", f"uploadpack.{text}")), "daemon"]
    words += ["--export-all", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={mirrors}"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            time.sleep(0.1)
        yield port
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def audited(target: AuditTarget, cache: Path) -> SourceOutcome:
    """Describe the submodules as the audit does."""
    services = Services(cache, seconds=1800.0)
    request = AuditRequest(
        target=target,
        services=services,
        repository=lambda: open_tree(target, services),
        configs=(),
        root=ROOT,
    )
    return submodules.read(request)


def cloned(
    target: AuditTarget, folder: Path, paths: Sequence[str], relay: Relay, leave_out: Sequence[str]
) -> tuple[str, int]:
    """Update and describe the submodules as git does; returns its words, and the superproject's own bytes."""
    template = folder / "template"
    (template / "info").mkdir(parents=True)
    patterns = "".join(f"!{pattern}\n" for pattern in leave_out)
    (template / "info/sparse-checkout").write_text(f"/*\n{patterns}", encoding="utf-8")

    def git(*words: str, cwd: Path) -> str:
        settings = ["-c", "advice.detachedHead=false"]
        settings += ["-c", "core.sparseCheckout=true"] if leave_out else []
        answer = subprocess.run(
            ["git", *settings, *words],
            cwd=cwd,
            env=os.environ | {"GIT_TEMPLATE_DIR": str(template)},
            check=False,
            capture_output=True,
            text=True,
        )
        if answer.returncode != 0:
            raise SystemExit(f"git {words[0]}: {answer.stderr}")
        return answer.stdout

    work = folder / "clone"
    git("clone", "--quiet", "--depth=1", f"--branch={target.tag}", target.repository, str(work), cwd=folder)
    own = relay.taken()
    git("submodule", "--quiet", "update", "--init", "--recursive", _FILTER, "--", *paths, cwd=work)
    return git("submodule", "status", "--recursive", cwd=work), own


def differences(found: Mapping[str, str], status: str) -> list[str]:
    """Compare descriptions by path."""
    lines = []
    for line in status.splitlines():
        match = _STATUS.fullmatch(line)
        if match is None:
            lines.append(f"not understood: {line}")
        elif match["mark"] != "-" and found.get(match["path"]) != f"{match['commit']} {match['text']}":
            lines.append(f"{line} is not {found.get(match['path'])}")
    return lines


def main() -> int:
    """Measure, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("mirrors", type=Path, help="folder with OWNER/NAME.git")
    parser.add_argument("tag")
    parser.add_argument("--repository", default="https://github.com/pyg-team/pyg-lib.git")
    parser.add_argument(
        "--leave-out",
        action="append",
        default=[],
        metavar="PATH",
        help="a file that git's side must not check out",
    )
    options = parser.parse_args()
    target = AuditTarget(
        package="benchmark",
        version=options.tag,
        repository=options.repository,
        tag=options.tag,
        wheel="",
        builds=(),
    )
    with tempfile.TemporaryDirectory(prefix="submodules-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        with served(options.mirrors.absolute(), folder) as port:
            relay = Relay(port)
            os.environ |= {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": f"url.git://127.0.0.1:{relay.port}/.insteadOf",
                "GIT_CONFIG_VALUE_0": _UPSTREAM,
            }
            relay.taken()
            figures: list[int] = []
            for name in ("audit, empty cache", "audit again"):
                started = time.perf_counter()
                outcome = audited(target, folder / "cache")
                seconds, bytes_ = time.perf_counter() - started, relay.taken()
                figures.append(bytes_)
                print(f"{name:28} {bytes_:>13,} bytes {seconds:8.2f} s", flush=True)
            if outcome.trouble:
                print(outcome.trouble)
            for fact in outcome.facts:
                print(f"  {fact.name:36} {fact.value or fact.trouble}")
            usable = [fact.name for fact in outcome.facts if fact.value]
            gitlinks = [name for name in usable if not any(name.startswith(f"{other}/") for other in usable)]
            started = time.perf_counter()
            status, own = cloned(target, folder, gitlinks, relay, options.leave_out)
            seconds, bytes_ = time.perf_counter() - started, relay.taken()
            print(
                f"{'git submodule update':28} {bytes_:>13,} bytes {seconds:8.2f} s  (superproject {own:,} more)"
            )
            print(f"{'':28} {bytes_ / max(figures[0], 1):>13,.0f} times the bytes")
            found = {
                fact.name: f"{fact.commit} {fact.value}"
                for fact in outcome.facts
                if isinstance(fact, Submodule)
            }
            different = differences(found, status)
            print("\n".join(different) or f"all {len(usable)} descriptions are git's own")
            return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
