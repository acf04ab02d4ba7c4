"""The records that the API takes: bounded, and safe to decode."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import msgspec
import pytest

import strata
from strata.core.texts import In, Out, wanted_values
from strata.fleet.desires.records import DesireChange
from strata.fleet.nodes.records import NextStep, WhyView

MODULES = [
    one.name for one in pkgutil.walk_packages(strata.__path__, "strata.") if one.name.endswith((".records", ".views"))
]
EVERY = [
    kind
    for module in (importlib.import_module(name) for name in MODULES)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, (In, Out)) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("value", ["on\n", "\x00", "a\x7f", "a\u2028b", "", "x" * 257])
@pytest.mark.parametrize("several", [False, True])
def test_a_value_with_control_characters_or_without_bounds_is_refused(value: str, several: bool) -> None:
    body = msgspec.json.encode({"select": "*", "set": {"power": [value] if several else value}})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=DesireChange)


def test_one_value_and_a_list_of_one_mean_the_same() -> None:
    assert wanted_values("on") == wanted_values(("on",)) == ("on",)


def test_what_goes_out_has_a_form_that_comes_back() -> None:
    view = WhyView(node="n1", state="waiting", summary="s", next=NextStep(mutation="m"))
    assert msgspec.json.decode(msgspec.json.encode(view), type=WhyView) == view


@pytest.mark.slow
def test_decoding_every_record_leaves_the_interpreter_sound() -> None:
    # msgspec can corrupt memory on certain unions (see texts.py); that shows when the process ends.
    script = (
        "import gc, importlib, msgspec\nfrom strata.core.texts import In, Out\n"
        "from strata.fleet.desires.records import DesireChange\n"
        f"for name in {MODULES}:\n"
        "    for kind in list(vars(importlib.import_module(name)).values()):\n"
        "        if isinstance(kind, type) and issubclass(kind, (In, Out)) and kind.__module__ == name:\n"
        "            msgspec.json.Decoder(kind); msgspec.json.schema(kind)\n"
        'msgspec.json.decode(b\'{"select":"*","set":{"a":["b"],"c":"d"}}\', type=DesireChange)\n'
        "gc.collect()\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(EVERY) > 50
