"""The text of the front door's nginx configuration. Pure: knows no process and no file but their names.

What nginx found out about a client's certificate goes to the upstream in headers of our own, beside a secret that
says that it is nginx who speaks; the same headers from a client are overwritten, so they cannot be forged. Nothing of
what anybody sends or gets is put aside on the disk: a body goes on to the service as it comes, which looks at who
sends it before it reads any. nginx's own errors have the shape of all our errors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

import msgspec

from strata.api.streams import STREAMS, pattern
from strata.api.web_account import ACCOUNT
from strata.core.errors import BadRequest

_SAFE = re.compile(r"[A-Za-z0-9_./@+: -]+\Z")
_LISTEN = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]|\*)\Z")

# nginx status → our status, title, detail, hint.
_PROBLEMS = {
    "400 494": (400, "Bad request", "not an HTTP request that we understand", "check the request's headers"),
    "403": (403, "Denied", "only nodes may fetch this, by their certificates", "use a node's own certificate"),
    "404": (404, "Not found", "there is no such file on this controller", "ask another controller"),
    "408": (408, "Timeout", "the request took too long to arrive", "try again"),
    "413": (413, "Body too large", "the body is larger than this service accepts", "split the request"),
    "414": (414, "Path too long", "the request's path is too long", "send long selections in a body"),
    "429": (
        429,
        "Too many requests",
        "too many requests are under way from this address, or from all that show no certificate",
        "wait until some have ended, or show a client certificate",
    ),
    "495 496": (
        401,
        "Not authenticated",
        "the client certificate is not good: expired, or not from Strata's own CA",
        "use a certificate from Strata's own CA, or none and a bearer token",
    ),
    "497": (400, "Bad request", "plain HTTP was sent to an HTTPS port", "use https://"),
    "502 503": (503, "Unavailable", "the service behind the front door does not answer", "try again in a few seconds"),
    "504": (504, "Outcome unknown", "the service took too long to answer", "look before trying again"),
}

# The same below /redfish, in the shape that its clients expect: status, message id, text, what to do. 501: a method
# that HTTP does not know would not get past the parser behind nginx, and Redfish says what to answer.
_REDFISH_PROBLEMS = {
    "408": (408, "Strata.1.0.Timeout", "the request took too long to arrive", "Try again; nothing was changed."),
    "429": (
        429,
        "Strata.1.0.TooManyRequests",
        "too many requests are under way from this address, or from all that show no certificate",
        "Wait until some have ended.",
    ),
    "413": (
        413,
        "Strata.1.0.BadRequest",
        "the body is larger than this service accepts",
        "Split the request; nothing was changed.",
    ),
    "501": (
        501,
        "Base.1.18.OperationNotAllowed",
        "The HTTP method is not allowed on this resource.",
        "This service does not know the method.",
    ),
    "502 503": (
        503,
        "Base.1.18.ServiceTemporarilyUnavailable",
        "The service is temporarily unavailable.  Retry in 5 seconds.",
        "Wait for the indicated retry duration and retry the operation.",
    ),
    "504": (504, "Strata.1.0.OutcomeUnknown", "the service took too long to answer", "Look before trying again."),
}
_PROBLEM_PATH = "/.problem/"
BODY = 2**20
"""Bytes of a body on a path that is not known for larger ones."""
# A controller's push has its credential in the path, which nginx would put into its log of errors.
_INBOX = "/v1/hardware/events/in/"


class BootServer(Protocol):
    """A ``server`` block over files in one folder."""

    @property
    def root(self) -> Path: ...

    def block(self, root: Path) -> str:
        """The block, for the folder as nginx finds it."""
        ...


class FrontDoor(msgspec.Struct, frozen=True, kw_only=True):
    """Where nginx listens, what it shows, and where it passes requests on."""

    directory: Path
    """Its configuration, pid file and log."""
    host: str
    port: int
    upstream: Path
    """The service's ``front.sock``."""
    secret: str
    """What the service knows nginx by: plain characters."""
    certificate: Path
    key: Path
    ca: Path
    """Client certificates must come from here."""
    account: str = ACCOUNT
    """Whom workers run as, where root starts nginx (see ``web_account``); in the text, empty: whoever starts it."""
    workers: int = 2
    body: int = 64 * 2**20
    """Bytes of the largest request body, on paths that take more than a little."""
    body_pause: float = 15.0
    """Seconds that a client may pause while it sends a body. How long all of it may take is the service's to say."""
    per_address: int = 512
    """Requests under way from one address whose clients show no certificate of ours."""
    connections: int = 8192
    """Connections per worker, to clients and upstream together."""
    boot: BootServer | None = None
    """What serves kernels to machines that boot, on a plain HTTP port of its own; None: nothing does."""
    boot_root: Path | None = None
    """The folder of those as nginx finds it; None: as it is."""
    inbox_body: int = 256 * 1024
    """Bytes of the largest event that a BMC may push."""
    agent_body: int = 4 * 2**20
    """Bytes of the largest report of an agent."""
    images: Path | None = None
    """The repository's directory of images, for nodes with a certificate; None: none are served."""
    media: Path | None = None
    """Folder of boot media, which controllers fetch by addresses that nobody can guess; None: there are none."""

    dashboard: Path | None = None
    """Folder of the dashboard's files; None: they were not built, and the front page says so."""

    def __repr__(self) -> str:
        return f"FrontDoor({self.host}:{self.port})"


