"""What decoders raise for bytes that came from outside and are not what belongs there: one list, for all who decode."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""Not JSON, or not of the type; nested too deeply; not UTF-8 (which msgspec leaves to Python to say)."""
