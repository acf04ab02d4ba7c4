"""Large requests to CAPMC: they are bounded, and keep nobody else waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from strata.power.capmc import door
from strata.power.capmc.reply import Refusal
from strata.power.capmc.request import MOST_NIDS, nids_of, objects_of


class Sender:
    """Sends the same part over and over, and counts how often it was listened to."""

    def __init__(self, part: bytes, times: int) -> None:
        self._part, self._left, self.heard = part, times, 0

    async def __call__(self) -> dict[str, Any]:
        self._left -= 1
        self.heard += 1
        return {"type": "http.request", "body": self._part, "more_body": self._left > 0}


async def test_a_body_of_millions_of_nids_is_refused_before_it_is_all_there() -> None:
    sender = Sender(b"1," * 2**19, 20)
    with pytest.raises(Refusal) as refused:
        await door._body(sender, door.MOST_BODY, "nothing")
    assert refused.value.reply.status == 413
    assert sender.heard == 11, "ten of a megabyte were taken"


@pytest.mark.parametrize(("nids", "aside"), [(10, False), (100_000, True)])
async def test_a_large_body_is_read_away_from_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, nids: int, aside: bool
) -> None:
    threads: list[int] = []

    def decode(body: bytes) -> Any:
        threads.append(threading.get_ident())
        return msgspec.json.decode(body)

    monkeypatch.setattr(door, "_decode", decode)
    found = await door._body(Sender(msgspec.json.encode({"nids": list(range(nids))}), 1), door.MOST_BODY, "nothing")
    assert len(found["nids"]) == nids
    assert (threads != [threading.get_ident()]) is aside


@pytest.mark.parametrize("read", [nids_of, objects_of])
def test_more_nids_than_any_machine_has_are_refused(read: Callable[[Any], Any]) -> None:
    with pytest.raises(Refusal) as refused:
        read({"nids": [1] * (MOST_NIDS + 1)})
    assert refused.value.reply.status == 413


@pytest.mark.parametrize("bad", [-1, 2**31, 1.0, True, "1", None, 2**80])
def test_what_is_no_nid_is_named(bad: Any) -> None:
    with pytest.raises(Refusal, match="invalid nids") as refused:
        nids_of({"nids": [1, bad, 3]})
    assert refused.value.reply.status == 400
