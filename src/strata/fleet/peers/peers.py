"""The other controllers of the store: who is there, where each is reached, and whether it belongs to the same site.

Each controller with a front door has a record ``peer/<controller>`` that ends with its lease. Controllers believe each
other by the certificates of one authority; one that came with an authority of its own is not spoken to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import msgspec

from strata.fleet.settings import is_front_url
from strata.store.followed import Followed
from strata.store.protocol import Store

log = logging.getLogger(__name__)

PREFIX = "peer/"


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A controller, as it introduces itself."""

    controller: str
    url: str
    """``https://10.77.0.1:8443``: its front door, as nodes and other controllers reach it."""
    fingerprint: str
    """Of the authority whose certificates it shows and believes."""
    signing: str = ""
    """Of the key that it signs releases with; empty: it signs none."""
    sealing: str = ""
    """Of the key that it seals secrets in the store with."""


class Peers:
    """Follows who is there. ``start``, ``introduce`` when the front door is open, then ``stop``."""

    def __init__(
        self,
        store: Store,
        me: Peer,
        *,
        announce: Callable[[str, bytes], None],
        opens: Collection[str] = (),
        compared: Callable[[Peer, str], None] = lambda peer, trouble: None,
    ) -> None:
        """``announce``: keeps a record in the store for as long as this controller lives. ``opens``: the keys by which
        this one opens sealed secrets. ``compared``: takes every
        controller that comes, and in what it does not fit to this one and what to do; empty: it does, or it went."""
        self.me = me
        self._announce = announce
        self._opens = opens
        self._compared = compared
        self._found: dict[str, Peer] = {}
        followed = Followed(store, PREFIX, self._take, self._found.clear)
        self.start = followed.start
        self.stop = followed.stop  # the own record ends with the lease

    def introduce(self) -> None:
        """Tell the others where this one is: its front door is open."""
        self._announce(f"{PREFIX}{self.me.controller}", msgspec.msgpack.encode(self.me))

    def others(self) -> tuple[Peer, ...]:
        """The controllers that are there and have the same authority, by name; without this one."""
        return tuple(peer for _, peer in sorted(self._found.items()) if peer.fingerprint == self.me.fingerprint)

    def get(self, controller: str) -> Peer | None:
        """One of the others; None: it is not there, or cannot be believed."""
        peer = self._found.get(controller)
        return peer if peer is not None and peer.fingerprint == self.me.fingerprint else None

    def urls(self) -> tuple[str, ...]:
        """Where nodes find a controller: this one first, then the others."""
        return tuple(dict.fromkeys((self.me.url, *(peer.url for peer in self.others()))))

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(PREFIX)
        before = self._found.pop(name, None)
        if value is None:
            if before is not None:
                self._compared(before, "")  # whom nobody can compare disagrees with nobody
            return
        try:
            peer = msgspec.msgpack.decode(value, type=Peer)
        except msgspec.MsgspecError:
            log.error("a controller introduces itself unreadably", extra={"controller": name})
            return
        if name == self.me.controller or peer.controller != name or not is_front_url(peer.url):
            return
        self._found[name] = peer
        if peer != before:
            self._compared(peer, self._trouble(peer))

    def _trouble(self, peer: Peer) -> str:
        """In what the other does not fit to this one, all of it, and what to do."""
        mine, found = self.me.controller, {}
        if peer.fingerprint != self.me.fingerprint:
            found["ca/"] = (
                f"has a certificate authority that nodes of {mine} do not trust, so that this controller does not "
                "talk to it"
            )
        if peer.signing and self.me.signing and peer.signing != self.me.signing:
            found["signing/"] = f"signs images with a key that nodes of {mine} do not trust"
        if peer.sealing and peer.sealing not in self._opens:
            found["secrets.key"] = f"seals passwords with a key that {mine} does not have"
        if not found:
            return ""
        return (
            f"controller {peer.controller} {'; '.join(found.values())}. Stop the one that is new here, copy "
            f"{', '.join(found)} into its state directory from the other, and start it again"
        )
