"""``python docs_typing.py LINE... -- COMMAND...``: runs a command at a terminal, and types a line whenever it asks.

Ends as the command does; with 1 where it did not ask for every line.
"""

from __future__ import annotations

import os
import pty
import select
import sys
import termios

LOOK = 0.1
"""Seconds between looks at whether it waits for keys."""


def main(lines: list[str], command: list[str]) -> int:
    """Type ``lines`` one by one: each when what was printed last is no whole line, or when it takes single keys."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvp(command[0], command)
    printed = b""
    while True:
        if lines and (printed.endswith(b": ") or _takes_keys(terminal)):
            os.write(terminal, lines.pop(0).encode() + b"\n")
            printed = b""
        if not select.select([terminal], [], [], LOOK)[0]:
            continue
        try:
            some = os.read(terminal, 4096)
        except OSError:  # so Linux says that nobody has the other end any more
            break
        if not some:
            break
        printed += some
        sys.stdout.write(some.decode(errors="replace"))
        sys.stdout.flush()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status or (1 if lines else 0)


def _takes_keys(terminal: int) -> bool:
    """Whether it reads every key, and not whole lines."""
    return not termios.tcgetattr(terminal)[3] & termios.ICANON


if __name__ == "__main__":
    at = sys.argv.index("--")
    raise SystemExit(main(sys.argv[1:at], sys.argv[at + 1 :]))
