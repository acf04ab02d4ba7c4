"""Bytes of a console as plain lines: bounded, on one line each, and with nothing in them that drives a terminal."""

from __future__ import annotations

import codecs
import re

from strata.core.redact import redact

LONGEST = 2000
"""Characters of a line; the rest of a longer one is cut."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS, SOS, PM, APC: titles, clipboards
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
# C0 and C1 controls, and the marks that reorder or hide text; a lone half of a surrogate pair is no text at all.
_UNSEEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_ENDS = re.compile(r"\r*\n|\r")
_TELLING = re.compile(r"strata_|bearer|basic |authori|passw|secret|token|key|://", re.IGNORECASE)


def clean(text: str) -> str:
    """One line, without escapes and control characters, with what looks like a secret blacked out."""
    if len(text) > LONGEST:
        text = text[:LONGEST] + "…"
    if not text.isprintable():
        text = _ESCAPES.sub("", text)
        if "\x08" in text:
            text = _rubbed_out(text)
        text = _UNSEEN.sub("", text).replace("\t", "    ")
    if _TELLING.search(text):
        text = redact(text)
    return text.rstrip()


def _rubbed_out(text: str) -> str:
    """Without what backspaces took back."""
    kept: list[str] = []
    for letter in text:
        if letter != "\x08":
            kept.append(letter)
        elif kept:
            kept.pop()
    return "".join(kept)


class Lines:
    """Cuts a stream of bytes into lines. One per console."""

    __slots__ = ("_decoder", "_rest")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        """The lines that end in ``data``, cleaned. Empty ones are left out."""
        *ended, self._rest = _ENDS.split(self._rest + self._decoder.decode(data))
        if len(self._rest) > LONGEST:
            ended.append(self._rest)
            self._rest = ""
        return [line for line in map(clean, ended) if line]

    @property
    def unended(self) -> bool:
        """Whether there is something that has not ended in a newline."""
        return bool(self._rest)

    def rest(self) -> list[str]:
        """What has not ended in a newline (a prompt): call it when nothing more comes for a while."""
        line, self._rest = clean(self._rest), ""
        return [line] if line else []
