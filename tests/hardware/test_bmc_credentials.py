"""Credentials of BMCs: the most specific one counts, secrets stay sealed, and a rotation loses nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from strata.core.errors import BadRequest, Corrupt, DeviceError, NotFound, OutcomeUnknown, StrataError
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.redfish.client import Credentials
from strata.hardware.credentials.credentials import (
    PREFIX,
    BmcCredentials,
    CredentialRecord,
    base_of,
    check_pattern,
    decode,
    encode,
    new_password,
)
from strata.hardware.credentials.pins import Pins, host_of
from strata.hardware.credentials.rotation import Rotation
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Op, Put, Store

SEAL = Seal([b"k" * 32])
ADDRESS = "https://10.1.0.7/redfish/v1/Systems/1"
BMC = "https://10.1.0.7"


def secret(credentials: Credentials) -> str:
    return credentials.secret()


async def put(store: Store, pattern: str, password: str, seal: Seal = SEAL) -> None:
    sealed = seal.seal(password.encode(), PREFIX + pattern)
    record = CredentialRecord(pattern=pattern, user="root", sealed=sealed, author="alice", changed=1.0)
    await store.txn([Put(PREFIX + pattern, encode(record))])


@asynccontextmanager
async def credentials(store: Store, seal: Seal = SEAL) -> AsyncIterator[BmcCredentials]:
    found = BmcCredentials(store, Ledger(store), seal)
    await found.start()
    try:
        yield found
    finally:
        await found.stop()


@pytest.mark.parametrize(
    ("patterns", "address", "best"),
    [
        (["default"], ADDRESS, "default"),
        (["default", "10.1.*"], ADDRESS, "10.1.*"),
        (["10.*", "10.1.*", "https://10.*"], ADDRESS, "https://10.*"),
        (["10.1.*", "10.1.0.7"], ADDRESS, "10.1.0.7"),
        (["10.1.0.7", BMC], ADDRESS, BMC),
        (["10.1.0.7:8443", "10.1.0.7"], "https://10.1.0.7:8443", "10.1.0.7:8443"),
        (["10.1.0.7"], "ipmi://10.1.0.7:6230", "10.1.0.7"),
        (["http://127.0.0.1:8000/bmc/n7"], "http://127.0.0.1:8000/bmc/n7/redfish/v1/Systems/1", None),
        (["[[]fe80::1]"], "https://[fe80::1]:443", "[[]fe80::1]"),
        (["10.2.*"], ADDRESS, ""),
    ],
)
async def test_the_most_specific_pattern_counts(patterns: list[str], address: str, best: str | None) -> None:
    store = MemoryStore()
    for pattern in patterns:
        await put(store, pattern, f"for {pattern}")
    async with credentials(store) as found:
        assert found.route(address) == (patterns[0] if best is None else best)


async def test_a_bmc_without_a_credential_says_how_to_set_one() -> None:
    async with credentials(MemoryStore()) as found:
        with pytest.raises(DeviceError, match=r"strata hardware credentials set https://10\.1\.0\.7 --user NAME"):
            found.lookup(ADDRESS)


async def test_what_another_controller_of_strata_writes_is_used_without_a_restart() -> None:
    store = MemoryStore()
    heard: list[tuple[str, Callable[[str], bool]]] = []
    found = BmcCredentials(store, Ledger(store), SEAL)
    found.changed = lambda pattern, meant: heard.append((pattern, meant))
    await put(store, "default", "old")
    await found.start()
    assert secret(found.lookup(ADDRESS)) == "old" and not heard
    await put(store, "10.1.*", "new")
    async with asyncio.timeout(60):
        while not heard:  # noqa: ASYNC110 - what is awaited is the store's watch
            await asyncio.sleep(0)
    assert secret(found.lookup(ADDRESS)) == "new"
    pattern, meant = heard[0]
    assert pattern == "10.1.*" and meant(ADDRESS) and not meant("https://10.2.0.1"), "who waits for it hears of it"
    await found.stop()


async def test_a_record_that_was_copied_to_another_address_does_not_open() -> None:
    store = MemoryStore()
    await put(store, "10.1.0.8", "theirs")
    entry = await store.get(PREFIX + "10.1.0.8")
    assert entry is not None
    stolen = decode(entry.value)
    moved = CredentialRecord(
        pattern="10.1.0.7", user=stolen.user, sealed=stolen.sealed, author=stolen.author, changed=stolen.changed
    )
    await store.txn([Put(PREFIX + "10.1.0.7", encode(moved))])
    async with credentials(store) as found:
        with pytest.raises(Corrupt, match="belongs to something else"):
            found.lookup(ADDRESS)


async def test_the_wrong_key_is_a_clear_error_and_not_a_wrong_password() -> None:
    store = MemoryStore()
    await put(store, "default", "old", Seal([os.urandom(32)]))
    async with credentials(store) as found:
        with pytest.raises(Corrupt, match="was sealed with the key"):
            found.lookup(ADDRESS)


async def test_an_unreadable_record_grants_nothing_and_stops_nobody() -> None:
    store = MemoryStore()
    await put(store, "default", "old")
    await store.txn([Put(PREFIX + "10.1.0.7", b"\xff rubbish")])
    async with credentials(store) as found:
        assert found.route(ADDRESS) == "default"


@pytest.mark.parametrize("pattern", ["", " ", "a b", "x" * 300, "root:secret@10.0.0.1", "10.0.0.1\n"])
def test_what_cannot_be_an_address_is_no_pattern(pattern: str) -> None:
    if pattern.strip() == "10.0.0.1":
        assert check_pattern(pattern) == "10.0.0.1"
        return
    with pytest.raises(BadRequest, match="a pattern is"):
        check_pattern(pattern)


def test_patterns_are_of_bmcs_and_not_of_what_is_in_them() -> None:
    assert check_pattern("https://10.1.0.7/redfish/v1/Systems/1/") == BMC
    assert base_of("http://127.0.0.1:8000/bmc/pdu/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A1").endswith("/bmc/pdu")


def test_new_passwords_meet_the_usual_rules() -> None:
    words = {new_password() for _ in range(200)}
    assert len(words) == 200
    for word in words:
        assert len(word) == 16 and any(map(str.isupper, word)) and any(map(str.islower, word))
        assert any(map(str.isdigit, word)) and set("-_.") & set(word) and word[0] not in "-_." and word[-1] not in "-_."


# -- rotation


class Killed(BaseException):
    """The process ends here."""


class Device:
    """A BMC with an account, and faults on demand."""

    address = ADDRESS

    def __init__(self) -> None:
        self.password = "first"
        self.told: list[str] = []
        self.answer = "yes"
        self.silent = False
        self.tries: list[str] = []

    async def set_password(self, user: str, password: str) -> None:
        self.told.append(password)
        if self.answer == "refuses":
            raise DeviceError(f"the value {password} of Password is too short", node=BMC)
        if self.answer != "ignores" and self.answer != "loses the request":
            self.password = password
        if self.answer in ("loses the reply", "loses the request"):
            raise OutcomeUnknown("no answer", where=BMC)

    async def accepts(self, address: str, who: Credentials) -> bool:
        assert address == ADDRESS
        if self.silent:
            raise DeviceError("no answer", node=BMC)
        self.tries.append(secret(who))
        return secret(who) == self.password


class DyingStore(MemoryStore):
    """Dies before or after its nth write from now on."""

    def __init__(self) -> None:
        super().__init__()
        self.die_at: float | None = None
        self.writes = 0

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        self.writes += 1
        if self.die_at == self.writes:
            raise Killed
        revision = await super().txn(ops, expect=expect)
        if self.die_at == self.writes + 0.5:
            raise Killed
        return revision


async def rotated(store: Store, device: Device) -> None:
    async with credentials(store) as found:
        controller = {ADDRESS: device}.__getitem__
        accepts = {"https": device.accepts}
        rotation = Rotation(found, controller, accepts, settle=0.0)  # type: ignore[arg-type]
        await rotation.rotate(ADDRESS, "alice")


async def known(store: Store) -> set[str]:
    """Every password that the store holds for the BMC."""
    words = set()
    for entry in (await store.range(PREFIX)).entries:
        record = decode(entry.value)
        for sealed in filter(None, (record.sealed, record.pending)):
            words.add(SEAL.open(sealed, entry.key).decode())
    return words


async def test_a_rotation_gives_a_bmc_a_password_of_its_own() -> None:
    store, device = MemoryStore(), Device()
    await put(store, "default", "first")
    await rotated(store, device)
    assert device.password not in ("first", "") and len(device.told) == 1
    async with credentials(store) as found:
        assert secret(found.lookup(ADDRESS)) == device.password
        assert secret(found.lookup("https://10.1.0.8")) == "first", "others keep theirs"
    assert [r.action for r in await Ledger(store).entries()] == ["bmc-credential.change", "bmc-credential.changed"]
    await rotated(store, device)
    assert len(set(device.told)) == 2, "and again"


async def test_a_lost_reply_is_settled_by_a_login_and_not_by_a_guess() -> None:
    store, device = MemoryStore(), Device()
    await put(store, "default", "first")
    device.answer = "loses the reply"
    await rotated(store, device)
    async with credentials(store) as found:
        assert secret(found.lookup(ADDRESS)) == device.password != "first"


@pytest.mark.parametrize("answer", ["refuses", "ignores", "loses the request"])
async def test_a_bmc_that_does_not_change_keeps_the_password_it_had(answer: str) -> None:
    store, device = MemoryStore(), Device()
    await put(store, "default", "first")
    device.answer = answer
    with pytest.raises(DeviceError) as caught:
        await rotated(store, device)
    assert device.told[0] not in str(caught.value)
    assert await known(store) == {"first"}
    assert sum(word != "first" for word in device.tries) <= 2, "two wrong passwords lock no account"
    async with credentials(store) as found:
        assert secret(found.lookup(ADDRESS)) == "first" and found.route(ADDRESS) == "default"


async def test_both_passwords_are_kept_and_neither_is_tried_while_it_is_not_known_which_one_counts() -> None:
    store, device = MemoryStore(), Device()
    await put(store, "default", "first")
    device.answer, device.silent = "loses the reply", True
    with pytest.raises(DeviceError):
        await rotated(store, device)
    assert await known(store) >= {"first", device.password}
    async with credentials(store) as found:
        with pytest.raises(DeviceError, match="a change of its password was interrupted"):
            found.lookup(ADDRESS)
    device.silent = False
    await rotated(store, device)
    assert len(device.told) == 1, "the change had happened: it is finished, not made again"
    async with credentials(store) as found:
        assert secret(found.lookup(ADDRESS)) == device.password


@pytest.mark.parametrize("answer", ["yes", "loses the reply", "loses the request", "refuses", "ignores"])
@pytest.mark.parametrize("own", [False, True])
async def test_no_password_is_lost_wherever_the_process_is_killed(answer: str, own: bool) -> None:
    for place in [half / 2 for half in range(2, 12)]:
        store, device = DyingStore(), Device()
        await put(store, BMC if own else "default", "first")
        device.answer, store.writes, store.die_at = answer, 0, place
        killed = False
        try:
            await rotated(store, device)
        except Killed:
            killed = True
        except StrataError:
            pass
        assert device.password in await known(store), f"killed at write {place}"
        store.die_at, device.answer = None, "yes"
        await rotated(store, device)
        async with credentials(store) as found:
            assert secret(found.lookup(ADDRESS)) == device.password != "first"
        if not killed:
            break
    else:
        pytest.fail("the rotation never ended")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_no_password_is_lost_when_the_process_is_killed_while_the_bmc_changes(when: str) -> None:
    store, device = MemoryStore(), Device()
    await put(store, "default", "first")
    change = device.set_password

    async def killed(user: str, password: str) -> None:
        if when == "after":
            await change(user, password)
        raise Killed

    device.set_password = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        await rotated(store, device)
    assert device.password in await known(store)
    device.set_password = change  # type: ignore[method-assign]
    await rotated(store, device)
    async with credentials(store) as found:
        assert secret(found.lookup(ADDRESS)) == device.password != "first"


# -- certificates


@asynccontextmanager
async def pinned(store: Store) -> AsyncIterator[Pins]:
    pins = Pins(store, Ledger(store))
    await pins.start()
    try:
        yield pins
    finally:
        await pins.stop()


async def test_the_first_certificate_is_remembered_over_restarts_and_a_second_does_not_replace_it() -> None:
    store = MemoryStore()
    async with pinned(store) as pins:
        assert pins.get("10.1.0.7:443") is None
        pins.put("10.1.0.7:443", "a" * 64)
        pins.put("10.1.0.7:443", "b" * 64)
        assert pins.get("10.1.0.7:443") == "a" * 64
    async with pinned(store) as pins:
        assert pins.get("10.1.0.7:443") == "a" * 64


async def test_ten_thousand_first_sights_are_few_writes() -> None:
    store = MemoryStore()
    async with pinned(store) as pins:
        for number in range(10_000):
            pins.put(f"10.{number >> 8}.{number & 255}.1:443", "a" * 64)
    assert await store.revision() < 100
    async with pinned(store) as pins:
        assert pins.get("10.3.3.1:443") == "a" * 64


async def test_a_person_accepts_another_certificate() -> None:
    store = MemoryStore()
    async with pinned(store) as pins:
        with pytest.raises(NotFound):
            await pins.accept("https://10.1.0.7", "alice")
        pins.put("10.1.0.7:443", "a" * 64)
        assert await pins.accept(f"{BMC}/redfish/v1", "alice") == "10.1.0.7:443"
        assert pins.get("10.1.0.7:443") is None, "the next one counts"
        await pins.accept("10.1.0.7", "alice", ":".join(["AB"] * 32))
        assert pins.get("10.1.0.7:443") == "ab" * 32
        with pytest.raises(BadRequest, match="64 hexadecimal digits"):
            await pins.accept("10.1.0.7", "alice", "not one")
    assert [(r.author, r.action) for r in await Ledger(store).entries()] == [
        ("alice", "bmc.unpin"),
        ("alice", "bmc.pin"),
    ]


@pytest.mark.parametrize("address", ["", "https://", "https://h:99999", "https://h:x"])
def test_no_host_no_pin(address: str) -> None:
    with pytest.raises(BadRequest, match="not the address of a BMC"):
        host_of(address)
