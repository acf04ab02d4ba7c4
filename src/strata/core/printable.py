"""Text made fit for a line: foreign text safe for a terminal, long text cut."""

from __future__ import annotations

import re

# C0 and C1 controls, and the marks that reorder or hide text.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def clean(text: object) -> str:
    """``text`` on one line, control characters written as escapes."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), str(text))


def shortened(text: str, most: int) -> str:
    """``text``, cut where it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}..."
