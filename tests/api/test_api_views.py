"""The records that the API takes: bounded, and safe to decode."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from strata.control import service_views, views
from strata.control.texts import wanted_values

EVERY = [
    kind
    for module in (views, service_views)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("value", ["on\n", "\x00", "a\x7f", "a\u2028b", "", "x" * 257])
@pytest.mark.parametrize("several", [False, True])
def test_a_value_with_control_characters_or_without_bounds_is_refused(value: str, several: bool) -> None:
    body = msgspec.json.encode({"select": "*", "set": {"power": [value] if several else value}})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=views.DesireChange)


def test_one_value_and_a_list_of_one_mean_the_same() -> None:
    assert wanted_values("on") == wanted_values(("on",)) == ("on",)


def test_what_goes_out_has_a_form_that_comes_back() -> None:
    view = views.WhyView(node="n1", state="waiting", summary="s", next=views.NextStep(mutation="m"))
    assert msgspec.json.decode(msgspec.json.encode(view), type=views.WhyView) == view


@pytest.mark.slow
def test_decoding_every_record_leaves_the_interpreter_sound() -> None:
    # msgspec can corrupt memory on certain unions (see texts.py); that shows when the process ends.
    script = (
        "import msgspec, gc\nfrom strata.control import views, service_views\n"
        "for module in (views, service_views):\n"
        "    for kind in list(vars(module).values()):\n"
        "        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):\n"
        "            msgspec.json.Decoder(kind); msgspec.json.schema(kind)\n"
        'msgspec.json.decode(b\'{"select":"*","set":{"a":["b"],"c":"d"}}\', type=views.DesireChange)\n'
        "gc.collect()\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(EVERY) > 50
