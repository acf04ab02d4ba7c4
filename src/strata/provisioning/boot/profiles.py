"""Boot profiles: what a node's desire for ``minos`` names. A minimal OS, kernel parameters, and the way it gets there.

Records in the store, kept in memory. The profile ``default`` is always there; what it says of parameters holds for the
other profiles too, unless they say something else of the same one.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.provisioning.boot.parameters import BUILT_IN, check_parameters, layered
from strata.provisioning.minos.artefacts import LATEST
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Put, Store

log = logging.getLogger(__name__)

PREFIX = "boot/profile/"
DEFAULT = "default"

Method = Literal["ipxe", "http", "media"]
"""How a machine is started: its PXE firmware, its UEFI HTTP boot, or a medium that its controller inserts."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_MINOS = re.compile(rf"(?:{LATEST}|[0-9a-f]{{12}})\Z")


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One way to boot."""

    minos: Annotated[str, Meta(description="The minimal OS: 12 digits of its digest, or `latest`.")] = LATEST
    parameters: Annotated[str, Meta(description="Kernel parameters, over those of `default`; `-name` removes one.")] = (
        ""
    )
    method: Annotated[Method, Meta(description="How machines are started.")] = "ipxe"
    description: Annotated[str, Meta(max_length=500)] = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Profile).decode


class Profiles:
    """All profiles."""

    def __init__(self, store: Store, ledger: Ledger, minos: Callable[[str, str], str]) -> None:
        """``minos``: from ``latest`` or a digest, and an architecture (empty: whichever the digest is for), to the
        digest of a minimal OS that is there; ``NotFound``, and ``Refused`` where it is for another architecture."""
        self._store = store
        self._ledger = ledger
        self._minos = minos
        self._profiles: dict[str, Profile] = {DEFAULT: Profile()}
        self._followed = Followed(store, PREFIX, self._take, self._forget_all)

    async def start(self) -> None:
        """Load the profiles and follow them."""
        await self._followed.start()

    async def stop(self) -> None:
        """End the watch."""
        await self._followed.stop()

    @property
    def all(self) -> Mapping[str, Profile]:
        """Every profile by its name."""
        return self._profiles

    def get(self, name: str) -> Profile:
        """One profile."""
        try:
            return self._profiles[name]
        except KeyError:
            raise NotFound(
                f"no such boot profile: {name[:80]}", where="profile", hint="list them with: strata boot profile list"
            ) from None

    def parameters(self, name: str) -> str:
        """The whole command line of a profile."""
        own = self.get(name).parameters
        return layered(BUILT_IN, self._profiles[DEFAULT].parameters, own if name != DEFAULT else "")

    def minos(self, name: str, arch: str) -> str:
        """The digest of the minimal OS that machines of an architecture boot by a profile now; ``NotFound`` if there is
        none, ``Refused`` if it names one that is not for them."""
        return self._minos(self.get(name).minos, arch)

    def is_by_medium(self, name: str) -> bool:
        """Whether nodes boot the profile from a medium only; of one that is not there, no."""
        found = self._profiles.get(name)
        return found is not None and found.method == "media"

    def label(self, name: str, arch: str) -> str:
        """What a node of an architecture says of itself that was booted with the profile as it is now:
        ``name@<12 hex>``. Another minimal OS or other parameters make another label."""
        content = f"{self.minos(name, arch)} {self.parameters(name)}"
        return f"{name}@{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    async def revision(self, name: str) -> int:
        """The store's revision of a profile; 0: nobody changed it yet."""
        entry = await self._store.get(PREFIX + name)
        return entry.modified if entry else 0

    async def put(self, name: str, profile: Profile, author: str, expected: int | None = None) -> None:
        """Create or replace; ``expected`` is the revision that it must have."""
        if not _NAME.match(name):
            raise BadRequest(
                "a profile's name is 1 to 63 letters, digits, '-', '_' and '.', such as debug", where=repr(name)[:80]
            )
        if not _MINOS.match(profile.minos):
            raise BadRequest(
                "expected 'latest' or the 12 digits that 'strata minos list' shows, such as 0123456789ab",
                where=f"minos {profile.minos[:80]!r}",
            )
        if profile.minos != LATEST:
            try:
                self._minos(profile.minos, "")
            except NotFound as error:  # nodes would have nothing to boot
                raise BadRequest(error.detail, where=f"minos {profile.minos}", hint="strata minos list") from None
        check_parameters(profile.parameters)
        await self._commit(author, "boot-profile.put", name, profile, expected)

    async def delete(self, name: str, author: str, *, users: int = 0, expected: int | None = None) -> None:
        """Remove a profile that nobody wants. ``users``: the nodes that do."""
        if name == DEFAULT:
            raise Refused("it is what nodes boot that want nothing else", by="profile", where=name, hint="change it")
        self.get(name)
        if users:
            raise Refused(
                f"{users} nodes are wanted to boot it",
                by="desires",
                where=name,
                hint=f"strata node list want:minos={name} shows them",
            )
        await self._commit(author, "boot-profile.delete", name, None, expected)

    async def _commit(self, author: str, action: str, name: str, profile: Profile | None, expected: int | None) -> None:
        key = PREFIX + name
        now = await self.revision(name)
        if expected is not None and expected != now:
            raise Conflict("it has changed since", revision=now, where=f"boot profile {name}", hint="look at it again")
        value = None if profile is None else _encode(profile)
        detail = {} if profile is None else msgspec.to_builtins(profile)
        op = Delete(key) if value is None else Put(key, value)
        revision = await self._ledger.commit(author, action, name, [op], {key: now}, detail)
        self._followed.wrote(key, value, revision)

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(PREFIX)
        if value is None:
            self._profiles.pop(name, None)
            if name == DEFAULT:
                self._profiles[DEFAULT] = Profile()
            return
        try:
            self._profiles[name] = _decode(value)
        except msgspec.DecodeError:
            log.error("a boot profile cannot be read", extra={"profile": name})

    def _forget_all(self) -> None:
        self._profiles.clear()
        self._profiles[DEFAULT] = Profile()
