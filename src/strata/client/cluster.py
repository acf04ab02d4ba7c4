"""A Strata service, as somebody who runs jobs sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from strata.client.errors import StrataError
from strata.client.job import Job, document_of
from strata.client.wire import Json, Wire


class Cluster:
    """The service at ``url``; ``$STRATA_URL`` unless given. ``token``: ``$STRATA_TOKEN`` unless given, or what is in
    the file ``$STRATA_TOKEN_FILE``.

    ``ca``: the file with Strata's own certificate authority. ``timeout``: seconds for one answer."""

    def __init__(self, url: str = "", *, token: str = "", ca: str | Path = "", timeout: float = 60.0) -> None:
        url = url or os.environ.get("STRATA_URL", "")
        token = token or os.environ.get("STRATA_TOKEN", "") or _kept(os.environ.get("STRATA_TOKEN_FILE", ""))
        self._wire = Wire(url, token.strip(), str(ca or os.environ.get("STRATA_CA", "")), timeout)

    def submit(self, what: Sequence[str] | str | Mapping[str, Any], *, key: str = "", **fields: Any) -> Job:
        """Submit a command (words), a script (text that begins with ``#!``) or a whole document. Fields of the
        document, and of its resources, may be given by name: ``tasks=4, time=600, env={...}``.

        Sent with a key of its own, so that a lost answer makes no second job; with ``key``, the same key again is the
        same job."""
        body = document_of(what, dict(fields))
        headers = {"Idempotency-Key": key or os.urandom(16).hex()}
        return Job(self._wire, self._wire.ask("POST", "/v1/jobs", body=body, headers=headers, again=True))

    def explain(self, what: Sequence[str] | str | Mapping[str, Any], **fields: Any) -> Json:
        """Where a job would go, and why. Submits nothing."""
        body = document_of(what, dict(fields))
        found: Json = self._wire.ask("POST", "/v1/jobs/plan", body=body, again=True)
        return found

    def job(self, ident: str) -> Job:
        """A job by its id."""
        return Job(self._wire, {"id": ident}).refresh()

    def jobs(self, *, all: bool = False, state: str = "", target: str = "", name: str = "") -> Iterator[Job]:
        """Your jobs, the newest first; with ``all`` everybody's."""
        cursor = None
        while True:
            query = {
                "all": all or None,
                "state": state,
                "target": target,
                "name": name,
                "limit": 1000,
                "cursor": cursor,
            }
            page: Json = self._wire.ask("GET", "/v1/jobs", params=query)
            yield from (Job(self._wire, data) for data in page["items"])
            cursor = page["next"]
            if not cursor:
                return

    def targets(self) -> list[Json]:
        """What runs jobs here, with its queues."""
        found: list[Json] = self._wire.ask("GET", "/v1/jobs/targets")["items"]
        return found

    def events(self) -> Iterator[Job]:
        """Your jobs, each whenever it changes, for as long as you want."""
        for data in self._wire.events("/v1/jobs/events"):
            if "state" in data:
                yield Job(self._wire, data)


def _kept(path: str) -> str:
    """The token in a file; empty: no file was named."""
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StrataError(f"cannot be read: {error}", where=f"STRATA_TOKEN_FILE {path}") from None
