"""Servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answer every connection in a thread; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def work(near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            answer(near)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                open_ones.append(near)
                threading.Thread(target=work, args=(near,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        for one in [listener, *open_ones]:
            one.close()
        thread.join(5.0)


def cutting(port: int, after: int) -> Callable[[socket.socket], None]:
    """Pass on to another port, and hang up after some bytes of each answer."""

    def answer(near: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as far:

            def back() -> None:
                left = after
                with contextlib.suppress(OSError):
                    while left > 0 and (block := far.recv(min(left, 1 << 12))):
                        near.sendall(block)
                        left -= len(block)
                    near.shutdown(socket.SHUT_RDWR)

            thread = threading.Thread(target=back, daemon=True)
            thread.start()
            with contextlib.suppress(OSError):
                while block := near.recv(1 << 12):
                    far.sendall(block)
            thread.join(5.0)

    return answer
