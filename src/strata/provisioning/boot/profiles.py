"""Boot profiles: what a node's desire for ``minos`` names. A minimal OS, kernel parameters, and the way it gets there.

Records in the store, kept in memory. The profile ``default`` is always there; what it says of parameters holds for the
other profiles too, unless they say something else of the same one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping

import msgspec

from strata.core.errors import BadRequest, NotFound, Refused
from strata.core.redact import HIDDEN, redact
from strata.core.units import many
from strata.provisioning.boot.records import Profile
from strata.provisioning.minos.artefacts import LATEST
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

PREFIX = "boot/profile/"
DEFAULT = "default"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_MINOS = re.compile(rf"(?:{LATEST}|[0-9a-f]{{12}})\Z")


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


@functools.lru_cache(maxsize=256)  # asked for at every boot, and nodes share a few profiles
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


_UNCHANGED = Profile()
"""The profile ``default`` as long as nobody has changed it."""


class Profiles:
    """All profiles."""

    def __init__(self, store: Store, ledger: Ledger, minos: Callable[[str, str], str]) -> None:
        """``minos``: from ``latest`` or a digest, and an architecture (empty: whichever the digest is for), to the
        digest of a minimal OS that is there; ``NotFound``, and ``Refused`` where it is for another architecture."""
        self._minos = minos
        self.records = Records(
            store, ledger, Profile, kind="boot-profile", prefix=PREFIX, listed_by="strata boot profile list"
        )
        self.start, self.stop = self.records.start, self.records.stop
        self.revision = self.records.revision
        """The store's revision of a profile; 0: nobody changed it yet."""

    @property
    def all(self) -> Mapping[str, Profile]:
        """Every profile by its name."""
        return {DEFAULT: _UNCHANGED, **self.records.all}

    def get(self, name: str) -> Profile:
        """One profile."""
        return self.records.get(name) if name != DEFAULT else self.records.find(DEFAULT) or _UNCHANGED

    def parameters(self, name: str) -> str:
        """The whole command line of a profile."""
        own = self.get(name).parameters
        return layered(BUILT_IN, self.get(DEFAULT).parameters, own if name != DEFAULT else "")

    def minos(self, name: str, arch: str) -> str:
        """The digest of the minimal OS that machines of an architecture boot by a profile now; ``NotFound`` if there is
        none, ``Refused`` if it names one that is not for them."""
        return self._minos(self.get(name).minos, arch)

    def is_by_medium(self, name: str) -> bool:
        """Whether nodes boot the profile from a medium only; of one that is not there, no."""
        found = self.records.find(name)
        return found is not None and found.method == "media"

    def label(self, name: str, arch: str) -> str:
        """What a node of an architecture says of itself that was booted with the profile as it is now:
        ``name@<12 hex>``. Another minimal OS or other parameters make another label."""
        content = f"{self.minos(name, arch)} {self.parameters(name)}"
        return f"{name}@{hashlib.sha256(content.encode()).hexdigest()[:12]}"

    async def put(self, name: str, profile: Profile, author: str, expected: int | None = None) -> None:
        """Create or replace; ``expected`` is the revision that it must have."""
        self.check(name, profile)
        await self.records.put(author, name, profile, expected=expected, detail=msgspec.to_builtins(profile))

    def check(self, name: str, profile: Profile) -> None:
        """Raise ``BadRequest`` for a profile that nodes could not boot by."""
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

    async def delete(self, name: str, author: str, *, users: int = 0, expected: int | None = None) -> None:
        """Remove a profile that nobody wants. ``users``: the nodes that do."""
        if name == DEFAULT:
            raise Refused("nodes with no other profile boot it", by="profile", where=name, hint="change it")
        self.get(name)
        if users:
            raise Refused(
                f"it is set on {many(users, 'node')}",
                by="desires",
                where=name,
                hint=f"strata node list want:minos={name} shows them",
            )
        await self.records.delete(author, name, expected=expected)
