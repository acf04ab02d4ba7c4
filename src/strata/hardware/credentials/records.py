"""What the API shows and takes of the passwords and certificates of nodes' BMCs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.texts import PLAIN, AddressText, In, Out, SecretText, SelectText


class BmcCredentialView(Out, frozen=True, kw_only=True):
    """A credential without its secret."""

    pattern: str
    user: str
    author: str
    changed: float
    used_by: int
    """Nodes whose BMC it fits best."""
    doubt: str = ""
    """Why it is not used at present; empty: it is."""


class BmcCredentialSpec(In, frozen=True, kw_only=True):
    """A user and password for BMCs. ``pattern``: an exact address, a glob of them, or ``default``."""

    pattern: AddressText
    user: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=256)]
    password: SecretText


class RotationRequest(In, frozen=True, kw_only=True):
    """Whose BMCs get new passwords."""

    select: SelectText


class CertificateAcceptance(In, frozen=True, kw_only=True):
    """Accept the certificate with this fingerprint (SHA-256) from a BMC; empty: the next one that it shows."""

    address: AddressText
    sha256: Annotated[str, Meta(pattern=r"^([0-9A-Fa-f:]{64,95})?$(?!\n)", max_length=95)] = ""
