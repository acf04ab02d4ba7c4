"""What is kept and shown of credentials: tokens, client certificates, who somebody is."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.texts import GroupNameText, In, NoteText, Out
from strata.fleet.access.principal import Role

HolderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$(?!\n)", max_length=63)]
_Groups = Annotated[tuple[GroupNameText, ...], Meta(max_length=100)]


class TokenRequest(In, frozen=True, kw_only=True):
    """A new bearer token: role, groups that it is limited to (none: all), seconds to live."""

    role: Role
    name: HolderName | None = None
    """Who holds it: the author of what is done with it, and whose account jobs run as. None: the token's own id."""
    scope: _Groups = ()
    ttl: Annotated[int, Meta(ge=1, le=10 * 365 * 86400)] = 30 * 86400
    note: NoteText = ""


class Token(Out, frozen=True, kw_only=True):
    """A token without its secret."""

    id: str
    role: Role
    scope: tuple[str, ...]
    created: float
    expires: float
    author: str
    note: str = ""
    name: str = ""
    """Who holds it; empty: the token is known by its id."""


class TokenRow(Token, frozen=True, kw_only=True):
    """A token as it is stored: with the hash of its secret, which is never shown."""

    hash: bytes

    def __repr__(self) -> str:
        return f"TokenRow({self.id}, {self.role})"

    def shown(self) -> Token:
        """What may be shown."""
        return msgspec.convert(self, Token, from_attributes=True)


class NewToken(Out, frozen=True, kw_only=True):
    """A token with its secret: shown once, stored nowhere."""

    token: str
    view: Token


class CertificateRequest(In, frozen=True, kw_only=True):
    """A new client certificate, either for the key in ``csr`` (PEM) or with a key made here for ``name``."""

    role: Role
    name: HolderName
    csr: Annotated[str, Meta(max_length=20_000)] = ""
    scope: _Groups = ()
    ttl: Annotated[int, Meta(ge=1, le=365 * 86400)] = 86400


class NewCertificate(Out, frozen=True, kw_only=True):
    """A certificate with what is needed to use it. ``key`` is empty when the key was the caller's own."""

    serial: str
    certificate: str
    key: str
    ca: str
    expires: float


class Certificate(Out, frozen=True, kw_only=True):
    """A client certificate that was issued."""

    serial: str
    name: str
    role: Role
    scope: tuple[str, ...]
    expires: float
    author: str
    revoked: bool = False


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that is not good any more."""

    serial: str
    author: str
    since: float


class LoginWay(Out, frozen=True, kw_only=True):
    """How people log in: by which OpenID Connect provider, and as which of its clients."""

    issuer: str
    client: str
    authorize: str
    """Where a browser is sent. Empty: the provider has not been heard yet."""


class CodeRequest(In, frozen=True, kw_only=True):
    """What the provider sent a browser back with, and what only that browser knows of the sign-in."""

    code: Annotated[str, Meta(min_length=1, max_length=4096)]
    verifier: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~-]{43,128}$(?!\n)")]
    nonce: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{16,128}$(?!\n)")]
    redirect: Annotated[str, Meta(min_length=1, max_length=2048)]
    """Where it was sent back to."""

    def __repr__(self) -> str:
        return "CodeRequest()"


class RenewalRequest(In, frozen=True, kw_only=True):
    """What a sign-in goes on by."""

    renewal: Annotated[str, Meta(min_length=1, max_length=16_384)]

    def __repr__(self) -> str:
        return "RenewalRequest()"


class GivenLogin(Out, frozen=True, kw_only=True):
    """A sign-in: the provider's token, which is a bearer token here, until when, and what it is renewed by."""

    token: str
    renewal: str
    until: float

    def __repr__(self) -> str:
        return f"GivenLogin(until={self.until:.0f})"


class WhoView(Out, frozen=True, kw_only=True):
    """Who you are, and what you may do."""

    name: str
    role: Role
    scope: tuple[str, ...]
    via: str
    rights: tuple[str, ...]
