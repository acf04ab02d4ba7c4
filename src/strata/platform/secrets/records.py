"""Secrets as they are kept and shown: ciphertext, whom it is for, and which version. Values are in none of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.texts import NAME, PLAIN, In, Out, SelectText
from strata.platform.scopes import check_scope

MOST = 64 * 1024
"""Bytes of a value."""
_AGE = r"^(-----BEGIN AGE ENCRYPTED FILE-----\n[A-Za-z0-9+/=\n]+\n-----END AGE ENCRYPTED FILE-----\n?)?$(?!\n)"
_PATH = r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$(?!\n)"

SecretNameText = Annotated[str, Meta(pattern=NAME, max_length=63)]
AgeText = Annotated[str, Meta(pattern=_AGE, max_length=128 * 1024)]
Owner = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class VaultPlace(In, frozen=True, kw_only=True):
    """Where a Vault keeps the value: a path in its key-value store (version 2), and the field there."""

    path: Annotated[str, Meta(pattern=_PATH, max_length=255)]
    field: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=128)] = "value"
    mount: Annotated[str, Meta(pattern=_PATH, max_length=128)] = "secret"


class SecretSpec(In, frozen=True, kw_only=True):
    """Whom a secret is for, who may read it there, and its value: encrypted for the service, or in a Vault."""

    select: SelectText
    age: AgeText = ""
    """The value, encrypted with age for the service's recipient, armoured."""
    vault: VaultPlace | None = None
    uid: Owner = 0
    gid: Owner = 0
    """Who owns the file on a node. With a group other than 0, that group may read it."""


class SecretEntry(SecretSpec, frozen=True, kw_only=True):
    """The same, with its name: as the repository says it."""

    name: SecretNameText


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as it is kept."""

    spec: SecretEntry
    version: int
    stamp: str
    """Random, another with every new value or owner: what nodes say that they hold."""
    changed: float
    author: str

    def __repr__(self) -> str:
        return f"Secret({self.spec.name}, version {self.version})"


class SecretIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """An age identity of the service; its private half is sealed for the record's key."""

    recipient: str
    sealed: bytes
    made: float
    author: str

    def __repr__(self) -> str:
        return f"SecretIdentity({self.recipient})"


class NewValue(In, frozen=True, kw_only=True):
    """Another value of a secret that is there."""

    age: Annotated[str, Meta(pattern=_AGE, min_length=1, max_length=128 * 1024)]


class NewIdentity(In, frozen=True, kw_only=True):
    """``new``: make another identity although there is one; older ones still open what was encrypted for them."""

    new: bool = False


class IdentityView(Out, frozen=True, kw_only=True):
    """For whom secrets are encrypted."""

    recipient: str
    made: float
    author: str
    older: tuple[str, ...] = ()
    """Recipients of before, whose secrets still open."""


class SecretView(Out, frozen=True, kw_only=True):
    """A secret, without its value."""

    name: str
    select: str
    nodes: int
    """How many nodes it is for now."""
    source: str
    """``age``, or where the Vault keeps it."""
    version: int
    changed: float
    author: str
    uid: int
    gid: int
    trouble: str = ""
    """Why it cannot be given out now."""


class SecretStatus(Out, frozen=True, kw_only=True):
    """Which nodes hold which version, as they say themselves. Nodes are folded."""

    name: str
    version: int
    nodes: int
    current: str
    """Have the newest value."""
    older: str
    """Have an earlier one."""
    missing: str
    """Are up and have none."""
    away: str
    """Are not heard, or have not said since the service began."""
    leftover: str
    """Still have it, though it is not for them any more."""
    counts: Mapping[str, int]
    trouble: str = ""


def check(spec: SecretSpec, where: str) -> None:
    """Raise ``BadRequest`` for what cannot be a secret."""
    check_scope(spec.select, f"{where}: select")
    if bool(spec.age) == (spec.vault is not None):
        raise BadRequest(
            "has its value either in 'age' or in 'vault'", where=where, hint="strata secret encrypt writes the document"
        )
    if spec.vault is not None and ".." in f"{spec.vault.path}/{spec.vault.mount}".split("/"):
        raise BadRequest("is no path in a Vault", where=f"{where}: vault")
