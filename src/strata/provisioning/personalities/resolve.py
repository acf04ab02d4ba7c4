"""All personalities, level with the store, and what each of them stands for now: digests and signed releases.

A personality changes when somebody edits it, and when one of its tags is moved: both give it another digest, by which
the nodes that run the old one are told apart.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.core.node import Node
from strata.fleet.recurring import Recurring
from strata.provisioning.images.release import Release, Releases, canonical
from strata.provisioning.personalities.records import MOST_FILES_BYTES, Member, Personality, Ready, fill
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A personality with what its tags stand for."""

    personality: Personality
    digest: str
    """Of name and members, per class: what nodes get of their own is not in it, but the text it is made from is."""
    members: tuple[Mapping[str, Any], ...]
    whole: msgspec.Raw | None
    """What agents get, where it is the same for all of them."""


class Personalities:
    """The personalities. ``start``, then ``stop``."""

    def __init__(
        self, store: Store, ledger: Ledger, releases: Releases, *, changed: Callable[[str], None] = lambda name: None
    ) -> None:
        """``changed``: takes the name of a personality that now stands for something else, or is gone."""
        self._releases = releases
        self._changed = changed
        self.records = Records(
            store,
            ledger,
            Personality,
            kind="personality",
            listed_by="strata personality list",
            changed=lambda name, _: self._touch(name),
            cleared=lambda: self._stale.update(self._resolved, self._problems),
        )
        self._resolved: dict[str, Resolved] = {}
        self._problems: dict[str, str] = {}
        self._by_digest: dict[str, str] = {}
        self._stale: set[str] = set()
        self._turns = Recurring(
            "personalities", self.settled, self._pause, trouble="personalities could not be resolved"
        )
        releases.moved.append(self._moved)

    async def start(self) -> None:
        """Load the personalities, find out what they stand for, and follow both."""
        await self.records.start()
        await self.settled()
        await self._turns.start()

    async def stop(self) -> None:
        """Let go of the store."""
        await self._turns.stop()
        await self.records.stop()

    # -- reading

    def digest(self, name: str) -> str:
        """What the personality's digest is now; empty where it is not there, or one of its images is not."""
        found = self._resolved.get(name)
        return found.digest if found else ""

    def name_of(self, digest: str) -> str:
        """The personality that has this digest now; empty: none has."""
        return self._by_digest.get(digest, "")

    def using(self, reference: str) -> list[str]:
        """The personalities that an image (``name:tag``) is in."""
        return sorted(s.name for s in self.records.all.values() if any(m.release == reference for m in s.members))

    def problem(self, name: str) -> str:
        """Why the personality cannot be run; empty: it can."""
        return self._problems.get(name, "") if self.records.find(name) else "no such personality"

    def releases(self, name: str) -> Mapping[str, Release]:
        """Member → what its tag stands for."""
        found = self._resolved.get(name)
        return {member["name"]: member["release"] for member in found.members} if found else {}

    def for_node(self, name: str, node: Node) -> msgspec.Raw:
        """The personality as the node's agent gets it; ``Unavailable`` where it cannot be run."""
        found = self._resolved.get(name)
        if found is None:
            raise Unavailable(
                self.problem(name) or "it is not known yet what it stands for", where=f"personality {name}"
            )
        if found.whole is not None:
            return found.whole
        members = [
            {**wire, "files": _files(member, node)}
            for wire, member in zip(found.members, found.personality.members, strict=True)
        ]
        size = sum(len(file["content"]) for member in members for file in member["files"])
        if size > MOST_FILES_BYTES * 4 // 3 + 1024:
            raise BadRequest(f"the node's files have more than {MOST_FILES_BYTES} bytes", where=f"personality {name}")
        return msgspec.Raw(msgspec.json.encode({"name": name, "digest": found.digest, "members": members}))

    async def trial(self, personality: Personality) -> Resolved:
        """What a personality would stand for; raises ``BadRequest`` where one of its images is not there."""
        releases = {}
        for member in personality.members:
            try:
                releases[member.name] = await self._releases.release(member.release)
            except StrataError as error:
                raise BadRequest(
                    error.detail, where=f"member {member.name}, {member.release}", hint=error.hint
                ) from None
        return _resolved(personality, releases)

    # -- following

    def _moved(self, reference: str) -> None:
        image, _, _ = reference.partition(":")
        for name, personality in self.records.all.items():
            if any(member.release.partition(":")[0] == image for member in personality.members):
                self._touch(name)

    def _touch(self, name: str) -> None:
        self._stale.add(name)
        self._turns.soon()

    def _pause(self) -> float | None:
        return 1.0 if self._turns.error else None

    async def settled(self) -> None:
        """Until every personality that was changed is resolved."""
        while self._stale:
            name = self._stale.pop()
            personality = self.records.find(name)
            before = self._resolved.get(name)
            now: Resolved | None = None
            problem = ""
            if personality is not None:
                try:
                    now = await self.trial(personality)
                except BadRequest as error:
                    problem = str(error)
            self._put(name, now, problem)
            if (before and before.digest) != (now and now.digest):
                self._changed(name)

    def _put(self, name: str, now: Resolved | None, problem: str) -> None:
        before = self._resolved.pop(name, None)
        if before is not None:
            self._by_digest.pop(before.digest, None)
        if now is not None:
            self._resolved[name] = now
            self._by_digest[now.digest] = name
        self._problems.pop(name, None)
        if problem:
            self._problems[name] = problem


def _resolved(personality: Personality, releases: Mapping[str, Release]) -> Resolved:
    members = tuple(_wire(member, releases[member.name]) for member in personality.members)
    # Of what runs, not of the statement that it may: a tag that is moved back stands for what it stood for before.
    content = [{**member, "release": _content(member["release"])} for member in members]
    digest = f"sha256:{hashlib.sha256(canonical({'name': personality.name, 'members': content})).hexdigest()}"
    whole = None
    if not any(member.files for member in personality.members):
        body = {"name": personality.name, "digest": digest, "members": [{**member, "files": []} for member in members]}
        whole = msgspec.Raw(msgspec.json.encode(body))
    return Resolved(personality=personality, digest=digest, members=members, whole=whole)


def _content(release: Release) -> dict[str, Any]:
    return {"image": release.image, "squashfs": release.squashfs, "config": release.config}


def _wire(member: Member, release: Release) -> dict[str, Any]:
    """A member as agents know it, without the files: every field is there, so that the digest is of what is meant."""
    ready, restart = member.ready, member.restart
    # Where nobody said, it is left out: what nodes run already is to keep its digest.
    every = {"every": ready.every} if ready.every != Ready().every else {}
    files = [[file.path, file.mode, file.content] for file in member.files]
    return {
        "name": member.name,
        "release": release,
        "mode": member.mode,
        "argv": list(member.argv),
        "env": dict(member.env),
        "init": member.init,
        "ready": {
            "kind": ready.kind,
            "path": ready.path,
            "port": ready.port,
            "argv": list(ready.argv),
            "within": ready.within,
            **every,
        },
        "restart": {"most": restart.most, "backoff": restart.backoff},
        "mounts": [{"source": m.source, "target": m.target, "readonly": m.readonly} for m in member.mounts],
        "files_digest": f"sha256:{hashlib.sha256(canonical(files)).hexdigest()}" if files else "",
    }


def _files(member: Member, node: Node) -> list[dict[str, Any]]:
    return [
        {
            "path": file.path,
            "mode": file.mode,
            "content": base64.b64encode(fill(file.content, node).encode()).decode(),
        }
        for file in member.files
    ]
