"""Certificates of controllers that no authority signed: remembered when first seen, and not exchanged unnoticed."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Protocol

import aiohttp

from strata.core.errors import DeviceError


class Pins(Protocol):
    """Remembers which certificate a host showed, as a SHA-256 in hexadecimal. ``put`` takes effect at once."""

    def get(self, host: str) -> str | None:
        """The fingerprint that ``host`` (with port) is known by."""
        ...

    def put(self, host: str, sha256: str) -> None:
        """``host`` showed this one, and is known by it from now on."""
        ...


class Pinned(aiohttp.Fingerprint):
    """Checks a new connection to ``host`` before anything is sent over it."""

    def __init__(self, pins: Pins, host: str) -> None:
        super().__init__(bytes(32))  # stands for none: what is expected is looked up at each check
        self._pins = pins
        self._host = host

    def check(self, transport: asyncio.Transport) -> None:
        """Remember the first certificate; raise ``aiohttp.ServerFingerprintMismatch`` for another one."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        shown = hashlib.sha256(certificate).hexdigest()
        known = self._pins.get(self._host)
        if known is None:
            self._pins.put(self._host, shown)
        elif known != shown:
            host, _, port = self._host.rpartition(":")
            raise aiohttp.ServerFingerprintMismatch(bytes.fromhex(known), bytes.fromhex(shown), host, int(port))


def changed(host: str, wrong: aiohttp.ServerFingerprintMismatch, *, node: str, request: str) -> DeviceError:
    """The error that says which certificate was known, which was shown, and how to accept it."""
    return DeviceError(
        f"its certificate has changed: sha256 {wrong.expected.hex()} was known, {wrong.got.hex()} is shown",
        node=node,
        request=request,
        hint=f"if it was renewed or the controller replaced: strata hardware credentials accept-certificate {host}",
    )
