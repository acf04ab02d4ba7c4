"""When a node counts as up, down or hung: pure."""

from __future__ import annotations

import pytest

from strata.provisioning.agents.life import HUNG_AFTER, Signs, os_word

NOW = 100_000.0
LONG_AGO = NOW - 10_000


@pytest.mark.parametrize(
    ("signs", "word"),
    [
        (Signs(contact=NOW - 59, redeemed=LONG_AGO), "up"),
        (Signs(), "down"),
        (Signs(asked=NOW - 5), "down"),
        (Signs(contact=LONG_AGO, redeemed=0), "down"),
        (Signs(contact=NOW - 61, redeemed=LONG_AGO), "unknown"),
        (Signs(contact=NOW - HUNG_AFTER - 1, redeemed=LONG_AGO), "hung"),
        (Signs(contact=NOW - HUNG_AFTER - 1, redeemed=LONG_AGO, all_silent=True), "unknown"),
        (Signs(contact=NOW - HUNG_AFTER - 1, redeemed=LONG_AGO, asked=NOW - 30), "down"),
        (Signs(contact=NOW - 300, redeemed=LONG_AGO, asked=NOW - 400), "hung"),
        (Signs(contact=NOW - 70, redeemed=LONG_AGO, dark=NOW - 65), "down"),
        (Signs(contact=NOW - 10, redeemed=LONG_AGO, dark=NOW - 5), "unknown"),
        (Signs(contact=NOW - 10, redeemed=LONG_AGO, dark=NOW - 5, asked=NOW - 1), "down"),
        (Signs(contact=NOW - 1, redeemed=LONG_AGO, dark=NOW - 5), "up"),
        (Signs(contact=NOW - 9, redeemed=LONG_AGO, missed=NOW - 1), "unknown"),
        (Signs(contact=NOW - 9, redeemed=LONG_AGO, missed=NOW - 1, crashed=NOW - 6), "down"),
        (Signs(contact=NOW - 9, redeemed=LONG_AGO, missed=NOW - 1, asked=NOW - 6), "down"),
        (Signs(contact=NOW - 9, redeemed=LONG_AGO, crashed=NOW - 6), "up"),
        (Signs(contact=NOW - 3, redeemed=LONG_AGO, missed=NOW - 20, crashed=NOW - 25), "up"),
        (Signs(contact=NOW - 9, redeemed=0, missed=NOW - 1), "down"),
        (Signs(redeemed=LONG_AGO, listening=NOW - 10), "unknown"),
        (Signs(redeemed=LONG_AGO, listening=NOW - HUNG_AFTER - 1), "hung"),
    ],
)
def test_what_the_signs_say(signs: Signs, word: str) -> None:
    assert os_word(signs, NOW) == word
