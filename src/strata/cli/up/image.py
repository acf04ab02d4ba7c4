"""The demo image of ``strata up``: built once and kept in the user's cache, and the personality that nodes run."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from strata.cli.progress import Meter
from strata.cli.words import segment
from strata.core.errors import NotFound

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.cli.output import Output

NAME, TAG = "demo", "1"
IMAGE = f"{NAME}:{TAG}"
SET = "demo"
"""The personality that nodes run."""

RECIPE = Path(__file__).parent / "demo" / "recipe.yaml"
SECOND = RECIPE.with_name("second.yaml")
"""What the image is built from."""


def make(out: Output, client: Client) -> None:
    """The image, unless the service has it. What is being done is shown; interrupted, it is done no further."""
    from strata.provisioning.images.commands.make import followed, must_be_done

    try:
        client.get(f"/v1/images/{NAME}/{TAG}")
        return
    except NotFound:
        pass
    kept = _kept()
    work = _begin(out, client, kept)
    try:
        with Meter(out, f"image {IMAGE}", every=0) as meter:
            job = followed(client, lambda line: meter.update(0, 0, line), work)
    except KeyboardInterrupt:
        client.request("POST", f"/v1/operations/{segment(work['operation']['id'])}/cancel")
        raise
    must_be_done(job, IMAGE)
    if not kept.is_file():
        _keep(client, kept)


def make_set(client: Client, login_key: str) -> None:
    """The personality, unless it is there. ``login_key``: the public key of whoever may log in."""
    try:
        client.get(f"/v1/personalities/{SET}")
        return
    except NotFound:
        pass
    member: Json = {
        "name": "system",
        "release": IMAGE,
        "ready": {"kind": "tcp", "port": 22},
        "files": [
            {"path": "/etc/hostname", "content": "{node}\n"},
            {"path": "/etc/demo/authorized_keys", "content": login_key, "mode": 0o600},
        ],
    }
    body: Json = {"members": [member], "description": "what strata up runs on its virtual nodes"}
    client.request("PUT", f"/v1/personalities/{SET}", body=body)


def _begin(out: Output, client: Client, kept: Path) -> Json:
    """Import what was built earlier, or build: the work that has begun."""
    from strata.provisioning.images.commands.make import send_file, send_recipe

    body: Json = {"name": NAME, "tag": TAG}
    if kept.is_file():
        body |= {"upload": send_file(client, out, kept), "unsigned": True}
        path = "/v1/images"
    else:
        out.note("building the demo image from this machine's Debian packages ...")
        body["upload"] = send_recipe(client, out, RECIPE)
        path = "/v1/image-builds"
    work: Json = client.request("POST", path, body=body).body
    return work


def _kept() -> Path:
    """Where the image of this very recipe is kept."""
    from strata.provisioning.minos.commands import cache_folder

    key = hashlib.sha256(RECIPE.read_bytes()).hexdigest()[:12]
    return cache_folder().parent / "images" / f"{NAME}-{key}.tar"


def _keep(client: Client, kept: Path) -> None:
    """Whole or not at all."""
    from strata.cli.transfer import download

    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    try:
        with part.open("wb") as into:
            download(client, f"/v1/images/{NAME}/{TAG}/export", into)
        part.replace(kept)
    finally:
        part.unlink(missing_ok=True)
