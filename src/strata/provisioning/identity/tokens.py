"""One-time tokens: what they look like, and the hash by which they are known. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

import msgspec

_FORM = re.compile(r"(?P<generation>[1-9]\d{0,17})\.(?P<secret>[A-Za-z0-9_-]{43})\.(?P<node>[A-Za-z0-9_.-]{1,63})\Z")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What one boot of one node may redeem, once. ``text`` is what travels."""

    node: str
    generation: int
    secret: str

    def __repr__(self) -> str:
        return f"Token({self.node}, {self.generation})"

    @property
    def text(self) -> str:
        """The token as the node gets it."""
        return f"{self.generation}.{self.secret}.{self.node}"

    @property
    def hash(self) -> bytes:
        """What is stored of it. A plain hash is enough: the secret is 256 random bits."""
        return hashlib.sha256(self.secret.encode()).digest()

    def matches(self, stored: bytes) -> bool:
        """Whether ``stored`` is this token's hash; tells nothing by the time it takes."""
        return hmac.compare_digest(self.hash, stored)


def new_token(node: str, generation: int) -> Token:
    """A token that nobody can guess."""
    return Token(node=node, generation=generation, secret=secrets.token_urlsafe(32))


def parse_token(text: str) -> Token | None:
    """What ``text`` claims to be; None: no token at all."""
    found = _FORM.match(text)
    if found is None:
        return None
    return Token(node=found["node"], generation=int(found["generation"]), secret=found["secret"])
