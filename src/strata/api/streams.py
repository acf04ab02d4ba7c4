"""Which paths are answered with a stream that does not end: nginx must not hold it back, and no HEAD can be asked."""

from __future__ import annotations

import re

STREAMS = (
    "/v1/watch",
    "/v1/machine/follow",
    "/v1/hardware/events/follow",
    "/v1/nodes/{name}/console/follow",
    "/v1/nodes/{name}/console/raw",
    "/v1/jobs/events",
    "/v1/jobs/{job}/log/follow",
    "/redfish/v1/EventService/SSE",
)
"""As templates. A route that is missing here would be buffered: a test compares this with the routes."""


def pattern(template: str) -> str:
    """The regular expression of a template's paths, as nginx and Python understand it."""
    return f"^{re.sub('{[a-z]+}', '[^/]+', template)}$"


_FIXED = frozenset(template for template in STREAMS if "{" not in template)
_OTHERS = re.compile("|".join(pattern(template) for template in STREAMS if "{" in template))


def is_stream(path: str) -> bool:
    """Whether the answer at ``path`` does not end."""
    return path in _FIXED or _OTHERS.match(path) is not None
