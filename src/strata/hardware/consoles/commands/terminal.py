"""An interactive terminal on a node's console: what it prints goes to the screen byte for byte, and keys go to it.

As with ssh, ``~.`` at the beginning of a line ends it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

from strata.cli.words import segment
from strata.core.errors import BadRequest, StrataError

if TYPE_CHECKING:
    from strata.cli.session import Session

_PIECE = 1024


class Keys:
    """Tells when ``~.`` was typed at the beginning of a line."""

    def __init__(self) -> None:
        self._begins = True
        self._tilde = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What is to be sent of what was typed, and whether that was the end."""
        sent = bytearray()
        for byte in data:
            if self._tilde:
                self._tilde = False
                if byte == ord("."):
                    return bytes(sent), True
                if byte != ord("~"):
                    sent.append(ord("~"))
            elif self._begins and byte == ord("~"):
                self._tilde = True
                continue
            sent.append(byte)
            self._begins = byte in b"\r\n"
        return bytes(sent), False


def interact(session: Session, node: str) -> None:
    """Until ``~.`` is typed, or the connection ends."""
    keyboard = sys.stdin.fileno()
    if not os.isatty(keyboard):
        raise BadRequest("needs a terminal", where="--type", hint="without --type the console is shown")
    session.client.get(f"/v1/nodes/{segment(node)}/console", {"lines": 1})  # whether there is one, and we may
    session.out.note(f"connected to the console of {node}; ~. ends it")
    ended = threading.Event()
    wake, woken = os.pipe()
    said: list[StrataError] = []

    def show() -> None:
        try:
            for event in session.connect(session.url).events(f"/v1/nodes/{segment(node)}/console/raw", {}):
                if event.kind == "piece":
                    os.write(sys.stdout.fileno(), base64.b64decode(event.data["data"]))
                if ended.is_set():
                    return
        except StrataError as error:
            said.append(error)
        finally:
            os.write(woken, b"x")

    screen = threading.Thread(target=show, name="screen", daemon=True)
    with _raw(keyboard):
        screen.start()
        _type(session, node, keyboard, wake)
    ended.set()
    session.out.note("")
    if said:
        raise said[0]


def _type(session: Session, node: str, keyboard: int, wake: int) -> None:
    path, keys = f"/v1/nodes/{segment(node)}/console/keys", Keys()
    while True:
        ready, _, _ = select.select([keyboard, wake], [], [])
        if wake in ready:
            return
        data = os.read(keyboard, _PIECE)
        typed, over = keys.feed(data)
        if typed:
            session.client.post(path, {"data": base64.b64encode(typed).decode()})
        if over or not data:
            return


@contextlib.contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Every key goes through as it is, Ctrl-C too."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
