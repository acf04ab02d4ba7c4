"""Pulls an image from a registry (the OCI distribution API): manifest and blobs, each checked against its digest.

TLS is verified; plain HTTP is spoken to this machine only. A token is asked for where the registry says so, and sent to
nobody else. Credentials come from a file that the administrator keeps (``docker login`` writes such a file).
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from strata.core.errors import BadRequest, Denied, NotFound, StrataError, Unavailable
from strata.provisioning.images import oci
from strata.provisioning.images.shelf import Shelf

_REFERENCE = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?\Z"
)
_PARAMETER = re.compile(r'([a-z_]+)="([^"]*)"')
_ACCEPT = ", ".join((*oci.MANIFESTS, *oci.INDEXES))
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=20, sock_read=60)
_TRIES = 3


class _Login(msgspec.Struct, frozen=True):
    auth: str

    def __repr__(self) -> str:
        return "_Login()"


class _Logins(msgspec.Struct, frozen=True):
    auths: dict[str, _Login]


class RemoteImage(msgspec.Struct, frozen=True):
    """``host[:port]/name[:tag][@digest]``."""

    host: str
    name: str
    reference: str

    @classmethod
    def parse(cls, text: str) -> RemoteImage:
        """Raises ``BadRequest``."""
        found = _REFERENCE.match(text) if len(text) <= 500 else None
        if found is None:
            raise BadRequest(
                "a registry's image is HOST[:PORT]/NAME[:TAG][@sha256:...]", where=repr(text)[:200], hint="all in full"
            )
        return cls(found["host"], found["name"], found["digest"] or found["tag"] or "latest")

    @property
    def base(self) -> str:
        """Where its registry is."""
        return f"{'http' if _is_here(self.host) else 'https'}://{self.host}/v2/{self.name}/"


async def pull(shelf: Shelf, text: str, say: Callable[[str], None], *, most: int, logins: Path | None = None) -> str:
    """Bring an image's blobs in; its manifest's digest."""
    image = RemoteImage.parse(text)
    known = await asyncio.to_thread(_read_logins, logins)
    async with aiohttp.ClientSession(timeout=_TIMEOUT, auto_decompress=False, trust_env=True) as session:
        remote = _Remote(session, image, known)
        reference = image.reference
        for _ in range(4):
            say(f"fetching the manifest {reference[:80]}")
            data = await remote.manifest(reference)
            digest = await asyncio.to_thread(shelf.add_bytes, data)
            if reference.startswith("sha256:") and digest != reference:
                raise BadRequest("the registry's manifest is not the one that was asked for", where=reference[:19])
            kind = msgspec.json.decode(data).get("mediaType", "") if data.startswith(b"{") else ""
            if kind not in oci.INDEXES and b'"manifests"' not in data[:4096]:
                break
            reference = oci.choose(oci.parse_index(data)).digest
        manifest = oci.parse_manifest(data)
        left = most
        for number, blob in enumerate((manifest.config, *manifest.layers)):
            left -= blob.size
            if left < 0:
                raise BadRequest(f"more than {most >> 20} MiB", where=text[:120])
            if shelf.blob(blob.digest).exists():
                continue
            say(f"fetching {'the configuration' if not number else f'layer {number}'}: {blob.size / 1e6:.1f} MB")
            await remote.blob(shelf, blob)
        return digest


class _Remote:
    """One repository of a registry."""

    def __init__(self, session: aiohttp.ClientSession, image: RemoteImage, logins: dict[str, str]) -> None:
        self._session = session
        self._image = image
        self._logins = logins
        own = logins.get(image.host, "")
        self._authorization = f"Basic {own}" if own else ""

    async def manifest(self, reference: str) -> bytes:
        async with self._get(f"manifests/{reference}", _ACCEPT) as reply:
            data = await reply.content.read(oci.MOST_JSON + 1)
            while len(data) <= oci.MOST_JSON and (more := await reply.content.read(oci.MOST_JSON)):
                data += more
        if len(data) > oci.MOST_JSON:
            raise BadRequest("the manifest is too large", where=self._image.host)
        return data

    async def blob(self, shelf: Shelf, blob: oci.Descriptor) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                async with self._get(f"blobs/{blob.digest}", "*/*") as reply:
                    await _store(shelf, blob, reply)
                return
            except (aiohttp.ClientError, TimeoutError) as error:
                if attempt == _TRIES:
                    raise _away(self._image.host, error) from None
                await asyncio.sleep(attempt)

    @asynccontextmanager
    async def _get(self, path: str, accept: str) -> AsyncIterator[aiohttp.ClientResponse]:
        url = urljoin(self._image.base, path)
        for asked_before in (False, True):
            headers = {"Accept": accept}
            if self._authorization:
                headers["Authorization"] = self._authorization
            try:
                async with self._session.get(url, headers=headers, allow_redirects=True, max_redirects=3) as reply:
                    if reply.status == 401 and not asked_before:
                        self._authorization = await self._token(reply.headers.get("WWW-Authenticate", ""))
                        continue
                    _check(reply.status, self._image, path)
                    yield reply
                    return
            except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
                raise _away(self._image.host, error) from None

    async def _token(self, challenge: str) -> str:
        """What the registry wants to see: a token from the place that it names, over TLS."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() != "bearer":
            raise Denied("the registry wants a login", where=self._image.host, hint="give the service a login for it")
        said = dict(_PARAMETER.findall(rest))
        realm = urlsplit(said.get("realm", ""))
        if realm.scheme != "https" and not _is_here(realm.netloc):
            raise Denied("the registry sends us for a token to a place without TLS", where=self._image.host)
        # The registry's login is for the registry; another place that it names needs one of its own.
        login = self._logins.get(realm.netloc, "")
        headers = {"Authorization": f"Basic {login}"} if login else {}
        params = {key: said[key] for key in ("service", "scope") if key in said}
        async with self._session.get(said["realm"], params=params, headers=headers, allow_redirects=False) as reply:
            _check(reply.status, self._image, "token")
            data = await reply.content.read(1 << 20)
        try:
            answer = msgspec.json.decode(data, type=dict[str, object])
        except msgspec.MsgspecError:
            raise BadRequest("the registry's token cannot be read", where=self._image.host) from None
        return f"Bearer {answer.get('token') or answer.get('access_token') or ''}"


