"""Desire documents: what is wanted of whatever a selector matches, now and later."""

from __future__ import annotations

from litestar import Response, get, post, put
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag, unless_fresh
from strata.api.named import Named
from strata.api.rights import answers, needs
from strata.api.services import Asked, NamePath
from strata.core.errors import BadRequest
from strata.fleet.desires.bundles import BundleRequest
from strata.fleet.desires.records import ApplyReport, DocumentSpec, DocumentView
from strata.fleet.desires.service import DesireService

_TAG = "documents"
_DOCUMENTS = Named("/v1/documents", DesireService, "document", tag=_TAG, current=DesireService.document)
_DOCUMENTS.list(DesireService.documents, "All documents.")
_DOCUMENTS.delete(DesireService.delete_document, "Remove a document. `If-Match` is honoured.")


@get(
    "/v1/documents/{name:str}",
    tags=[_TAG],
    **needs("read", "document", 404, also={304: answers(None, "Your copy is current (`If-None-Match`).")}),
)
async def show_document(request: AnyRequest, ask: Asked, name: NamePath) -> Response[DocumentView | None]:
    """One document."""
    return unless_fresh(request, await ask.of(DesireService).document(ask.who, name))


@put("/v1/documents/{name:str}", tags=[_TAG], **needs("change", "document", 404, 409, 412, body=True))
async def put_document(
    request: AnyRequest, ask: Asked, name: NamePath, data: JSONBody[DocumentSpec]
) -> Response[DocumentView]:
    """Create or replace a document. `If-Match` and `If-None-Match: *` are honoured."""
    if data.name != name:
        raise BadRequest("the name in the body is not the one in the path", where="name")
    expected = await expected_revision(request, lambda: ask.of(DesireService).document(ask.who, name))
    view = await ask.of(DesireService).put_document(ask.who, data, expected)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@post("/v1/apply", tags=[_TAG], status_code=200, **needs("change", "document", 404, 409, body=True))
async def apply_documents(ask: Asked, data: JSONBody[BundleRequest]) -> ApplyReport:
    """Make the documents be these (with `prune`: only these), and nodes and groups what is said of them: all, or
    nothing. `dry_run`: check it all, and only say what would change."""
    names = [document.name for document in data.documents]
    if len(set(names)) != len(names):
        raise BadRequest("a document is there twice", where=next(n for n in names if names.count(n) > 1))
    return await ask.of(DesireService).apply(ask.who, data)
