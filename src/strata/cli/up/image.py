"""The images of ``strata up``: built once and kept in the user's cache, and the personality that nodes run."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strata.cli.progress import Meter
from strata.cli.words import segment
from strata.core.errors import NotFound
from strata.jobs.native import Program, program

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.cli.output import Output

TAG = "1"


class Image(NamedTuple):
    """An image that is built here."""

    name: str
    recipe: Path
    """What it is built from. Beside it is ``second.yaml``: something to change nodes over to."""
    programs: tuple[Program, ...] = ()
    """Programs of ours that the recipe names as if they lay beside it."""

    @property
    def reference(self) -> str:
        """As personalities name it."""
        return f"{self.name}:{TAG}"


_RECIPES = Path(__file__).parent / "images"
DEMO = Image("demo", _RECIPES / "demo/recipe.yaml")
SLURM = Image("slurm", _RECIPES / "slurm/recipe.yaml", ("strata-run",))


def make(out: Output, client: Client, image: Image) -> None:
    """The image, unless the service has it. What is being done is shown; interrupted, it is done no further."""
    from strata.provisioning.images.commands.make import followed, must_be_done

    try:
        client.get(f"/v1/images/{image.name}/{TAG}")
        return
    except NotFound:
        pass
    kept = _kept(image)
    work = _begin(out, client, image, kept)
    try:
        with Meter(out, f"image {image.reference}", every=0) as meter:
            job = followed(client, lambda line: meter.update(0, 0, line), work)
    except KeyboardInterrupt:
        client.post(f"/v1/operations/{segment(work['operation']['id'])}/cancel")
        raise
    must_be_done(job, image.reference)
    if not kept.is_file():
        _keep(client, image, kept)


def make_set(client: Client, login_key: str) -> None:
    """The personality of the demo image, unless it is there. ``login_key``: the public key of whoever may log in."""
    member: Json = {
        "name": "system",
        "release": DEMO.reference,
        "ready": {"kind": "tcp", "port": 22},
        "files": login_files(login_key),
    }
    put_set(client, DEMO.name, {"members": [member], "description": "what strata up runs on its virtual nodes"})


def put_set(client: Client, name: str, body: Json) -> None:
    """A personality, unless it is there."""
    try:
        client.get(f"/v1/personalities/{name}")
    except NotFound:
        client.put(f"/v1/personalities/{name}", body)


def login_files(login_key: str) -> list[Json]:
    """What a node needs to be logged in to."""
    return [
        {"path": "/etc/hostname", "content": "{node}\n"},
        {"path": "/etc/demo/authorized_keys", "content": login_key, "mode": 0o600},
    ]


def _begin(out: Output, client: Client, image: Image, kept: Path) -> Json:
    """Import what was built earlier, or build: the work that has begun."""
    from strata.provisioning.images.commands.make import send_file, send_recipe

    body: Json = {"name": image.name, "tag": TAG}
    if kept.is_file():
        body |= {"upload": send_file(client, out, kept), "unsigned": True}
        path = "/v1/images"
    else:
        out.note(f"building the {image.name} image from this machine's Debian packages ...")
        with tempfile.TemporaryDirectory(prefix="strata-") as folder:
            recipe = image.recipe
            if image.programs:
                recipe = Path(shutil.copy(image.recipe, folder))
                for name in image.programs:
                    shutil.copy(program(name), folder)
            body["upload"] = send_recipe(client, out, recipe)
        path = "/v1/image-builds"
    return client.post(path, body)


def _kept(image: Image) -> Path:
    """Where the image of this very recipe, with these very programs, is kept."""
    from strata.provisioning.minos.commands import cache_folder

    parts = [image.recipe, *(program(name) for name in image.programs)]
    key = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]
    return cache_folder().parent / "images" / f"{image.name}-{key}.tar"


def _keep(client: Client, image: Image, kept: Path) -> None:
    """Whole or not at all."""
    from strata.cli.transfer import download

    kept.parent.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}")
    try:
        with part.open("wb") as into:
            download(client, f"/v1/images/{image.name}/{TAG}/export", into)
        part.replace(kept)
    finally:
        part.unlink(missing_ok=True)
