"""``python docs_typing.py LINE... -- COMMAND...``: runs a command at a terminal, and types a line whenever it asks.

Ends as the command does; with 1 where it did not ask for every line.
"""

from __future__ import annotations

import os
import pty
import sys


def main(lines: list[str], command: list[str]) -> int:
    """Type ``lines`` one by one: each when what was printed last is no whole line."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvp(command[0], command)
    printed = b""
    while True:
        try:
            some = os.read(terminal, 4096)
        except OSError:  # so Linux says that nobody has the other end any more
            break
        if not some:
            break
        printed += some
        sys.stdout.write(some.decode(errors="replace"))
        sys.stdout.flush()
        if lines and printed.endswith(b": "):
            os.write(terminal, lines.pop(0).encode() + b"\n")
            printed = b""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status or (1 if lines else 0)


if __name__ == "__main__":
    at = sys.argv.index("--")
    raise SystemExit(main(sys.argv[1:at], sys.argv[at + 1 :]))
