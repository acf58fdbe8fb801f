"""A server of conda channels that asks for credentials, or has a fault."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

USER, PASSWORD, TOKEN = "bob", "hunter2@hunter2", "tk-1234-secretsecret"
FAULTS: dict[str, int | bytes | None] = {
    "e401": 401, "e403": 403, "e404": 404, "e503": 503,
    "portal": b"<html>Please log in</html>", "empty": b"", "broken": b'{"packages": [1,2', "hangs-up": None,
}  # fmt: skip


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; the first folder of an address says how: by password, by token, or with a fault."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Answer as to GET."""
        self.do_GET()

    def do_GET(self) -> None:
        """Serve a file if the credentials are right, or show the fault."""
        kind, _, rest = self.path.lstrip("/").partition("/")
        if kind in FAULTS:
            self._fail(FAULTS[kind])
            return
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if kind == "password" and self.headers.get("Authorization") != f"Basic {login}":
            self.send_error(401)
            return
        if kind == "token":
            rest = rest.removeprefix(f"t/{TOKEN}/") if rest.startswith(f"t/{TOKEN}/") else "refused"
        if kind == "t":
            rest = rest.removeprefix(f"{TOKEN}/") if rest.startswith(f"{TOKEN}/") else "refused"
        self.path = f"/{rest}"
        if self.command == "HEAD":
            super().do_HEAD()
        else:
            super().do_GET()

    def _fail(self, fault: int | bytes | None) -> None:
        if fault is None:
            self.close_connection = True
            return
        body = fault if isinstance(fault, bytes) else b"no"
        self.send_response(fault if isinstance(fault, int) else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            with suppress(BrokenPipeError):
                self.wfile.write(body)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the channels below a folder; yield host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
