"""Pulls an image from a registry (the OCI distribution API): manifest and blobs, each checked against its digest.

TLS is verified; plain HTTP is spoken to this machine only. A token is asked for where the registry says so, as far as
``Reach`` lets us go there, and sent to nobody else; so are redirects followed. Credentials come from a file that the
administrator keeps (``docker login`` writes such a file). What comes is bounded by what was announced, in bytes and in
time.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp
import msgspec
from yarl import URL

from strata.core.errors import BadRequest, Denied, NotFound, StrataError, Unavailable
from strata.fleet.bounded import bounded
from strata.provisioning.images import oci
from strata.provisioning.images.registry_hosts import Reach, is_here
from strata.provisioning.images.shelf import Shelf

_REFERENCE = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?)/(?P<name>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?\Z"
)
_PARAMETER = re.compile(r'([a-z_]+)="([^"]*)"')
_ACCEPT = ", ".join((*oci.MANIFESTS, *oci.INDEXES))
_TIMEOUT = aiohttp.ClientTimeout(total=120, connect=20, sock_read=60)
_SLOWEST = 64 << 10
"""Bytes of a blob in a second: what is slower is given up."""
_TRIES = 3
_HOPS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_TOKEN = 1 << 20
_TOKEN = re.compile(r"[\x21-\x7e]{1,65536}\Z")


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
        here = is_here(urlsplit(f"//{self.host}").hostname or "")
        return f"{'http' if here else 'https'}://{self.host}/v2/{self.name}/"


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    """As much of a manifest as tells whether it is an index of others."""

    media_type: str = ""
    manifests: msgspec.Raw = msgspec.Raw()


async def pull(shelf: Shelf, text: str, say: Callable[[str], None], *, most: int, logins: Path | None = None) -> str:
    """Bring an image's blobs in; its manifest's digest."""
    image = RemoteImage.parse(text)
    known = await asyncio.to_thread(_read_logins, logins)
    try:
        base = URL(image.base)
    except ValueError:
        raise BadRequest("there is no such port", where=text[:120]) from None
    proxies = {URL(proxy).host or "" for proxy in getproxies().values() if "://" in proxy}
    reach = Reach(base, proxies)
    connector = aiohttp.TCPConnector(resolver=reach)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=_TIMEOUT,
        auto_decompress=False,
        trust_env=True,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        remote = _Remote(session, image, known, reach)
        reference = image.reference
        for _ in range(4):
            say(f"fetching the manifest {reference[:80]}")
            data = await remote.manifest(reference)
            digest = await asyncio.to_thread(shelf.add_bytes, data)
            if reference.startswith("sha256:") and digest != reference:
                raise BadRequest("the registry's manifest is not the one that was asked for", where=reference[:19])
            if not _is_index(data):
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

    def __init__(
        self, session: aiohttp.ClientSession, image: RemoteImage, logins: dict[str, str], reach: Reach
    ) -> None:
        self._session = session
        self._image = image
        self._logins = logins
        self._reach = reach
        own = logins.get(image.host, "")
        self._authorization = f"Basic {own}" if own else ""

    async def manifest(self, reference: str) -> bytes:
        try:
            async with self._get(f"manifests/{reference}", _ACCEPT, _TIMEOUT) as reply:
                return await _whole(reply, oci.MOST_JSON, "manifest", self._image.host)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _away(self._image.host, error) from None

    async def blob(self, shelf: Shelf, blob: oci.Descriptor) -> None:
        limit = aiohttp.ClientTimeout(total=300 + blob.size / _SLOWEST, connect=20, sock_read=60)
        for attempt in range(1, _TRIES + 1):
            try:
                async with self._get(f"blobs/{blob.digest}", "*/*", limit) as reply:
                    if reply.content_length not in (None, blob.size):
                        raise BadRequest(
                            f"the registry offers {reply.content_length} bytes; its manifest says {blob.size}",
                            where=blob.digest[:19],
                        )
                    await _store(shelf, blob, reply)
                return
            except (aiohttp.ClientError, TimeoutError) as error:
                if attempt == _TRIES:
                    raise _away(self._image.host, error) from None
                await asyncio.sleep(attempt)

    @asynccontextmanager
    async def _get(self, path: str, accept: str, limit: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """What the registry has there, or where it sends us for it. Its token and its login stay with it."""
        url = URL(f"{self._image.base}{path}")
        asked_before = False
        for _ in range(_HOPS + 2):
            headers = {"Accept": accept}
            at_home = self._reach.is_home(url)
            if self._authorization and at_home:
                headers["Authorization"] = self._authorization
            async with self._session.get(url, headers=headers, allow_redirects=False, timeout=limit) as reply:
                if reply.status in _REDIRECTS:
                    url = self._elsewhere(url, reply.headers.get("Location", ""))
                    continue
                if reply.status == 401 and at_home and not asked_before:
                    asked_before = True
                    self._authorization = await self._token(reply.headers.get("WWW-Authenticate", ""))
                    continue
                _check(reply.status, self._image, path)
                yield reply
                return
        raise Unavailable(f"the registry sends us on more than {_HOPS} times", where=self._image.host)

    def _elsewhere(self, url: URL, location: str) -> URL:
        try:
            following = url.join(URL(location))
            self._reach.check(following)
        except ValueError:
            raise Unavailable(f"the registry sends us to {location[:100]!r}", where=self._image.host) from None
        return following

    async def _token(self, challenge: str) -> str:
        """What the registry wants to see: a token from the place that it names."""
        scheme, _, rest = challenge.partition(" ")
        said = dict(_PARAMETER.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in said:
            raise Denied("the registry wants a login", where=self._image.host, hint="give the service a login for it")
        realm = self._elsewhere(URL(self._image.base), said["realm"])
        # The registry's login is for the registry; another place that it names needs one of its own.
        login = self._logins.get(realm.authority, "")
        headers = {"Authorization": f"Basic {login}"} if login else {}
        params = {key: said[key] for key in ("service", "scope") if key in said}
        async with self._session.get(
            realm.update_query(params), headers=headers, allow_redirects=False, timeout=_TIMEOUT
        ) as reply:
            _check(reply.status, self._image, "token")
            data = await _whole(reply, _MOST_TOKEN, "token", self._image.host)
        try:
            answer = msgspec.json.decode(data, type=_Token)
        except (msgspec.MsgspecError, RecursionError):
            raise BadRequest("the registry's token cannot be read", where=self._image.host) from None
        token = answer.token or answer.access_token
        if not _TOKEN.match(token):
            raise BadRequest("the registry's token cannot be one", where=self._image.host)
        return f"Bearer {token}"


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""

    def __repr__(self) -> str:
        return "_Token()"


def _is_index(data: bytes) -> bool:
    kind = oci.parsed(data, _Kind, "manifest")
    return kind.media_type in oci.INDEXES or (not kind.media_type and bool(kind.manifests))


async def _whole(reply: aiohttp.ClientResponse, most: int, what: str, host: str) -> bytes:
    data = await bounded(reply, most)
    if data is None:
        raise BadRequest(f"the {what} is larger than {most >> 10} KiB", where=host)
    return data


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
