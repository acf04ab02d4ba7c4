"""A host of git repositories that speaks https: git's own http-backend behind a small server, whose certificate is the
test's. It can also send whoever asks somewhere else."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strata.fleet.access.authority import Authority


class GitHost(http.server.ThreadingHTTPServer):
    """``root``: where the repositories are."""

    def __init__(self, root: Path, certificates: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.sends_to = ""
        """Where everybody is sent; empty: they are answered."""
        self.asked: list[str] = []
        self.daemon_threads = True
        if certificates is not None:
            authority = Authority.open(certificates)
            authority.renew_server(["127.0.0.1"])
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*authority.server_paths)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.ca = authority.certificate_path

    def url(self, scheme: str, path: str) -> str:
        return f"{scheme}://127.0.0.1:{self.server_address[1]}/{path}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: GitHost

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.asked.append(self.path)
        if self.server.sends_to:
            self.send_response(302)
            self.send_header("Location", self.server.sends_to + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        said = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False).stdout
        head, _, content = said.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def git_host(root: Path, certificates: Path | None = None) -> Iterator[GitHost]:
    """A host of the repositories below ``root``. ``certificates``: where its authority is; None: it speaks http."""
    host = GitHost(root, certificates)
    thread = threading.Thread(target=host.serve_forever, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.shutdown()
        thread.join()
        host.server_close()
