"""How fast nodes get images: through our front door, and through a plain nginx with the same TLS, one after the other.

    .venv/bin/python bench/boot_images.py --json

The same file, the same client (curl with a node's certificate), the same run, in turns, either first as often.
``image_ratio_to_nginx`` is ours over theirs for one client, the median of the turns. Then 1, 2, 4 and 8 clients at once
at our door: bytes a second, and the processor time of nginx for each fetch, which should stay what it is for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

from measure import Figures, arguments, cpu_seconds, main, say, scratch, show

from strata.api.nginx import Nginx, find_nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.web_account import web_account
from strata.core.host.private_file import write_private
from strata.fleet.access.authority import Authority
from strata.provisioning.images.shelf import Shelf

CLIENTS = (1, 2, 4, 8)
_EACH = 3
"""Fetches of one client on one connection."""


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="size of the image")
    parser.add_argument("--turns", type=int, default=8, help="of each server")
    given = parser.parse_args()
    show(measure(megabytes=given.megabytes, turns=given.turns, quiet=given.json), as_json=given.json)


def measure(*, megabytes: int = 100, turns: int = 8, quiet: bool = True) -> Figures:
    """``image_ratio_to_nginx``, ``image_mb_per_s``, ``nginx_mb_per_s`` and the same for more clients."""
    return asyncio.run(_measure(megabytes, turns, quiet))


async def _measure(megabytes: int, turns: int, quiet: bool) -> Figures:
    with scratch() as directory:
        directory.chmod(0o711)
        site = _Site(directory, megabytes * 1_000_000)
        async with site.ours() as ours, site.plain() as plain:
            rates: dict[str, list[float]] = {"ours": [], "plain": []}
            for turn in range(turns + 1):
                order = (("ours", ours), ("plain", plain))
                for name, (url, pid) in order if turn % 2 else order[::-1]:
                    seconds, _ = await site.fetch(url, 1, pid)
                    if turn:  # the first warms up
                        rates[name].append(site.size * _EACH / seconds / 1e6)
            mine, theirs = statistics.median(rates["ours"]), statistics.median(rates["plain"])
            say(f"one client: {mine:.0f} MB/s, plain nginx {theirs:.0f} MB/s", quiet=quiet)
            ratios = [one / other for one, other in zip(rates["ours"], rates["plain"], strict=True)]
            figures: Figures = {
                "image_ratio_to_nginx": round(statistics.median(ratios), 3),
                "image_mb_per_s": round(mine, 1),
                "nginx_mb_per_s": round(theirs, 1),
            }
            for count in CLIENTS:
                seconds, cpu = await site.fetch(ours[0], count, ours[1])
                figures[f"image_mb_per_s_{count}_clients"] = round(site.size * _EACH * count / seconds / 1e6, 1)
                figures[f"image_cpu_ms_per_fetch_{count}_clients"] = round(cpu * 1000 / (count * _EACH), 1)
            return figures


class _Site:
    """One image, an authority, and the two servers."""

    def __init__(self, directory: Path, size: int) -> None:
        self.directory = directory
        self.size = size
        self.ca = Authority.open(directory / "ca")
        self.ca.renew_server(["localhost", "127.0.0.1"])
        shelf = Shelf(directory / "images")
        account = web_account()
        shelf.open(readers=account.pw_gid if account else None)
        data = os.urandom(size)
        self.name = f"{hashlib.sha256(data).hexdigest()}.squashfs"
        self.file = directory / "images/squashfs" / self.name
        self.file.write_bytes(data)
        node = self.ca.issue("n0001", "node", [], 3600)
        self.chain = directory / "node.pem"
        write_private(self.chain, node.certificate + node.key)

    @contextlib.asynccontextmanager
    async def ours(self) -> AsyncIterator[tuple[str, int]]:
        certificate, key = self.ca.server_paths
        port = free_port("127.0.0.1")
        door = FrontDoor(
            directory=self.directory / "nginx",
            host="127.0.0.1",
            port=port,
            upstream=self.directory / "front.sock",
            secret="nobody",
            certificate=certificate,
            key=key,
            ca=self.ca.certificate_path,
            images=self.directory / "images",
        )
        nginx = Nginx(door)
        await nginx.start()
        try:
            assert nginx.pid is not None
            yield f"https://127.0.0.1:{port}/images/squashfs/{self.name}", nginx.pid
        finally:
            await nginx.stop()

    @contextlib.asynccontextmanager
    async def plain(self) -> AsyncIterator[tuple[str, int]]:
        certificate, key = self.ca.server_paths
        port = free_port("127.0.0.1")
        place = self.directory / "plain"
        place.mkdir()
        config = place / "nginx.conf"
        config.write_text(
            f"""daemon off; user root; worker_processes 2; pid {place}/pid; error_log {place}/log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off; sendfile on; tcp_nopush on; default_type application/octet-stream; keepalive_timeout 75s;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
    location / {{ root {self.file.parent}; }}
  }}
}}
"""
        )
        # A session of its own, as ours has: the kernel shares processors out by session.
        process = await asyncio.create_subprocess_exec(
            find_nginx(), "-e", str(place / "log"), "-c", str(config), start_new_session=True
        )
        try:
            for _ in range(500):
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    await writer.wait_closed()
                    break
                await asyncio.sleep(0.02)
            yield f"https://127.0.0.1:{port}/{self.name}", process.pid
        finally:
            process.terminate()
            await process.wait()

    async def fetch(self, url: str, clients: int, master: int) -> tuple[float, float]:
        """Seconds that so many clients took together, and processor seconds of nginx's workers."""
        command = ["curl", "-sf", "--http1.1", "--cacert", str(self.ca.certificate_path), "--cert", str(self.chain)]
        command += [part for turn in range(_EACH) for part in ("-o", "/dev/null", f"{url}?{turn}")]
        before, began = _workers_cpu(master), time.perf_counter()
        running = [await asyncio.create_subprocess_exec(*command) for _ in range(clients)]
        codes = [await process.wait() for process in running]
        seconds = time.perf_counter() - began
        if any(codes):
            raise RuntimeError(f"curl failed: {codes}")
        return seconds, _workers_cpu(master) - before


def _workers_cpu(master: int) -> float:
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return sum(cpu_seconds(int(pid)) for pid in children)


if __name__ == "__main__":
    main(run)
