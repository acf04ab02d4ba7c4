"""age: encryption of small texts for a recipient. The only place that knows the library; errors never hold a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strata.core.errors import BadRequest, Corrupt
from strata.core.extras import needs


def _library() -> Any:
    with needs("pyrage", "secrets", "a secret"):
        import pyrage

        return pyrage


def generate() -> tuple[str, str]:
    """A new identity: its recipient, which is for everybody, and its private half."""
    identity = _library().x25519.Identity.generate()
    return str(identity.to_public()), str(identity)


def encrypt(value: bytes, recipients: Sequence[str]) -> str:
    """``value``, readable for any of the recipients, armoured."""
    library = _library()
    try:
        whom = [library.x25519.Recipient.from_str(recipient) for recipient in recipients]
    except library.RecipientError:
        raise BadRequest("is not an age recipient (age1...)", where=repr(recipients)[:200]) from None
    return bytes(library.encrypt(value, whom, armored=True)).decode()


def decrypt(text: str, identities: Sequence[str], where: str) -> bytes:
    """What was encrypted for one of the identities; ``Corrupt`` where it was for none of them, or is damaged."""
    library = _library()
    try:
        keys = [library.x25519.Identity.from_str(identity) for identity in identities]
        return bytes(library.decrypt(text.encode(), keys))
    except library.IdentityError:
        raise Corrupt(
            "the service's age identity cannot be read", where=where, hint="strata secret init --new"
        ) from None
    except library.DecryptError:
        raise Corrupt(
            "was encrypted for somebody else, or is damaged",
            where=where,
            hint="encrypt it for the recipient that 'strata secret recipient' shows",
        ) from None