async def _store(shelf: Shelf, blob: oci.Descriptor, reply: aiohttp.ClientResponse) -> None:
    """Write what comes, in a thread that reads from a pipe."""
    reading, writing = os.pipe()

    def receive() -> None:
        with os.fdopen(reading, "rb") as source:  # closed when it refuses: whoever writes must not wait for ever
            shelf.add_stream(source, expect=blob.digest, most=blob.size)

    task = asyncio.create_task(asyncio.to_thread(receive))
    try:
        async for piece in reply.content.iter_chunked(1 << 20):
            await asyncio.to_thread(_write_all, writing, piece)
    except BrokenPipeError:
        pass  # the other end says why
    finally:
        os.close(writing)
        await asyncio.wait([task])
        refused = task.exception()
    if refused is not None:
        raise refused


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _check(status: int, image: RemoteImage, what: str) -> None:
    if status == 200:
        return
    where = f"{image.host}/{image.name}"
    if status in (401, 403):
        raise Denied("the registry does not let us in", where=where, hint="give the service a login for it")
    if status == 404:
        raise NotFound("the registry has no such image", where=f"{where} {what[:80]}")
    raise Unavailable(f"the registry answered {status}", where=f"{where} {what[:80]}")


def _away(host: str, error: Exception) -> StrataError:
    cause = getattr(error, "os_error", error)
    reason = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return Unavailable(f"the registry cannot be reached: {reason}", where=host)


def _read_logins(path: Path | None) -> dict[str, str]:
    """Logins (base64 of ``user:password``) by host, from a file as ``docker login`` writes it."""
    if path is None or not path.is_file():
        return {}
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Logins)
        for login in found.auths.values():
            base64.b64decode(login.auth, validate=True)
    except (msgspec.MsgspecError, ValueError):
        raise BadRequest("is not a file of logins as 'docker login' writes it", where=str(path)) from None
    return {host: login.auth for host, login in found.auths.items()}


def _is_here(host: str) -> bool:
    bare = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"
