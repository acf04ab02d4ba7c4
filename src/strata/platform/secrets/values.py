"""Values of secrets, opened when somebody who may have them asks, and forgotten soon. In memory only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from strata.core.errors import Corrupt, StrataError
from strata.platform.secrets import age
from strata.platform.secrets.identities import Identities
from strata.platform.secrets.records import MOST, Secret, SecretSpec
from strata.platform.secrets.vault import Vault

KEPT = 30.0
"""Seconds for which a value stays open: nodes that boot together ask together."""
HOPELESS = 15.0
"""Seconds for which what failed is not tried again for nodes: they would all wait for it, one after another."""


class Opened(NamedTuple):
    """A value, and the stamp by which nodes say that they hold it."""

    stamp: str
    value: bytes

    def __repr__(self) -> str:
        return f"Opened({self.stamp})"


class Values:
    """Opens secrets, each once for all who ask at the same time."""

    def __init__(self, identities: Identities, vault: Vault, clock: Callable[[], float]) -> None:
        self._identities = identities
        self._vault = vault
        self._clock = clock
        self._open: dict[str, tuple[float, str, Opened]] = {}
        self._failed: dict[str, tuple[float, StrataError]] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self.stamps: dict[str, str] = {}
        """The stamp of the newest value that was seen of each secret of a Vault."""
        self.troubles: dict[str, str] = {}
        """Why secrets cannot be opened."""

    def __repr__(self) -> str:
        return f"Values({len(self._open)} open)"

    async def get(self, secret: Secret, *, anew: bool = False) -> Opened:
        """The value; ``Unavailable`` says why there is none now. ``anew``: as the source has it this moment."""
        name = secret.spec.name
        async with self._turns.setdefault(name, asyncio.Lock()):
            until, stamp, opened = self._open.get(name, (0.0, "", Opened("", b"")))
            if not anew and stamp == secret.stamp and self._clock() < until:
                return opened
            if not anew and name in self._failed and self._clock() < self._failed[name][0]:
                raise self._failed[name][1]
            try:
                opened = await asyncio.to_thread(self._read, secret)
            except StrataError as error:
                self.troubles[name] = str(error)
                self._failed[name] = (self._clock() + HOPELESS, error)
                raise
            self.troubles.pop(name, None)
            self._failed.pop(name, None)
            self._open[name] = (self._clock() + KEPT, secret.stamp, opened)
            asyncio.get_running_loop().call_later(KEPT + 1, self._tidy)
            if secret.spec.vault is not None:
                self.stamps[name] = opened.stamp
            return opened

    def stamp(self, secret: Secret) -> str:
        """What a node that holds the newest value says; empty: that is not known."""
        return secret.stamp if secret.spec.vault is None else self.stamps.get(secret.spec.name, "")

    def _tidy(self) -> None:
        """Forget what was open long enough."""
        now = self._clock()
        self._open = {name: kept for name, kept in self._open.items() if now < kept[0]}

    def forget(self, name: str) -> None:
        """The secret is another, or gone."""
        for kept in (self._open, self._failed, self.stamps, self.troubles, self._turns):
            kept.pop(name, None)

    def _read(self, secret: Secret) -> Opened:
        spec = secret.spec
        if spec.vault is not None:
            version, value = self._vault.read(spec.vault)
            return Opened(f"{secret.stamp}-{version}", value)
        return Opened(secret.stamp, self._decrypted(spec, f"secret {spec.name}"))

    def check(self, spec: SecretSpec, where: str) -> None:
        """That the service can open what was encrypted; ``Corrupt`` where it was for somebody else."""
        self._decrypted(spec, where)

    def _decrypted(self, spec: SecretSpec, where: str) -> bytes:
        value = age.decrypt(spec.age, self._identities.private(), where)
        if not value or len(value) > MOST:
            raise Corrupt(f"has not 1 to {MOST} bytes", where=where, hint="put it again")
        return value
