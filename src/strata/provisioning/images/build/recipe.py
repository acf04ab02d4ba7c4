"""How an image is made, as people write it (YAML). Pure: says what is wrong with it, and does nothing.

.. code:: yaml

    from: debian            # or scratch, or name:tag of an image that is there
    packages: [busybox]
    files:
      - {path: /etc/motd, content: "hello\\n"}
      - {path: /usr/local/bin/serve, source: serve.sh, mode: "0755"}
    run: ["systemctl enable ssh"]
    argv: [/usr/local/bin/serve]
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.input.forms import in_words
from strata.provisioning.images.release import ImageConfig, parse_reference

RECIPE = "recipe.yaml"
CONTAINERFILE = "Containerfile"
DEBIAN, SCRATCH = "debian", "scratch"
MOST_RECIPE = 1 << 20
"""Bytes of a recipe: what is larger belongs into files beside it."""

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{0,100}(:[a-z0-9]+)?(=[A-Za-z0-9.+:~-]{1,100})?\Z")
_OWNER = re.compile(r"(\d{1,9}):(\d{1,9})\Z")
_SUITE = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")
_DEEPEST = 50  # a recipe goes four levels down

Text = Annotated[str, Meta(max_length=4000)]


class RecipeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that is put into the image: its text, or a file beside the recipe."""

    path: Annotated[str, Meta(min_length=2, max_length=1000)]
    content: Annotated[str, Meta(max_length=1 << 20)] | None = None
    source: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    mode: Annotated[str, Meta(pattern=r"^0?[0-7]{3,4}$")] = "0644"
    owner: Annotated[str, Meta(max_length=20)] = "0:0"

    @property
    def ids(self) -> tuple[int, int]:
        """Owner and group as numbers."""
        found = _OWNER.match(self.owner)
        assert found is not None
        return int(found[1]), int(found[2])


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """All of it."""

    from_: Annotated[str, Meta(min_length=1, max_length=200)]
    suite: str = ""
    """Debian's release. Default: this machine's own."""
    slim: bool = False
    """Leave out documentation, manuals and translations."""
    packages: Annotated[tuple[str, ...], Meta(max_length=2000)] = ()
    files: Annotated[tuple[RecipeFile, ...], Meta(max_length=1000)] = ()
    run: Annotated[tuple[Annotated[str, Meta(max_length=1 << 16)], ...], Meta(max_length=200)] = ()
    """Shell scripts, run inside the image, in order; each must succeed."""
    argv: tuple[Text, ...] | None = None
    env: Annotated[dict[Text, Text], Meta(max_length=200)] | None = None
    cwd: Text | None = None
    user: Text | None = None

    @property
    def parent(self) -> str:
        """The image that it stands on; empty: none."""
        return "" if self.from_ in (DEBIAN, SCRATCH) else self.from_

    def config(self, parent: ImageConfig) -> ImageConfig:
        """How the image wants to be run: as said here, else as its parent."""
        env = dict(line.partition("=")[::2] for line in parent.env) | (self.env or {})
        return ImageConfig(
            argv=parent.argv if self.argv is None else self.argv,
            env=tuple(f"{key}={value}" for key, value in env.items()),
            cwd=parent.cwd if self.cwd is None else self.cwd,
            user=parent.user if self.user is None else self.user,
        )


def parse_recipe(text: str) -> Recipe:
    """A recipe that can be followed, or ``BadRequest``."""
    if len(text) > MOST_RECIPE:
        raise BadRequest(f"is larger than {MOST_RECIPE >> 10} KiB", where="recipe", hint="put files beside it")
    try:
        recipe = msgspec.convert(_loaded(text), Recipe)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise BadRequest("is not YAML", where=f"recipe{line}") from None
    except msgspec.ValidationError as error:
        raise BadRequest(
            in_words(str(error), Recipe)[:300], where="recipe", hint="see the how-to about images"
        ) from None
    except (RecursionError, ValueError):
        raise BadRequest("is nested too deeply, or has a number that is too long", where="recipe") from None
    if recipe.parent:
        parse_reference(recipe.parent)
    if recipe.suite and (recipe.from_ != DEBIAN or not _SUITE.match(recipe.suite)):
        raise BadRequest("a suite goes with 'from: debian', and is a name such as bookworm", where="recipe, suite")
    if recipe.packages and recipe.from_ == SCRATCH:
        raise BadRequest("packages need a system to be put into", where="recipe, packages", hint="from: debian")
    for package in recipe.packages:
        if not _PACKAGE.match(package):
            raise BadRequest("is not the name of a Debian package", where=f"recipe, packages, {package[:100]!r}")
    for file in recipe.files:
        _check_file(file)
    return recipe


def _loaded(text: str) -> object:
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise RecursionError
        # A few lines of aliases to aliases stand for more than any machine can hold.
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise BadRequest("aliases (*name) are not taken", where=f"recipe, line {line}", hint="write it out")
    return yaml.load(text, Loader=loader)


def _check_file(file: RecipeFile) -> None:
    where = f"recipe, files, {file.path[:100]!r}"
    if not file.path.startswith("/") or ".." in file.path.split("/") or "\0" in file.path or file.path.endswith("/"):
        raise BadRequest("a path is absolute, without '..', and names a file", where=where)
    if (file.content is None) == (file.source is None):
        raise BadRequest("a file has either content or source", where=where)
    if file.source is not None and (file.source.startswith("/") or ".." in file.source.split("/")):
        raise BadRequest("a source is beside the recipe, without '..'", where=where)
    if not _OWNER.match(file.owner):
        raise BadRequest("an owner is two numbers, as in 0:0", where=where)
