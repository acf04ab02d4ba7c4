"""``python docs_provider.py PORT``: a provider of logins that knows ``ada`` of the group ``hpc``, with the device flow.

``python docs_provider.py PORT agree FILE``: ada's browser: once FILE has the words ``Open ADDRESS and enter the code``,
it opens that address, logs in there and agrees.

oidc-provider-mock has no device flow: it is put upon its authorisation code, as a page that sends the browser there.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
PATIENCE = 120


def main(port: str) -> None:
    """Run it."""
    import flask
    from authlib.oauth2 import rfc6749
    from oidc_provider_mock import __main__ as program

    waiting: dict[str, dict[str, str]] = {}
    """By the code of the device: its client, what the person types, and what they brought back."""
    make = program.app

    def with_devices(**options: Any) -> flask.Flask:
        provider = make(**options)

        @provider.after_request
        def offer(response: flask.Response) -> flask.Response:
            if flask.request.path == "/.well-known/openid-configuration":
                found = {**response.get_json(), "device_authorization_endpoint": f"{flask.request.host_url}device"}
                response.set_data(json.dumps(found))
            return response

        @provider.post("/device")
        def begin() -> dict[str, Any]:
            code, shown = secrets.token_hex(16), f"{secrets.token_hex(2)}-{secrets.token_hex(2)}".upper()
            waiting[code] = {"client": flask.request.form["client_id"], "shown": shown}
            told = {"device_code": code, "user_code": shown, "expires_in": PATIENCE, "interval": 1}
            where = f"{flask.request.host_url}device"
            return {**told, "verification_uri": where, "verification_uri_complete": f"{where}?user_code={shown}"}

        @provider.get("/device")
        def enter() -> Any:
            (one,) = (one for one in waiting.values() if one["shown"] == flask.request.args["user_code"])
            asked = {"client_id": one["client"], "response_type": "code", "scope": "openid profile"}
            back = {"redirect_uri": f"{flask.request.host_url}device/done", "state": one["shown"]}
            return flask.redirect(f"/oauth2/authorize?{urllib.parse.urlencode(asked | back)}")

        @provider.get("/device/done")
        def agreed() -> str:
            (one,) = (one for one in waiting.values() if one["shown"] == flask.request.args["state"])
            one["code"] = flask.request.args["code"]
            return "Your device is connected."

        @provider.before_request
        def redeem() -> Any:
            form = flask.request.form
            if flask.request.path != "/oauth2/token" or form.get("grant_type") != DEVICE:
                return None
            one = waiting[form["device_code"]]
            if "code" not in one:
                return {"error": "authorization_pending"}, 400
            back = f"{flask.request.host_url}device/done"
            asked = {"grant_type": "authorization_code", "code": one["code"], "redirect_uri": back}
            return provider.test_client().post(
                "/oauth2/token", data={**asked, "client_id": one["client"]}, base_url=flask.request.host_url
            )

        return provider

    program.app = with_devices  # type: ignore[attr-defined]
    for grant in (rfc6749.AuthorizationCodeGrant, rfc6749.RefreshTokenGrant):
        grant.TOKEN_ENDPOINT_AUTH_METHODS = [*grant.TOKEN_ENDPOINT_AUTH_METHODS, "none"]
    ada = {"sub": "ada", "preferred_username": "ada", "groups": ["hpc"]}
    program.run(["--port", port, "--user-claims", json.dumps(ada)])


def agree(said: Path) -> None:
    """Do as a command says."""
    deadline = time.monotonic() + PATIENCE
    while not (found := re.search(r"^Open (\S+) and enter the code", said.read_text(errors="replace"), re.MULTILINE)):
        assert time.monotonic() < deadline, "nobody was asked to log in"
        time.sleep(0.1)
    with urllib.request.urlopen(found[1], timeout=PATIENCE) as page:
        assert b"Authorize" in page.read()
        address = page.url
    with urllib.request.urlopen(address, urllib.parse.urlencode({"sub": "ada"}).encode(), timeout=PATIENCE) as page:
        assert b"connected" in page.read()


if __name__ == "__main__":
    if sys.argv[2:3] == ["agree"]:
        agree(Path(sys.argv[3]))
    else:
        main(sys.argv[1])
