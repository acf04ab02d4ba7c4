"""A controller for agents under test: a real TLS server with a real CA, that can be told to behave badly."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import hashlib
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

CHUNK = 1 << 20
TOKEN = "one-time-token"


class Site:
    """A CA and a release key: what a site has before any controller runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
        self.authority = self._sign(self._name, self._key.public_key(), authority=True)
        (folder / "ca.pem").write_bytes(self.authority.public_bytes(serialization.Encoding.PEM))
        self.release_key = ed25519.Ed25519PrivateKey.generate()
        key = ec.generate_private_key(ec.SECP256R1())
        server = self._sign(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "controller")]), key.public_key())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "server.pem").write_bytes(private + server.public_bytes(serialization.Encoding.PEM))

    @property
    def ca_pem(self) -> str:
        return (self.folder / "ca.pem").read_text()

    @property
    def release_key_pem(self) -> str:
        public = self.release_key.public_key()
        return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()

    def sign_request(self, pem: str) -> tuple[str, float]:
        request = x509.load_pem_x509_csr(pem.encode())
        certificate = self._sign(request.subject, request.public_key())
        return certificate.public_bytes(
            serialization.Encoding.PEM
        ).decode(), certificate.not_valid_after_utc.timestamp()

    def release(self, image: Path, *, name: str = "demo", serial: int = 1, **changes: Any) -> dict[str, Any]:
        """A signed release of a squashfs file, whose chunk list lies beside it; `changes` are made before signing."""
        data = image.read_bytes()
        digests = b"".join(hashlib.sha256(data[at : at + CHUNK]).digest() for at in range(0, len(data), CHUNK))
        release: dict[str, Any] = {
            "name": name,
            "tag": "1",
            "serial": serial,
            "image": "sha256:" + "0" * 64,
            "squashfs": "sha256:" + hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "chunk": CHUNK,
            "chunks": "sha256:" + hashlib.sha256(digests).hexdigest(),
            "config": {"argv": ["/bin/sh", "/service"], "env": ["GREETING=hello"], "cwd": "/", "user": ""},
            **changes,
        }
        (self.folder / release["squashfs"][7:]).write_bytes(data)
        (self.folder / release["chunks"][7:]).write_bytes(digests)
        text = json.dumps(release, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        release["signature"] = base64.b64encode(self.release_key.sign(text)).decode()
        return release

    def _sign(self, subject: x509.Name, key: Any, *, authority: bool = False) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        addresses = [ipaddress.ip_address(address) for address in ("127.0.0.1", "10.0.3.2")]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            names = x509.SubjectAlternativeName([x509.IPAddress(address) for address in addresses])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


class Controller:
    """One running controller; `close` it and start another on the same port to see an agent come back."""

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        self.told_life: float | None = None  # what the node is told, where that is not the certificate's real life
        self.shown: list[int] = []  # serial numbers of the certificates that nodes came with
        self.token: str | None = TOKEN
        self.redeemed: list[str] = []
        self.exchanges: list[dict[str, Any]] = []
        self.logs: list[list[Any]] = []
        self.inventories: list[dict[str, Any]] = []
        self.hellos: list[dict[str, Any]] = []
        self.adopted = False
        self.results: dict[str, dict[str, Any]] = {}
        self.acknowledge = True
        self.faults: list[Callable[[str, bytes], bytes | None]] = []  # of an image's bytes: None breaks the connection
        self.requests: list[str] = []
        self.overlay: dict[str, Any] | None = None  # what the node is to be configured with
        self._pending: dict[str, dict[str, Any]] = {}
        self._epoch = 1
        self._count = 0
        self._newest = 0
        self._order = (0.0, 0)
        self.changed = threading.Condition()
        self._server = _Server(self, port)
        self.port = self._server.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        with self.changed:
            self._newest = 1 << 60
            self.changed.notify_all()
        self._server.cut_off()
        self._server.server_close()
        self._thread.join()

    def boot(self, urls: list[str] | None = None, node: str = "n0001") -> dict[str, Any]:
        """What a boot fragment holds."""
        return {
            "node": node,
            "generation": 7,
            "controllers": urls or [self.url],
            "ca": self.site.ca_pem,
            "token": TOKEN,
            "release_keys": [self.site.release_key_pem],
            "profile": "default@0123456789ab",
        }

    def wait(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """Until something is so; its value."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not (value := condition()):
                left = deadline - time.monotonic()
                if left <= 0:
                    states = [exchange["state"]["set"] for exchange in self.exchanges[-3:]]
                    raise AssertionError(f"not within {seconds} s; last sets {states}, last lines {self.logs[-8:]}")
                self.changed.wait(left)
            return value

    def state(self) -> dict[str, Any]:
        return self.exchanges[-1]["state"] if self.exchanges else {}

    def wait_state(self, state: str, digest: str = "") -> dict[str, Any]:
        """Until the node says that its set, of that digest if one is given, is in this state."""

        def reached() -> dict[str, Any] | None:
            found = self.state().get("set", {})
            return self.state() if found.get("state") == state and digest in ("", found["digest"]) else None

        return self.wait(reached)

    def send(self, kind: str, *, epoch: int | None = None, name: str = "", **values: Any) -> str:
        """Put a command before the agent; its id."""
        with self.changed:
            self._count += 1
            name = name or f"c{self._count}-{self.port}"
            self._pending[name] = {"id": name, "kind": kind, "epoch": epoch or self._epoch, "timeout": 60, **values}
            self.changed.notify_all()
        return name

    def do(self, kind: str, seconds: float = 60, **values: Any) -> dict[str, Any]:
        """Put a command before the agent and wait for its result."""
        name = self.send(kind, **values)
        return self.wait(lambda: self.results.get(name), seconds)

    def answer(self, path: str, body: dict[str, Any], certificate: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        with self.changed:
            self.requests.append(path)
        if path == "/agent/v1/redeem":
            with self.changed:
                if body["token"] != self.token:
                    return 403, {"title": "Refused", "detail": "the token was redeemed already"}
                self.token = None
                self.redeemed.append(body["csr"])
            return 200, self._certificate(body["csr"])
        if path == "/agent/v1/hello":
            with self.changed:
                self.hellos.append(body)
                self.changed.notify_all()
                return 200, {"adopted": self.adopted, "wait": 1}
        if certificate is None:
            return 401, {"title": "a client certificate is needed"}
        if path == "/agent/v1/renew":
            return 200, self._certificate(body["csr"])
        if path == "/agent/v1/exchange":
            with self.changed:
                self.shown.append(int(certificate["serialNumber"], 16))
            return self._exchange(body)
        if path == "/agent/v1/overlay":
            return (200, self.overlay) if self.overlay is not None else (404, {"title": "nothing is wanted"})
        with self.changed:
            if path == "/agent/v1/log":
                self.logs += body["lines"]
            elif path == "/agent/v1/inventory":
                self.inventories.append(body)
            else:
                return 404, {"title": "no such path"}
            self.changed.notify_all()
        return 200, {}

    def _certificate(self, csr: str) -> dict[str, Any]:
        pem, expires = self.site.sign_request(csr)
        return {"certificate": pem, "expires": expires if self.told_life is None else time.time() + self.told_life}

    def _exchange(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        deadline = time.monotonic() + body["wait"]
        with self.changed:
            order = (body["state"]["agent"]["started"], body["seq"])
            late = order < self._order  # a newer one overtook it on the other connection
            if not late:
                self._order = order
                self._newest += 1
                self.exchanges.append(body)
                del self.exchanges[:-1000]
            mine = self._newest
            acked = []
            for result in body["results"]:
                self.results[result["id"]] = result
                self._pending.pop(result["id"], None)
                if self.acknowledge:
                    acked.append(result["id"])
            self.changed.notify_all()
            while not late and not acked and not self._pending and self._newest == mine and time.monotonic() < deadline:
                self.changed.wait(deadline - time.monotonic())
            commands = list(self._pending.values()) if self._newest == mine and not late else []
            if commands:
                self.changed.wait(0.05)  # commands are sent again until their result is there: not in a tight loop
        return 200, {"acked": acked, "commands": commands, "wait": 20}

    def image(self, path: str, start: int, stop: int) -> bytes | None:
        """Bytes of an image, through the faults."""
        digest = path.rsplit("/", 1)[1].split(".")[0]
        with (self.site.folder / digest).open("rb") as source:
            source.seek(start)
            data: bytes | None = source.read(stop - start)
        for fault in list(self.faults):
            if data is not None:
                data = fault(path, data)
        return data


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, controller: Controller, port: int) -> None:
        self.controller = controller
        self._open: set[socket.socket] = set()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(controller.site.folder / "server.pem")
        self._context.load_verify_locations(controller.site.folder / "ca.pem")
        self._context.verify_mode = ssl.CERT_OPTIONAL
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        plain, address = super().get_request()
        return self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False), address

    def finish_request(self, request: Any, address: Any) -> None:
        self._open.add(request)
        try:
            request.do_handshake()
            super().finish_request(request, address)
        except (OSError, ValueError):
            return  # an agent went away: its own affair
        finally:
            self._open.discard(request)

    def shutdown_request(self, request: Any) -> None:
        with contextlib.suppress(OSError):
            request.close()

    def cut_off(self) -> None:
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        status, value = self.server.controller.answer(self.path, body, self.connection.getpeercert())  # type: ignore[attr-defined]
        self._reply(status, json.dumps(value).encode())

    def do_GET(self) -> None:
        if not self.connection.getpeercert():  # type: ignore[attr-defined]
            self._reply(403, b"{}")
            return
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        data = self.server.controller.image(self.path, int(first), int(last) + 1)
        if data is None:
            self.close_connection = True
            return
        whole = int(last) + 1 - int(first)
        self.send_response(206)
        self.send_header("Content-Length", str(whole))
        self.end_headers()
        self.wfile.write(data)
        if len(data) < whole:
            self.close_connection = True

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        return


@contextlib.contextmanager
def controller(folder: Path) -> Iterator[Controller]:
    """A running controller of a new site."""
    running = Controller(Site(folder))
    try:
        yield running
    finally:
        running.close()
