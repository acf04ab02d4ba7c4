"""What a person sees in a terminal, as a picture: a command on a real pty, its colours as SVG."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

COLUMNS, ROWS = 100, 30


def seen(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> str:
    """What a command prints on a terminal of its own, with its colours. It must end well."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = bytearray()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            cwd=directory,
            env={**environment, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)},
        )
        os.close(slave)
        while part := _read(master):
            kept += part
        assert process.wait(60) == 0, kept.decode(errors="replace")
    finally:
        os.close(master)
    return kept.decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # nobody has the other side open any more
        return b""


def picture(said: Sequence[tuple[str, str]], title: str) -> str:
    """An SVG of commands and what each printed. It loads nothing: letters are the reader's own."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, text in said:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(text.rstrip("\n")))
        console.print()
    plain = re.sub(r"@font-face \{\{.*?\}\}\n?", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    plain = plain.replace("Fira Code, monospace", "monospace")
    return console.export_svg(title=title, code_format=plain, unique_id="terminal")
