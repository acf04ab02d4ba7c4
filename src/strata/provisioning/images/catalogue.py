"""What images there are and what tags stand for, level with the store. Every change is one compare-and-swap of a name.

Implements ``release.Releases``. Knows nothing of files.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, Conflict, NotFound, Refused, Unavailable
from strata.fleet.alarm import Alarm, AlarmSink
from strata.provisioning.images import records as r
from strata.provisioning.images.release import Release, check_digest, is_signed_by, parse_reference, signed
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

_ATTEMPTS = 20
_GONE_KEPT = 90 * 86400.0
"""Seconds that controllers which are away have to come back and learn what garbage collection removed."""
_GONE_MOST = 5000
"""Files that one record of it names."""


class Catalogue:
    """Names, tags, releases."""

    def __init__(self, store: Store, ledger: Ledger, signer: Signer, alarm: AlarmSink) -> None:
        self._store = store
        self._ledger = ledger
        self.signer = signer
        self._alarm = alarm
        self.names: dict[str, r.Name] = {}
        self.made: dict[str, r.Made] = {}
        self.moved: list[Callable[[str], None]] = []
        """Told of each tag (``name:tag``) that comes to stand for something else, or is gone."""
        self.changed: list[Callable[[], None]] = []
        """Told whenever anything is different: then other files may be needed."""
        self._followed = Followed(store, "image/", self._take, self._clear)
        self.start, self.stop = self._followed.start, self._followed.stop

    # -- reading

    async def release(self, reference: str) -> Release:
        """What ``name:tag`` stands for now."""
        return self.tagged(reference).release

    def tagged(self, reference: str) -> r.Tagged:
        """The same with since when and by whom."""
        name, tag = parse_reference(reference)
        found = self.names.get(name)
        if found is None:
            raise r.no_such(reference)
        return found.tagged(tag)

    def stands_for(self, squashfs: str) -> str:
        """A tag, of now or before, that stands for the image with this squashfs; empty: none that we know."""
        names = self.names.values()
        now = (tagged.release for name in names for tagged in name.tags.values())
        before = (past.release for name in names for past in name.past)
        return next((one.reference for one in itertools.chain(now, before) if one.squashfs == squashfs), "")

    def find(self, source: str) -> r.Made:
        """The image that is meant by ``name:tag``, ``name@serial`` (also a former one) or a manifest's digest."""
        if source.startswith("sha256:"):
            check_digest(source)
            image = source
        elif "@" in source:
            name, _, serial = source.partition("@")
            if name not in self.names or not serial.isdigit() or len(serial) > 12:
                raise r.no_such(source)
            image = self.names[name].with_serial(int(serial)).image
        else:
            image = self.tagged(source).release.image
        found = self.made.get(image)
        if found is None:
            raise NotFound("that image is no longer kept", where=source[:120])
        return found

    # -- changing

    async def put(self, author: str, made: r.Made, reference: str, *, told: Release | None = None) -> Release:
        """Record an image and let ``reference`` stand for it. ``told`` is the signed release that came with it: it
        keeps its serial, which must be higher than any that the name had."""
        name, tag = parse_reference(reference)
        if told is not None:
            self.check_told(told, reference)
            if told.image != made.image:
                raise self._refused(
                    f"the archive's signature is for {told.reference[:100]}, and not for what it holds", name
                )
        made_key = r.MADE + check_digest(made.image)
        record = Put(made_key, r.encode(made))

        def change(found: r.Name) -> r.Name:
            if told is not None:
                if not self._is_news(told, found, tag):
                    return found
                return found.moved(self._release(made, name, tag, told.serial), author, time.time())
            return self._moved(found, made, tag, author)

        changed = await self._change(author, "image.put", name, change, [record], {"tag": tag, "image": made.image})
        return changed.tagged(tag).release

    async def move(self, author: str, source: str, reference: str, *, create: bool) -> Release:
        """Let ``reference`` stand for the image at ``source``, with a new serial. ``create``: it must be new."""
        made = self.find(source)
        name, tag = parse_reference(reference)

        def change(found: r.Name) -> r.Name:
            if create and tag in found.tags:
                raise Conflict("it is there already", where=reference, hint="strata image promote moves a tag")
            return self._moved(found, made, tag, author)

        action = "image.tag" if create else "image.promote"
        changed = await self._change(author, action, name, change, [], {"tag": tag, "image": made.image})
        return changed.tagged(tag).release

    async def delete(self, author: str, reference: str) -> None:
        """Let ``reference`` stand for nothing. The image is kept for a while."""
        name, tag = parse_reference(reference)
        if name not in self.names:
            raise r.no_such(reference)
        await self._change(
            author, "image.delete", name, lambda n: n.without(tag, author, time.time()), [], {"tag": tag}
        )

    async def undelete(self, author: str, reference: str) -> Release:
        """Take the last deletion back. It is a new release: nodes may have seen higher serials meanwhile."""
        name, tag = parse_reference(reference)
        if name not in self.names:
            raise r.no_such(reference)
        image = self.names[name].deleted(tag).release.image
        return await self.move(author, image, reference, create=True)

    async def sign(self, author: str, reference: str) -> Release:
        """Sign what ``reference`` stands for again, with the key of now."""
        name, tag = parse_reference(reference)
        if name not in self.names:
            raise r.no_such(reference)

        def change(found: r.Name) -> r.Name:
            before = found.tagged(tag)
            again = msgspec.structs.replace(before, release=signed(before.release, self.signer))
            return msgspec.structs.replace(found, tags={**found.tags, tag: again})

        return (await self._change(author, "image.sign", name, change, [], {"tag": tag})).tagged(tag).release

    async def forget(self, author: str, before: float, held: Collection[str] = ()) -> list[r.Made]:
        """Forget what tags stood for until ``before``, and images that nothing stands for; those images. ``held``:
        squashfs digests of images that stay."""
        for name in list(self.names):
            if any(past.until < before for past in self.names[name].past):
                await self._change(author, "image.forget", name, lambda n: _younger(n, before), [], {})
        gone = self.forgotten(before, held)
        for start in range(0, len(gone), 100):
            part = gone[start : start + 100]
            ops: list[Op] = [Delete(r.MADE + check_digest(made.image)) for made in part]
            files = [check_digest(digest) for made in part for digest in made.digests]
            revision = await self._ledger.commit(author, "image.gc", f"{len(part)} images", [*ops, *_gone(files)])
            for op in ops:
                self._followed.wrote(op.key, None, revision)
        return gone

    async def removed(self, author: str, files: Collection[str]) -> None:
        """Tell the other controllers of files (hexadecimal digests) that belong to nothing and are removed here."""
        now = time.time()
        old = [
            Delete(entry.key)
            for entry in (await self._store.range(r.GONE)).entries
            if r.decode_gone(entry.value).time < now - _GONE_KEPT
        ]
        for put in _gone(sorted(files)):
            await self._ledger.commit(author, "image.gc", f"{len(files)} files", [put])
        if old:
            await self._ledger.commit(author, "image.gc", "what is long gone", old[: self._ledger.room])

    def forgotten(self, before: float, held: Collection[str] = ()) -> list[r.Made]:
        """The images that ``forget`` would forget."""
        return [made for made in self.unnamed(before) if made.squashfs not in held]

    def unnamed(self, before: float) -> list[r.Made]:
        """The images that nothing stands for, nor has since ``before``."""
        used = {t.release.image for name in self.names.values() for t in name.tags.values()}
        used |= {p.release.image for name in self.names.values() for p in name.past if p.until >= before}
        return [made for image, made in self.made.items() if image not in used and made.created < before]

    def digests(self, *, without: Collection[str] = (), before: float = 0.0) -> set[str]:
        """Every file that is needed: by images (but these), by releases of now, and by those until after ``before``."""
        found = {digest for made in self.made.values() if made.image not in without for digest in made.digests}
        for name in self.names.values():
            current = [tagged.release for tagged in name.tags.values()]
            current += [past.release for past in name.past if past.until >= before]
            for release in current:
                found |= {release.squashfs, release.chunks}
        return found

    # -- inside

    def _moved(self, found: r.Name, made: r.Made, tag: str, author: str) -> r.Name:
        """With the tag standing for an image, under a new serial; as it is where nodes would notice no difference."""
        now = found.tags.get(tag)
        if now is not None and (now.release.squashfs, now.release.config) == (made.squashfs, made.config):
            return found
        return found.moved(self._release(made, found.name, tag, found.serial + 1), author, time.time())

    def _release(self, made: r.Made, name: str, tag: str, serial: int) -> Release:
        bare = Release(
            name=name,
            tag=tag,
            serial=serial,
            image=made.image,
            squashfs=made.squashfs,
            size=made.size,
            chunks=made.chunks,
            config=made.config,
        )
        return signed(bare, self.signer)

    def check_told(self, told: Release, reference: str) -> None:
        """Raise unless a signed release that came with an image may become what ``reference`` stands for."""
        name, tag = parse_reference(reference)
        if not is_signed_by(told, self.signer.public_pem):
            raise self._refused(
                f"the release {told.reference[:100]} in the archive is not signed by this site's key",
                name,
                hint="if you trust where it comes from, import it without its signature: --unsigned",
            )
        if told.name != name:
            raise BadRequest(
                f"the archive holds the signed release of {told.reference[:100]}",
                where=name,
                hint=f"import it as {told.name[:63]}, or as something new: --unsigned",
            )
        self._is_news(told, self.names.get(name, r.Name(name=name)), tag)

    def _is_news(self, told: Release, found: r.Name, tag: str) -> bool:
        """Whether a signed release is newer than all that are known. False: the tag stands for it already. Anything
        else is refused."""
        now = found.tags.get(tag)
        if now is not None and now.release.serial == told.serial and now.release.image == told.image:
            return False
        if told.serial <= found.serial:
            raise self._refused(
                f"release {told.serial} of {found.name} is offered, and {found.serial} is known already",
                found.name,
                hint="promote moves a tag back to an older image on purpose, with a new serial",
            )
        return True

    def _refused(self, why: str, name: str, hint: str = "") -> Refused:
        self._alarm(Alarm(kind="image-refused", message=why, about=name))
        return Refused(why, by="signature", where="image", hint=hint)

    async def _change(
        self,
        author: str,
        action: str,
        name: str,
        change: Callable[[r.Name], r.Name],
        ops: list[Put],
        detail: Mapping[str, str],
    ) -> r.Name:
        key = r.NAMES + name
        for _ in range(_ATTEMPTS):
            entry = await self._store.get(key)
            before = r.decode_name(entry.value) if entry else r.Name(name=name)
            after = change(before)
            if after is before:
                return before
            value = r.encode(after)
            try:
                revision = await self._ledger.commit(
                    author,
                    action,
                    f"image {name}",
                    [*ops, Put(key, value)],
                    {key: entry.modified if entry else 0},
                    {**detail, "serial": after.serial},
                )
            except Conflict as error:
                if error.where != key:
                    raise
                continue
            for op in ops:
                self._followed.wrote(op.key, op.value, revision)
            self._followed.wrote(key, value, revision)
            return after
        raise Unavailable("others keep changing it", where=f"image {name}", hint="try again")

    def _clear(self) -> None:
        self.names.clear()
        self.made.clear()

    def _take(self, key: str, value: bytes | None) -> None:
        self._take_record(key, value)
        for told in self.changed:
            told()

    def _take_record(self, key: str, value: bytes | None) -> None:
        if key.startswith(r.MADE):
            image = f"sha256:{key.removeprefix(r.MADE)}"
            if value is None:
                self.made.pop(image, None)
            else:
                self.made[image] = r.decode_made(value)
            return
        name = key.removeprefix(r.NAMES)
        before = self.names.pop(name, r.Name(name=name)).tags
        after = {} if value is None else r.decode_name(value).tags
        if value is not None:
            self.names[name] = r.decode_name(value)
        for tag in {*before, *after}:
            old, new = before.get(tag), after.get(tag)
            if (old and old.release) != (new and new.release):
                for told in self.moved:
                    told(f"{name}:{tag}")


def _gone(files: Sequence[str]) -> list[Op]:
    now = time.time()
    return [
        Put(
            f"{r.GONE}{int(now * 1000):013d}-{secrets.token_hex(8)}",
            r.encode(r.Gone(time=now, files=tuple(files[start : start + _GONE_MOST]))),
        )
        for start in range(0, len(files), _GONE_MOST)
    ]


def _younger(name: r.Name, before: float) -> r.Name:
    return msgspec.structs.replace(name, past=tuple(past for past in name.past if past.until >= before))
