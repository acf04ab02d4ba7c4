"""nginx's server block for kernels and initrds: plain HTTP on the boot network, nothing secret in it. Pure text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning.minos.artefacts import INITRD, KERNEL

_SAFE = re.compile(r"/[A-Za-z0-9_./@+: -]+\Z")


class BootFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Where kernels and initrds are served, and from which folder."""

    hosts: tuple[str, ...]
    """Our addresses on the boot networks."""
    port: int
    root: Path
    """``STATE/minos``: a folder per minimal OS, which nginx's workers can read."""


def server_block(files: BootFiles) -> str:
    """The ``server`` block. Whatever is not a kernel or an initrd of a digest is not there."""
    if not files.hosts:
        raise BadRequest("no address to serve kernels on", where="boot networks")
    if not _SAFE.match(str(files.root)):
        raise BadRequest(
            "nginx needs an absolute path of plain characters",
            where=repr(str(files.root))[:120],
            hint="use a state directory with letters, digits and _./@+- only",
        )
    return f"""  limit_conn_zone $binary_remote_addr zone=strata_boot:10m;
  server {{
{_listen(files.hosts, files.port)}
    root "{files.root}";
    sendfile on;
    tcp_nopush on;
    max_ranges 1;
    client_max_body_size 1k;
    limit_conn strata_boot 64;
    client_header_timeout 10s;
    large_client_header_buffers 4 8k;
    send_timeout 60s;
    location / {{
      return 404;
    }}
    location ~ "^/[0-9a-f]{{12}}/(?:{KERNEL}|{INITRD})$" {{
      limit_except GET {{
        deny all;
      }}
      add_header Cache-Control "public, max-age=31536000, immutable";
    }}
  }}"""


def _listen(hosts: Sequence[str], port: int) -> str:
    lines = []
    for host in hosts:
        address = ip_address(host)
        lines.append(f"    listen {f'[{address}]' if address.version == 6 else address}:{port};")
    return "\n".join(lines)
