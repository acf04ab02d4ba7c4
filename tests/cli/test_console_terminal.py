"""The interactive console: what ends it, and that all else goes through."""

from __future__ import annotations

import pytest

from strata.hardware.consoles.commands.terminal import Keys


@pytest.mark.parametrize(
    ("typed", "sent", "over"),
    [
        ([b"ls\r"], b"ls\r", False),
        ([b"~."], b"", True),
        ([b"ls\r", b"~", b"."], b"ls\r", True),
        ([b"a~.b\r"], b"a~.b\r", False),
        ([b"~~.\r"], b"~.\r", False),
        ([b"~x~.\r"], b"~x~.\r", False),
        ([b"\x03\x1b[A\x00\xff"], b"\x03\x1b[A\x00\xff", False),
    ],
)
def test_only_a_tilde_and_a_dot_at_the_beginning_of_a_line_end_it(typed: list[bytes], sent: bytes, over: bool) -> None:
    keys = Keys()
    fed = [keys.feed(piece) for piece in typed]
    assert (b"".join(piece for piece, _ in fed), fed[-1][1]) == (sent, over)
