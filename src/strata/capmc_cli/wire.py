"""How the commands find and reach the service: settings from a file and the environment, one request over TLS.

Speaks just as much HTTP as it needs: importing a client library would be most of the time that the command takes.
"""

from __future__ import annotations

import json
import os
import socket

CONFIG = "/etc/opt/cray/capmc/capmc.json"
KEYS = ("os_key", "os_cert", "os_cacert", "os_service_url")
TIMEOUT = 900.0
"""Seconds: energy calls may take minutes."""
_PIECE = 1 << 20


class Failed(Exception):
    """The request was not submitted. The text is for people."""


class Away(Failed):
    """Nobody answers. Schedulers try again when they read these words."""

    def __init__(self, url: str, why: object) -> None:
        super().__init__(f"Could not lookup the service at {url}: {why}")


def settings(path: str = CONFIG) -> dict[str, str]:
    """Where the service is and who we are; the environment outdoes the file."""
    found: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib would be a third of the start)
            given = json.load(file)
        if not isinstance(given, dict):
            raise Failed(f"{path}: not a JSON object")
        found = {key: str(given[key]) for key in KEYS if given.get(key)}
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from None
    for key in KEYS:
        if os.environ.get(key.upper()):
            found[key] = os.environ[key.upper()]
    if not found.get("os_service_url"):
        raise Failed(f"no service: give os_service_url in {path}, or OS_SERVICE_URL in the environment")
    return found


def post(resource: str, body: bytes, chosen: dict[str, str], token: str = "") -> tuple[int, bytes]:
    """Submit a request: the HTTP status and the body of the reply."""
    return request("POST", resource, body, chosen, token)


def request(method: str, resource: str, body: bytes, chosen: dict[str, str], token: str = "") -> tuple[int, bytes]:
    """The same, by another method."""
    url = chosen["os_service_url"].rstrip("/")
    try:
        host, connection = _connect(url, chosen)
    except OSError as error:
        raise Away(url, error.strerror or error) from None
    head = (
        f"{method} {resource} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(body)}\r\n"
        + (f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n")
    )
    parts = []
    with connection:
        try:
            connection.sendall(head.encode("latin-1") + body)
            while part := connection.recv(_PIECE):
                parts.append(part)
        except OSError as error:
            if not parts:
                raise Away(url, error.strerror or error) from None
    return _read(url, b"".join(parts))


def _read(url: str, data: bytes) -> tuple[int, bytes]:
    head, found, body = data.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if not found or len(words) < 2 or not words[1].isdigit():
        raise Away(url, "the answer is not HTTP")
    for line in head.lower().split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit() and len(body) < int(value):
            raise Away(url, "the answer broke off")
    return int(words[1]), body


def _connect(url: str, chosen: dict[str, str]) -> tuple[str, socket.socket]:
    scheme, _, rest = url.partition(":")
    if scheme == "unix":
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        plain.settimeout(TIMEOUT)
        try:
            plain.connect(rest)
        except OSError:
            plain.close()
            raise
        return "localhost", plain
    if scheme != "https" or not rest.startswith("//"):
        raise Failed(f"{url}: a service is https://HOST[:PORT] or unix:PATH")
    place = rest[2:].split("/", 1)[0]
    name, _, port = place.rpartition(":") if not place.endswith("]") and ":" in place else (place, "", "443")
    if not port.isdecimal():
        raise Failed(f"{url}: not a port: {port}")
    name = name.strip("[]")
    context = _context(chosen)
    plain = socket.create_connection((name, int(port)), timeout=TIMEOUT)
    try:
        return place, context.wrap_socket(plain, server_hostname=name)
    except OSError:
        plain.close()
        raise


def _context(chosen: dict[str, str]):  # type: ignore[no-untyped-def]  # naming the type would import ssl for unix:, too
    import ssl

    try:
        context = ssl.create_default_context(cafile=chosen.get("os_cacert"))
        if chosen.get("os_cert"):
            context.load_cert_chain(chosen["os_cert"], chosen.get("os_key"))
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(chosen[key] for key in KEYS[:3] if key in chosen)
        raise Failed(f"{named}: cannot be used: {error.strerror or error}") from None
    return context
