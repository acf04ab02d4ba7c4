"""``strata document``: the desire documents that the service holds. ``strata apply`` writes them."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.named import Named

FIELDS = (
    ls.plain("name"),
    ls.plain("select"),
    ls.Field("set", lambda item: ",".join(f"{key}={'|'.join(values)}" for key, values in item["set"].items())),
    ls.number("priority"),
    ls.number("matches"),
    ls.plain("author"),
    ls.number("revision", shown=False),
)


@click.group()
def document() -> None:
    """List, show and delete desire documents ('strata apply' writes them)."""


DOCUMENTS = Named(document, "document", "/v1/documents", FIELDS)
DOCUMENTS.list("List the documents, with how many nodes each selects.", "strata document list --sort -priority")
DOCUMENTS.show("Show one document.", "strata document show compute-ready")
DOCUMENTS.delete(
    "Delete a document. Nodes keep what they are; nobody wants it of them any more.",
    "strata document delete compute-ready",
)
