"""What is said to cloud-init: documents for nodes, and what these come to for one node. Nothing in them is secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.input.yamltree import tree
from strata.core.texts import DocumentNameText, In, Out, SelectText
from strata.platform.scopes import check_scope

MOST = 64 * 1024
"""Characters of user data: what clouds take, too."""
_BEGINS = ("#cloud-config", "#!", "#include", "## template: jinja", "#cloud-boothook", "#part-handler", "Content-Type:")
_KEY = r"^(ssh-(rsa|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) [A-Za-z0-9+/=]+( [^\u0000-\u001f]*)?$(?!\n)"  # noqa: E501
_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    re.compile(r"AGE-SECRET-KEY-1|\bstrata_[0-9A-Za-z]+_[0-9A-Za-z_-]{8,}|\bhv[sb]\.[A-Za-z0-9_-]{20,}"),
    re.compile(r"\$(?:1|2[aby]?|5|6|y|gy|7)\$[./A-Za-z0-9$=,]{16,}"),  # hashes of passwords
)
_TELLING = ("password", "passwd", "plain_text_passwd", "hashed_passwd", "chpasswd")

DataText = Annotated[str, Meta(max_length=MOST)]
PublicKeyText = Annotated[str, Meta(pattern=_KEY, max_length=4096)]
PublicKeys = Annotated[tuple[PublicKeyText, ...], Meta(max_length=100)]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]


class CloudInitSpec(In, frozen=True, kw_only=True):
    """What nodes are told: of user data and vendor data the highest priority counts, of keys all do."""

    select: SelectText = "*"
    priority: Priority = 0
    user_data: DataText = ""
    vendor_data: DataText = ""
    ssh_keys: PublicKeys = ()
    """Public keys that the image's default user takes."""


class CloudInit(CloudInitSpec, frozen=True, kw_only=True):
    """The same, with its name: as it is kept, and as the repository says it."""

    name: DocumentNameText


class CloudInitView(Out, frozen=True, kw_only=True):
    """A document, and how many nodes it selects now."""

    name: str
    select: str
    priority: int
    user_data: str
    vendor_data: str
    ssh_keys: tuple[str, ...]
    nodes: int


class Rendered(Out, frozen=True, kw_only=True):
    """What one node gets: the four files of the NoCloud data source."""

    node: str
    meta_data: str
    user_data: str
    vendor_data: str
    network_config: str


def check(document: CloudInitSpec, where: str) -> None:
    """Raise ``BadRequest`` for what cloud-init would not take, or anybody on the node's network should not see."""
    check_scope(document.select, f"{where}: select")
    if not (document.user_data or document.vendor_data or document.ssh_keys):
        raise BadRequest("says nothing", where=where, hint="give it user data, vendor data or ssh keys")
    for field, text in (("user_data", document.user_data), ("vendor_data", document.vendor_data)):
        if text:
            _check_data(text, f"{where}: {field}")


def _check_data(text: str, where: str) -> None:
    if not text.startswith(_BEGINS):
        raise BadRequest(
            f"begins with {text.splitlines()[0][:40]!r}, and cloud-init would ignore it",
            where=where,
            hint=f"begin it with one of {', '.join(_BEGINS)}",
        )
    found = any(pattern.search(text) for pattern in _SECRETS)
    if text.startswith("#cloud-config"):
        config = tree(text, where)
        if config != "" and not isinstance(config, dict):
            raise BadRequest("is not a mapping (key: value)", where=where)
        found = found or any(_tells(value) for value in _under_telling(config))
    if found:
        # The text itself is not repeated: it would be the secret.
        raise BadRequest(
            "holds what looks like a password, its hash, a key or a token; whoever has the node's address can read it",
            where=where,
            hint="give it to the nodes by strata secret put",
        )


def _under_telling(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if str(name).lower() in _TELLING:
                yield inner
            else:
                yield from _under_telling(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _under_telling(inner)


def _tells(value: Any) -> bool:
    """Whether a value under a telling name is a secret, and not a switch (``chpasswd: {expire: false}``)."""
    if isinstance(value, dict):
        return any(_tells(inner) for name, inner in value.items() if name != "expire")
    return bool(value) and str(value).lower() not in ("true", "false")
