"""Secrets at rest are of no use without the key, and each only where it belongs."""

import base64
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import Corrupt, StrataError, Unavailable
from strata.fleet.access.sealing import KEY_FILE, Seal

CANARY = b"correct horse battery staple"


@given(st.binary(max_size=300), st.text(max_size=50))
def test_what_is_sealed_opens_again(data: bytes, context: str) -> None:
    seal = Seal([os.urandom(32)])
    sealed = seal.seal(data, context)
    assert seal.open(sealed, context) == data
    assert len(data) < 8 or data not in sealed


def test_the_same_secret_never_looks_the_same_twice() -> None:
    seal = Seal([os.urandom(32)])
    assert seal.seal(CANARY, "a") != seal.seal(CANARY, "a")


def test_a_secret_that_is_moved_to_another_record_does_not_open() -> None:
    seal = Seal([os.urandom(32)])
    sealed = seal.seal(CANARY, "bmc-credential/10.0.0.1")
    with pytest.raises(Corrupt, match=r"10\.0\.0\.2: its secret was changed or belongs to something else"):
        seal.open(sealed, "bmc-credential/10.0.0.2")


@given(st.integers(min_value=0, max_value=60), st.integers(min_value=1, max_value=255))
def test_any_changed_byte_is_noticed(place: int, flip: int) -> None:
    seal = Seal([b"k" * 32])
    sealed = bytearray(seal.seal(CANARY, "a"))
    sealed[place % len(sealed)] ^= flip
    with pytest.raises(Corrupt) as caught:
        seal.open(bytes(sealed), "a")
    assert CANARY.decode() not in str(caught.value)


@given(st.binary(max_size=60))
def test_no_rubbish_opens_and_none_is_a_crash(rubbish: bytes) -> None:
    with pytest.raises(Corrupt):
        Seal([b"k" * 32]).open(rubbish, "a")


def test_the_first_start_makes_a_key_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / KEY_FILE
    sealed = Seal.load(path, make=True).seal(CANARY, "a")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [KEY_FILE]
    assert Seal.load(path, make=True).open(sealed, "a") == CANARY


def test_a_key_file_that_was_named_and_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"shared\.key: the key file cannot be read"):
        Seal.load(tmp_path / "shared.key")
    assert not list(tmp_path.iterdir())


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / KEY_FILE
    Seal.load(path, make=True)
    path.chmod(0o640)
    with pytest.raises(Unavailable, match=f"chmod 600 {path}"):
        Seal.load(path)


@pytest.mark.parametrize("text", ["", "# only a note\n", "short\n", "é\n", base64.b64encode(b"x" * 31).decode()])
def test_a_damaged_key_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / KEY_FILE
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(StrataError, match=KEY_FILE):
        Seal.load(path)


def test_the_wrong_key_says_which_key_and_which_file(tmp_path: Path) -> None:
    sealed = Seal([os.urandom(32)]).seal(CANARY, "a")
    with pytest.raises(Corrupt, match=f"which {tmp_path / KEY_FILE} does not hold"):
        Seal.load(tmp_path / KEY_FILE, make=True).open(sealed, "a")


def test_keys_are_changed_without_a_gap() -> None:
    old, new = os.urandom(32), os.urandom(32)
    sealed = Seal([old]).seal(CANARY, "a")
    both = Seal([new, old])
    again = both.reseal(sealed, "a")
    assert again is not None
    assert both.reseal(again, "a") is None
    assert Seal([new]).open(again, "a") == CANARY


def test_keys_are_neither_shown_nor_pickled() -> None:
    seal = Seal([b"k" * 32], where="somewhere")
    assert repr(seal) == "Seal(somewhere)"
    with pytest.raises(TypeError):
        pickle.dumps(seal)
