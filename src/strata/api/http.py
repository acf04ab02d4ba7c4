"""The parts of HTTP that routes share: entity tags, preconditions, opaque cursors. Knows no resource."""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.nodes.records import EncodedNode, NodeView

AnyRequest = Request[Any, Any, Any]
T = TypeVar("T")


class StrictRequest(AnyRequest):
    """A request whose body means what it says: Litestar by itself takes ``0`` and ``"no"`` for false."""

    async def json(self) -> Any:
        """The body as the type that the handler takes. What Litestar would refuse too is left for it to explain."""
        found = await super().json()
        field = getattr(self.scope.get("route_handler"), "parsed_data_field", None)
        if field is None:
            return found
        try:
            return msgspec.convert(found, field.annotation)
        except msgspec.ValidationError as error:
            with contextlib.suppress(msgspec.ValidationError):
                msgspec.convert(found, field.annotation, strict=False)
                raise BadRequest(str(error), where="body", hint="write numbers and booleans without quotes") from None
            return found


_TAG = re.compile(r'\s*(?:W/)?"(\d{1,18})(?:-\d{1,20})?"\s*\Z')

CONDITIONAL = "conditional"
"""In a handler's options: whether it honours the revision that a request expects."""

_SEED = 0x5EA1
"""Makes the sum of a short, made-up cursor wrong too."""


def revision_tag(revision: int) -> str:
    """The entity tag of something that changes only with its revision."""
    return f'"{revision}"'


def fleet_tag(revision: int) -> str:
    """The entity tag of a view of the fleet. Weak: ages in it grow by themselves."""
    return f'W/"{revision}"'


def node_tag(view: NodeView | EncodedNode) -> str:
    """The entity tag of a node: its description's revision, then the stamp of everything else. Weak, as above."""
    return f'W/"{view.revision}-{view.stamp}"'


def is_fresh(if_none_match: str, tag: str) -> bool:
    """Whether the client has this already (weak comparison, RFC 9110)."""
    if not if_none_match:
        return False
    if if_none_match.strip() == "*":
        return True
    bare = tag.removeprefix("W/")
    return any(found.strip().removeprefix("W/") == bare for found in if_none_match.split(","))


def unless_fresh(request: AnyRequest, view: T) -> Response[T | None]:
    """``view``, which has a ``revision``, with its tag; 304 where the client has it already."""
    tag = revision_tag(view.revision)  # type: ignore[attr-defined]
    fresh = is_fresh(request.headers.get("if-none-match", ""), tag)
    return Response(None if fresh else view, status_code=304 if fresh else 200, headers={"ETag": tag})


async def expected_revision(request: AnyRequest, current: Callable[[], Awaitable[Any]]) -> int | None:
    """What ``If-Match`` or ``If-None-Match`` demand of the thing's revision: None is nothing, 0 is absence.

    ``current`` asks for the thing as it is now, or for its revision, where several would do.
    """
    match, none = request.headers.get("if-match"), request.headers.get("if-none-match")
    if none is not None:
        if none.strip() != "*" or match is not None:
            raise BadRequest("it takes only '*': create, never replace", where="If-None-Match")
        return 0
    if match is None:
        return None
    wanted = match.split(",")
    if match.strip() != "*" and len(wanted) == 1:
        return _tag_revision(wanted[0])
    accepted = None if match.strip() == "*" else {_tag_revision(tag) for tag in wanted}
    try:
        found = await current()
    except NotFound as error:
        raise Conflict("it does not exist", where=error.where) from error
    now: int = getattr(found, "revision", found)
    if accepted is not None and now not in accepted:
        raise Conflict("it has changed since", revision=now)
    return now


def _tag_revision(text: str) -> int:
    found = _TAG.match(text)
    if found is None:
        raise BadRequest(
            'not an ETag of this service, such as "12" or W/"12-345"',
            where="If-Match",
            hint="send back the ETag of your last GET",
        )
    # A tag of 0 was never given out; it must not turn into "must not exist".
    return int(found[1]) or -1


def is_conditional(request: AnyRequest) -> bool:
    """Whether the request names a state that it expects, on a route where that means something."""
    honoured = getattr(request.scope.get("route_handler"), "opt", {}).get(CONDITIONAL, False)
    return honoured and ("if-match" in request.headers or "if-none-match" in request.headers)


def taken_types(request: AnyRequest) -> Mapping[str, Any]:
    """The types of what the request's handler takes, by name."""
    signature = getattr(request.scope.get("route_handler"), "parsed_fn_signature", None)
    return {name: field.annotation for name, field in signature.parameters.items()} if signature is not None else {}


def wants_async(request: AnyRequest) -> bool:
    """``Prefer: respond-async`` (RFC 7240)."""
    return any(part.split(";")[0].strip() == "respond-async" for part in request.headers.get("prefer", "").split(","))


def seal(after: str | None) -> str | None:
    """Make a cursor opaque."""
    if after is None:
        return None
    raw = after.encode()
    return base64.urlsafe_b64encode(zlib.crc32(raw, _SEED).to_bytes(4, "big") + raw).decode().rstrip("=")


def unseal(cursor: str | None) -> str:
    """The text inside a cursor that we gave; none: empty."""
    if not cursor:
        return ""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if len(data) >= 4 and zlib.crc32(data[4:], _SEED) == int.from_bytes(data[:4], "big"):
            return data[4:].decode()
    except (binascii.Error, ValueError):
        pass
    raise BadRequest(
        "not a cursor of this service", where="cursor", hint="pass the 'next' of the page before, unchanged"
    )
