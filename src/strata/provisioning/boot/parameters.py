"""Kernel parameters: layers of them over each other, and what may not be in them. Pure."""

from __future__ import annotations

import re

from strata.core.errors import BadRequest
from strata.core.redact import HIDDEN, redact

BUILT_IN = "console=ttyS0,115200 panic=10"
"""Before everything that a site says: what a node prints is captured, and a node that panics boots again."""

_LONGEST = 1500  # the kernel takes 2048
# iPXE and GRUB give a meaning to other characters.
_WORD = re.compile(r"-?[A-Za-z0-9_][A-Za-z0-9_.,:=/@+%^~*-]*\Z")


def check_parameters(text: str, where: str = "parameters") -> None:
    """Raise ``BadRequest`` unless ``text`` can be on a kernel's command line, where everybody on the node reads it."""
    if len(text) > _LONGEST:
        raise BadRequest(f"at most {_LONGEST} characters, these are {len(text)}", where=where)
    for word in text.split(" "):
        if not word:
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if (equals and redact({name: value})[name] == HIDDEN) or redact(word) != word:
            raise BadRequest(
                f"{name[:40]} looks like a secret, and everybody on a node can read its kernel's parameters",
                where=where,
                hint="nodes get their secrets from their agent; leave it out",
            )
        if not _WORD.match(word):
            raise BadRequest(
                "a parameter is made of letters, digits and _.,:=/@+%^~*-", where=f"{where}: {word[:60]!r}"
            )


def layered(*layers: str) -> str:
    """One command line. What a later layer says of a parameter replaces what was said before; ``-name`` removes it."""
    kept: list[str] = []
    for layer in layers:
        words = layer.split()
        named = {_name(word) for word in words}
        kept = [word for word in kept if _name(word) not in named]
        kept += [word for word in words if not word.startswith("-")]
    return " ".join(kept)


def _name(word: str) -> str:
    return word.lstrip("-").partition("=")[0]