def config_text(door: FrontDoor) -> str:
    """The whole configuration."""
    if not _LISTEN.match(door.host):
        raise BadRequest("not an address or a host name to listen on", where=repr(door.host)[:80])
    temporary = "\n".join(
        f"  {kind}_temp_path {_path(door.directory / 'tmp' / kind)};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    problems = "\n".join(_problem(number, codes) for number, codes in enumerate(_PROBLEMS))
    streams = "\n".join(map(_stream, STREAMS))
    redfish_pages = "\n".join(
        f"      error_page {codes} = @redfish{number};" for number, codes in enumerate(_REDFISH_PROBLEMS)
    )
    redfish = "\n".join(_redfish_problem(number, codes) for number, codes in enumerate(_REDFISH_PROBLEMS))
    user = f"user {door.account};\n" if door.account else ""
    bulk = "\n".join(_bulk(path, size) for path, size in _bodies(door))
    media = _media(door.media) if door.media else ""
    images = _images(door.images) if door.images else ""
    dashboard = _dashboard(door.dashboard) if door.dashboard else _NO_DASHBOARD
    boot = door.boot.block(door.boot_root or door.boot.root) if door.boot else ""
    return f"""# Written by strata at every start: changes here are lost.
daemon off;
{user}worker_processes {door.workers};
worker_rlimit_nofile {door.connections * 2};
pid {_path(door.directory / "nginx.pid")};
error_log {_path(door.directory / "nginx.log")} warn;
events {{
  worker_connections {door.connections};
}}
http {{
  access_log off;
  server_tokens off;
  default_type application/octet-stream;
{temporary}
  client_max_body_size {BODY};
  client_body_buffer_size 64k;
  client_header_timeout 15s;
  client_body_timeout {round(door.body_pause * 1000)}ms;
  lingering_time 10s;
  proxy_request_buffering off;
  proxy_max_temp_file_size 0;
  send_timeout 60s;
  keepalive_timeout 75s;
  keepalive_requests 100000;
  large_client_header_buffers 4 32k;
  reset_timedout_connection on;

  upstream strata {{
    server {_path(door.upstream, "unix:")};
    keepalive 64;
    keepalive_requests 100000;
  }}

  map $http_x_request_id $strata_request_id {{
    default $http_x_request_id;
    "" $request_id;
  }}
{_IS_NODE}
{_STRANGERS}

  server {{
    listen {door.host}:{door.port} ssl http2;
    ssl_certificate {_path(door.certificate)};
    ssl_certificate_key {_path(door.key)};
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ciphers ECDHE+AESGCM:ECDHE+CHACHA20;
    ssl_session_cache shared:strata:10m;
    ssl_session_timeout 5m;
    ssl_session_tickets off;
    ssl_client_certificate {_path(door.ca)};
    ssl_verify_client optional;
    ssl_verify_depth 1;
    add_header Strict-Transport-Security "max-age=31536000" always;
    limit_conn strata_address {door.per_address};
    limit_conn strata_strangers {max(1, door.workers * door.connections // 4)};

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_set_header X-Request-Id $strata_request_id;
    proxy_set_header X-Strata-Client-Verify $ssl_client_verify;
    proxy_set_header X-Strata-Client-Serial $ssl_client_serial;
    proxy_set_header X-Strata-Client-DN $ssl_client_s_dn;
    proxy_set_header X-Strata-Client-Address $remote_addr;
    proxy_set_header X-Strata-Front-Secret "{door.secret}";
    proxy_connect_timeout 5s;
    proxy_send_timeout 60s;
    proxy_read_timeout 300s;
    # A request that may have been acted on is never sent a second time.
    proxy_next_upstream off;

    location / {{
      proxy_pass http://strata;
    }}
{bulk}
    location {_INBOX} {{
      error_log /dev/null crit;
      client_max_body_size {door.inbox_body};
      proxy_pass http://strata;
    }}
    location /redfish {{
      client_max_body_size {door.body};
{redfish_pages}
      if ($request_method !~ ^(GET|HEAD|POST|PATCH|PUT|DELETE|OPTIONS)$) {{
        return 501;
      }}
      proxy_pass http://strata;
    }}
{dashboard}
{_WHOLE_MACHINE}
{media}
{images}
{streams}
{redfish}
{problems}
  }}
{boot}
}}
"""


# Of whoever shows a certificate of ours, nothing is counted: however many strangers come, nodes get through. What is
# counted together has half of what can be passed on at one time, since each request takes two connections.
_STRANGERS = """  map $ssl_client_verify $strata_address {
    default $binary_remote_addr;
    SUCCESS "";
  }
  map $ssl_client_verify $strata_stranger {
    default all;
    SUCCESS "";
  }
  limit_conn_zone $strata_address zone=strata_address:10m;
  limit_conn_zone $strata_stranger zone=strata_strangers:1m;
  limit_conn_status 429;
  limit_conn_log_level info;"""

# A comma that belongs to a name is written with a backslash before it.
_IS_NODE = r"""  map "$ssl_client_verify $ssl_client_s_dn" $strata_is_node {
    default "";
    "~^SUCCESS (?:.*(?<!\\\\),)?OU=role:node(?:,|$)" yes;
  }"""


def _bodies(door: FrontDoor) -> tuple[tuple[str, int], ...]:
    """Paths whose requests may be more than a little, and how much."""
    return ("/v1/", door.body), ("/capmc", door.body), ("/peer/", door.body), ("/agent/", door.agent_body)


def _bulk(path: str, size: int) -> str:
    return f"""    location {path} {{
      client_max_body_size {size};
      proxy_pass http://strata;
    }}"""


def _images(folder: Path) -> str:
    """Files named for their digests, to nodes only. No other path below it leads to a file."""
    return f"""    location /images/ {{
      return 404;
    }}
    location ~ "^/images/(?<strata_file>squashfs/[0-9a-f]{{64}}\\.squashfs|chunks/[0-9a-f]{{64}})$" {{
      if ($strata_is_node = "") {{
        return 403;
      }}
      alias {_path(folder)[:-1]}/$strata_file";
      sendfile on;
      tcp_nopush on;
      max_ranges 1;
      open_file_cache max=256 inactive=60s;
      add_header Strict-Transport-Security "max-age=31536000" always;
      add_header Cache-Control "private, max-age=31536000, immutable";
    }}"""


# Columns of many nodes have much that repeats, and nothing that is secret.
_WHOLE_MACHINE = """    location ~ ^/v1/(machine|machine/history|power/machine)$ {
      gzip on;
      gzip_comp_level 1;
      gzip_types application/json;
      proxy_pass http://strata;
    }"""

_DASHBOARD_HEADERS = """add_header Strict-Transport-Security "max-age=31536000" always;
      add_header Content-Security-Policy "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" always;
      add_header X-Content-Type-Options nosniff always;
      add_header X-Frame-Options DENY always;
      add_header Referrer-Policy no-referrer always;
      add_header Cross-Origin-Opener-Policy same-origin always;
      gzip on;
      gzip_types text/css text/javascript;"""

_DASHBOARD_TYPES = "types { text/html html; text/css css; text/javascript js; image/svg+xml svg; }"

_NO_DASHBOARD = """    location = / {
      default_type text/plain;
      return 404 'The dashboard was not built in this installation: make dashboard. The API is below /v1/.\\n';
    }"""


def _dashboard(folder: Path) -> str:
    """The page is looked at anew each time; what it needs is named for its content, and never changes."""
    return f"""    location = / {{
      rewrite ^ /index.html last;
    }}
    location = /index.html {{
      root {_path(folder)};
      {_DASHBOARD_TYPES}
      add_header Cache-Control "no-cache";
      {_DASHBOARD_HEADERS}
    }}
    location /assets/ {{
      root {_path(folder)};
      {_DASHBOARD_TYPES}
      add_header Cache-Control "public, max-age=31536000, immutable";
      {_DASHBOARD_HEADERS}
    }}"""


def _media(folder: Path) -> str:
    """The service looks whether the address is good; the file itself is nginx's. The address is a secret: no log."""
    return f"""    location /v1/boot/media/ {{
      error_log /dev/null crit;
      proxy_pass http://strata;
    }}
    location /boot-media-file/ {{
      internal;
      error_log /dev/null crit;
      alias {_path(folder)[:-1]}/";
      max_ranges 1;
    }}"""


def _stream(template: str) -> str:
    where = f"~ {pattern(template)}" if "{" in template else f"= {template}"
    return f"""    location {where} {{
      proxy_pass http://strata;
      proxy_buffering off;
      proxy_read_timeout 3600s;
      send_timeout 3600s;
    }}"""


def _redfish_problem(number: int, codes: str) -> str:
    status, ident, text, resolution = _REDFISH_PROBLEMS[codes]
    info = {"MessageId": ident, "Message": text, "MessageSeverity": "Critical", "Resolution": resolution}
    body = msgspec.json.encode({"error": {"code": ident, "message": text, "@Message.ExtendedInfo": [info]}}).decode()
    retry = "\n      add_header Retry-After 5 always;" if status == 503 else ""
    return f"""    location @redfish{number} {{
      internal;
      default_type application/json;
      add_header OData-Version 4.0 always;{retry}
      return {status} '{body}';
    }}"""


def _problem(number: int, codes: str) -> str:
    status, title, detail, hint = _PROBLEMS[codes]
    body = msgspec.json.encode(
        {
            "type": f"urn:strata:problem:{title.lower().replace(' ', '-')}",
            "title": title,
            "status": status,
            "detail": detail,
            "where": "",
            "hint": hint,
            "request_id": "REQUEST_ID",
        }
    ).decode()
    body = body.replace("'", "\\'").replace("REQUEST_ID", "$request_id")
    # By a path and not by a name: nginx sends nobody to a named location whose own path it could not read.
    return f"""    error_page {codes} = {_PROBLEM_PATH}{number};
    location = {_PROBLEM_PATH}{number} {{
      internal;
      default_type application/problem+json;
      return {status} '{body}';
    }}"""


def _path(path: Path, scheme: str = "") -> str:
    """A path as one nginx word. Characters with a meaning there are refused rather than escaped."""
    if not path.is_absolute() or not _SAFE.match(str(path)):
        raise BadRequest(
            "nginx needs an absolute path of plain characters",
            where=repr(str(path))[:120],
            hint="use a state directory with letters, digits and _./@+- only",
        )
    return f'"{scheme}{path}"'
