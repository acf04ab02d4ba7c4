"""URLs that people give us: what is refused in them, and what is shown."""

from __future__ import annotations

import pytest

from strata.core.errors import BadRequest
from strata.core.redact import HIDDEN
from strata.core.urls import refuse_login, shown


@pytest.mark.parametrize(
    "url",
    [
        "https://alice:pw@x.example/fw.bin",
        "https://alice@x.example",
        "cifs://alice:pw@x.example/share/a.iso",
        "//alice:pw@x.example/share",
        "alice:pw@x.example/share",
        "https://alice:p@ss@x.example?a=b",
        "https://:pw@x.example\\a",
    ],
)
def test_a_login_in_an_address_is_refused_and_not_repeated(url: str):
    with pytest.raises(BadRequest) as refused:
        refuse_login(url, "uri", hint="put it elsewhere")
    assert "pw" not in str(refused.value) and "p@ss" not in str(refused.value)
    assert "put it elsewhere" in str(refused.value)


@pytest.mark.parametrize(
    "url", ["", "https://x.example/a@b?c=d@e", "x.example/a@b", "nfs://x.example/a.iso", "https://[fd77::1]:443/a"]
)
def test_an_at_sign_elsewhere_is_no_login(url: str):
    refuse_login(url, "uri", hint="")


def test_what_is_shown_with_a_secret_blacked_out_is_no_address():
    with pytest.raises(BadRequest, match="the whole address"):
        refuse_login(f"https://x.example/{HIDDEN}", "url", hint="")


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://alerts.example/strata", "https://alerts.example/strata"),
        ("http://x.example:8080/fw/bios-1.2.bin", "http://x.example:8080/fw/bios-1.2.bin"),
        ("https://x.example/hook?token=s3cret&n=1", f"https://x.example/hook?{HIDDEN}"),
        ("https://x.example?key=s3cret", f"https://x.example?{HIDDEN}"),
        ("https://x.example/a#s3cret", "https://x.example/a"),
        ("https://alice:s3cret@x.example/a", f"https://{HIDDEN}@x.example/a"),
        ("https://x.example/services/T0/B0/abcdEFGHijklMNOPqrs3cret", f"https://x.example/services/T0/B0/{HIDDEN}"),
        ("https://x.example/media/abcdEFGHijklMNOPqrs3cret-_x.iso", f"https://x.example/media/{HIDDEN}.iso"),
        ("", ""),
    ],
)
def test_what_may_be_a_secret_in_an_address_is_not_shown(url: str, seen: str):
    assert shown(url) == seen
