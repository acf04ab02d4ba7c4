"""What is packed comes back as it was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from strata.core.errors import Corrupt
from strata.power.series import codec
from strata.power.series.codec import decode_rows, decode_summary, encode_rows, encode_summary
from strata.power.series.downsample import FIELDS, ROW, Fold
from strata.power.series.records import METRICS

POWER, ENERGY = METRICS["power"], METRICS["energy"]

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=20)
QUANTA = st.integers(0, 400 * 8) | st.integers(-(2**24), 2**24)


@pytest.mark.slow
@given(hnp.arrays(np.int64, SHAPES, elements=QUANTA), st.data())
def test_samples_of_a_gauge_come_back_exactly_with_their_gaps(quanta: np.ndarray, data: st.DataObject) -> None:
    values = (quanta / 8).astype(np.float32)
    missing = data.draw(hnp.arrays(np.bool_, quanta.shape))
    values[missing] = np.nan
    take = np.array(sorted(data.draw(st.sets(st.integers(0, quanta.shape[1] - 1), min_size=1))))
    np.testing.assert_array_equal(decode_rows(POWER, encode_rows(POWER, values), take), values[:, take])


@pytest.mark.slow
@given(hnp.arrays(np.int64, SHAPES, elements=st.integers(-(2**58), 2**58)))
def test_samples_of_a_counter_come_back_exactly_however_wide_they_are(quanta: np.ndarray) -> None:
    values = quanta / 8
    take = np.arange(quanta.shape[1])
    found = decode_rows(ENERGY, encode_rows(ENERGY, values), take)
    np.testing.assert_allclose(found, values, rtol=1e-15)


def test_what_hardly_moves_takes_hardly_any_room() -> None:
    still = np.full((60, 4000), 250.0, np.float32)
    assert len(encode_rows(POWER, still)) < 10_000
    still[30:, 7] = 400.0
    assert len(encode_rows(POWER, still)) < 10_100
    counter = 1e9 + np.arange(60)[:, None] * 300.0 + np.arange(4000)
    assert len(encode_rows(ENERGY, counter)) < 60_000


def test_noise_of_some_watts_takes_a_byte() -> None:
    random = np.random.default_rng(1)
    watts = np.rint(300 + random.normal(0, 10, (60, 8192))).astype(np.float32)
    assert len(encode_rows(POWER, watts)) < 1.05 * watts.size


@given(hnp.arrays(np.float64, SHAPES, elements=st.floats(0, 5000)))
def test_a_summary_comes_back_to_seven_digits(powers: np.ndarray) -> None:
    fold = Fold(POWER, powers.shape[1], 30.0)
    for second, row in enumerate(powers):
        fold.row(6000.5 + second, row)
    take = np.arange(powers.shape[1])
    found = decode_summary(POWER, encode_summary(POWER, fold.summary, 6000.0), 6000.0, take)
    np.testing.assert_allclose(found, fold.summary, rtol=1e-6, atol=1e-30)
    np.testing.assert_array_equal(found[ROW["first_v"]], powers[0])


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x93\x01\x02\x03"])
def test_what_cannot_be_decoded_is_said_to_be_damaged(damage: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_rows(POWER, damage, np.array([0]))
    with pytest.raises(Corrupt):
        decode_summary(POWER, damage, 0.0, np.array([0]))


def test_what_was_cut_short_is_said_to_be_damaged() -> None:
    whole = encode_rows(POWER, np.random.default_rng(1).uniform(0, 400, (60, 50)).astype(np.float32))
    with pytest.raises(Corrupt):
        decode_rows(POWER, whole[:-100], np.arange(50))


def test_a_summary_of_an_older_version_is_read_without_what_it_did_not_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Fold(METRICS["power"], 1, 30.0)
    for second, watts in enumerate((100.0, 300.0, 150.0)):
        fold.row(60.0 + second, np.array([watts]))
    newer = {"rough", "fro", "step"}
    monkeypatch.setattr(codec, "FIELDS", [name for name in FIELDS if name not in newer])
    packed = encode_summary(METRICS["power"], fold.summary, 60.0)
    monkeypatch.undo()
    found = decode_summary(METRICS["power"], packed, 60.0, np.array([0]))
    assert [found[ROW[name]][0] for name in newer] == [0.0, 0.0, 0.0]
    assert found[ROW["joules"]][0] == 425.0
