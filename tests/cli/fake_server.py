"""A service that behaves: the REST contract over a unix socket, with its state in memory and faults on demand.

As strict as the real one where a client can go wrong: an unknown path is a 404, an unknown query parameter or body
field a 400, a wrong precondition a 412.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from strata.core.nodeset import expand, fold

Json = dict[str, Any]


class Refusal(Exception):
    """An answer that is a problem document."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = {"type": "about:blank", "title": "", "status": status, "detail": detail, **more}


class FakeServer:
    """Use as a context; ``url`` is what a client needs."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self.nodes: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}
        self.documents: dict[str, Json] = {}
        self.jobs: dict[str, Json] = {}
        self.jobs_linger = False
        """They end some time after they were cancelled."""
        self.freezes: dict[str, Json] = {}
        self.tokens: dict[str, Json] = {}
        self.audit: list[Json] = []
        self.history: list[Json] = []
        self.alerts: list[Json] = []
        self.rollouts: list[Json] = []
        self.images: list[Json] = []
        self.plan: Json = {"nodes": 0, "classes": [], "totals": {}}
        self.node_plan: Json = {"status": "done", "steps": [], "observe": [], "cost": 0.0, "reason": ""}
        self.why: Json = {}
        self.audit_verdict: Json = {"ok": True, "count": 0, "first_bad": None, "reason": ""}
        self.store_check: Json = {"ok": True, "problems": [], "revision": 7}
        self.log_level = "info"
        self.login_way: Json = {}
        self.canaries: list[Json] = []
        self.troubles: list[str] = []
        self.job_above = 1000
        self.revision = 10
        self.page_size = 10_000
        self.streams: list[list[bytes]] = []
        """What each following watch connection is sent before it is cut."""
        self.requests: list[tuple[str, str, Json]] = []
        """(method, path with query, headers) of everything asked."""
        self.bodies: list[Any] = []
        self.faults: list[Callable[[BaseHTTPRequestHandler], bool]] = []
        """Each takes one request; True: it has answered (or not) by itself."""
        self._server = _Server(str(socket_path), self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"unix:{self.socket_path}"

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # what tests prepare

    def add_node(self, name: str, **fields: Any) -> Json:
        self.revision += 1
        self.nodes[name] = {
            "name": name,
            "uid": len(self.nodes) + 1,
            "location": "",
            "nid": None,
            "role": "compute",
            "architecture": "x86_64",
            "labels": {},
            "bmc": "",
            "interfaces": [],
            "groups": [],
            "state": "ready",
            "facts": {},
            "desires": {},
            "hold": None,
            "frozen": "",
            "doing": None,
            "fault": "",
            "revision": self.revision,
            "stamp": self.revision,
            **fields,
        }
        return self.nodes[name]

    def refuse_next(self, status: int, detail: str, **more: Any) -> None:
        """Answer the next request with this problem."""

        def fault(handler: BaseHTTPRequestHandler) -> bool:
            raise Refusal(status, detail, **more)

        self.faults.append(fault)

    def drop_next(self, times: int = 1) -> None:
        """Close the connection instead of answering."""

        def fault(handler: BaseHTTPRequestHandler) -> bool:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return True

        self.faults += [fault] * times

    def answer_next(self, status: int, content_type: str, body: bytes) -> None:
        """Answer the next request with just this."""

        def fault(handler: BaseHTTPRequestHandler) -> bool:
            handler.send_response(status)
            handler.send_header("Content-Type", content_type)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
            return True

        self.faults.append(fault)

    def job(self, total: int, steps: int = 2, **fields: Any) -> Json:
        """A job that is done after it was looked at ``steps`` times."""
        job = {
            "id": f"j{len(self.jobs) + 1}",
            "kind": "desires",
            "state": "running",
            "total": total,
            "done": 0,
            "failed": 0,
            "errors": [],
            "author": "admin",
            "created": 1_700_000_000.0 + len(self.jobs),
            "finished": None,
            **fields,
        }
        self.jobs[job["id"]] = job
        job["_steps"] = steps
        return job

    # what routes use

    def select(self, text: str) -> list[Json]:
        chosen = set(self.nodes)
        for term in text.split():
            if term == "*":
                continue
            if term.startswith("state:"):
                chosen &= {name for name, node in self.nodes.items() if node["state"] == term[6:]}
                continue
            groups = {name: expand(group["members"]) for name, group in self.groups.items()}
            names = [self._whole(name) for name in expand(term, groups)]
            for name in names:
                if name not in self.nodes:
                    raise Refusal(404, f"no such node: {name}", title="Not found", where="select")
            chosen &= set(names)
        return [self.nodes[name] for name in sorted(chosen)]

    def _whole(self, name: str) -> str:
        """As the service does in nodesets: a name may lack zeros in front of its number."""
        meant = [one for one in self.nodes if re.sub(r"\D0+(?=\d)", lambda found: found[0][0], one) == name]
        return meant[0] if name not in self.nodes and len(meant) == 1 else name

    def node(self, name: str) -> Json:
        if name not in self.nodes:
            raise Refusal(404, "no such node", title="Not found", where=name)
        return self.nodes[name]


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, fake: FakeServer) -> None:
        self.fake = fake
        super().__init__(path, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no concern of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        fake = self.server.fake
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        fake.requests.append((self.command, self.path, {key.lower(): value for key, value in self.headers.items()}))
        body = json.loads(raw) if raw else None
        fake.bodies.append(body)
        try:
            if fake.faults and fake.faults.pop(0)(self):
                return
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            if path in ("/v1/watch", "/v1/hardware/events/follow") and self.command == "GET":
                self._stream(fake)
                return
            for method, pattern, allowed, handler in ROUTES:
                found = re.fullmatch(pattern, path)
                if found and method == self.command:
                    query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
                    unknown = set(query) - set(allowed.split())
                    if unknown:
                        raise Refusal(400, "no such query parameter", where=repr(sorted(unknown)[0]))
                    answer = handler(fake, Call(found.groups(), query, body, self.headers))
                    status, content = answer if isinstance(answer, tuple) else (200, answer)
                    self._answer(status, content)
                    return
            raise Refusal(404, "no such path", title="Not found", where=path)
        except Refusal as refusal:
            self._answer(refusal.status, refusal.problem, "application/problem+json")

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _answer(self, status: int, content: Any, kind: str = "application/json") -> None:
        data = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Request-Id", "r-1")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, fake: FakeServer) -> None:
        if not fake.streams:
            raise Refusal(503, "no more events in this test", title="Unavailable")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in fake.streams.pop(0):
            self.wfile.write(chunk)
            self.wfile.flush()
        self.close_connection = True


class Call:
    """One request, taken apart."""

    def __init__(self, names: tuple[str, ...], query: dict[str, str], body: Any, headers: Any) -> None:
        self.name = names[0] if names else ""
        self.query = query
        self.body = body
        self.headers = headers

    def fields(self, allowed: str) -> Json:
        """The body, unless it has a field that the contract does not know."""
        unknown = set(self.body) - set(allowed.split())
        if unknown:
            raise Refusal(400, f"no such field: {sorted(unknown)[0]}")
        return dict(self.body)


def _page(fake: FakeServer, call: Call, items: list[Json]) -> Json:
    start = int(call.query.get("cursor", "0"))
    limit = min(int(call.query.get("limit", "1000")), fake.page_size)
    end = start + limit
    return {"items": items[start:end], "next": str(end) if end < len(items) else None, "total": len(items)}


def list_nodes(fake: FakeServer, call: Call) -> Json:
    chosen = fake.select(call.query.get("select", "*"))
    if "state" in call.query:
        chosen = [node for node in chosen if node["state"] == call.query["state"]]
    if call.query.get("folded") == "true":
        by_state: dict[str, list[str]] = {}
        for node in chosen:
            by_state.setdefault(node["state"], []).append(node["name"])
        return {
            "nodeset": fold(node["name"] for node in chosen),
            "total": len(chosen),
            "by_state": {state: fold(names) for state, names in by_state.items()},
            "revision": fake.revision,
        }
    sort = call.query.get("sort", "name")
    chosen.sort(key=lambda node: str(node[sort.removeprefix("-")]), reverse=sort.startswith("-"))
    if "fields" in call.query:
        chosen = [{field: node[field] for field in call.query["fields"].split(",")} for node in chosen]
    return {**_page(fake, call, chosen), "revision": fake.revision}


def create_nodes(fake: FakeServer, call: Call) -> tuple[int, Json]:
    results = []
    for spec in call.fields("nodes")["nodes"]:
        if spec["name"] in fake.nodes:
            results.append({"node": spec["name"], "ok": False, "status": 409, "error": "is there already"})
        else:
            fake.add_node(**spec)
            results.append({"node": spec["name"], "ok": True, "status": 201, "error": ""})
    created = sum(result["ok"] for result in results)
    return (201 if created == len(results) else 207), {"results": results, "created": created}


def put_node(fake: FakeServer, call: Call) -> Json:
    spec = call.fields("name location nid role architecture labels bmc interfaces")
    expected = call.headers.get("If-Match")
    if expected is not None and expected != f'"{fake.node(call.name)["revision"]}"':
        raise Refusal(412, "it has changed since", title="Precondition failed", where=call.name)
    return fake.add_node(**spec)


def delete_node(fake: FakeServer, call: Call) -> tuple[int, None]:
    fake.node(call.name)
    del fake.nodes[call.name]
    return 204, None


def set_desires(fake: FakeServer, call: Call) -> tuple[int, Json]:
    body = call.fields("select set unset if_match")
    chosen = fake.select(body["select"])
    if len(chosen) > fake.job_above:
        return 202, fake.job(len(chosen))
    fake.revision += 1
    for node in chosen:
        for variable, values in body["set"].items():
            node["desires"][variable] = {
                "values": values,
                "author": "admin",
                "revision": fake.revision,
                "origin": "node",
            }
        for variable in body["unset"]:
            node["desires"].pop(variable, None)
    results = [{"node": node["name"], "ok": True, "status": 200, "error": ""} for node in chosen]
    return 200, {"results": results, "changed": len(chosen), "revision": fake.revision}


def apply_documents(fake: FakeServer, call: Call) -> Json:
    body = {"groups": [], "nodes": [], "prune": False} | call.fields("documents prune dry_run nodes groups")
    changes = _applied_nodes(fake, body) + _applied_groups(fake, body)
    known = {*fake.groups, *(group["name"] for group in body["groups"])}
    for document in body["documents"]:
        old = fake.documents.get(document["name"])
        action = "created" if old is None else "unchanged" if old == document else "changed"
        group = document["select"].removeprefix("@")
        missing = [group] if document["select"].startswith("@") and group not in known else []
        changes.append(_applied("desire", document["name"], action, len(fake.nodes), missing))
    if body["prune"]:
        gone = set(fake.documents) - {document["name"] for document in body["documents"]}
        changes += [_applied("desire", name, "deleted", 0) for name in sorted(gone)]
    if not body["dry_run"]:
        if body["prune"]:
            fake.documents.clear()
        fake.documents |= {document["name"]: document for document in body["documents"]}
    return {"changes": changes, "dry_run": body["dry_run"], "revision": fake.revision}


def _applied(kind: str, name: str, action: str, nodes: int, missing: list[str] | None = None) -> Json:
    return {"kind": kind, "name": name, "action": action, "nodes": nodes, "detail": "", "missing": missing or []}


def _applied_nodes(fake: FakeServer, body: Json) -> list[Json]:
    fresh = [spec for spec in body["nodes"] if spec["name"] not in fake.nodes]
    there = [spec for spec in body["nodes"] if spec["name"] in fake.nodes]
    stale = [spec for spec in there if any(fake.nodes[spec["name"]][key] != value for key, value in spec.items())]
    if not body["dry_run"]:
        for spec in fresh:
            fake.add_node(**spec)
        for spec in stale:
            fake.nodes[spec["name"]].update(spec)
    found = [
        _applied("node", fold(spec["name"] for spec in specs), action, len(specs))
        for specs, action in ((fresh, "created"), (stale, "changed"))
        if specs
    ]
    same = len(there) - len(stale)
    return found + ([_applied("node", "", "unchanged", same)] if same else [])


def _applied_groups(fake: FakeServer, body: Json) -> list[Json]:
    found = []
    for group in body["groups"]:
        old = fake.groups.get(group["name"])
        made = {"description": "", **(old or {"count": 0, "revision": 1}), **group}
        action = "created" if old is None else "unchanged" if old == made else "changed"
        found.append(_applied("group", group["name"], action, 0))
        if not body["dry_run"]:
            fake.groups[group["name"]] = made
    return found


def hold_nodes(fake: FakeServer, call: Call) -> Json:
    body = call.fields("select reason")
    chosen = [node for node in fake.select(body["select"]) if node["hold"] is None]
    for node in chosen:
        node["hold"] = {"node": node["name"], "reason": body["reason"], "author": "admin", "since": time.time()}
        node["state"] = "held"
    return {"changed": len(chosen), "nodeset": fold(n["name"] for n in chosen), "errors": [], "revision": fake.revision}


def release_nodes(fake: FakeServer, call: Call) -> Json:
    chosen = [node for node in fake.select(call.query["select"]) if node["hold"] is not None]
    for node in chosen:
        node["hold"], node["state"] = None, "ready"
    return {"changed": len(chosen), "nodeset": fold(n["name"] for n in chosen), "errors": [], "revision": fake.revision}


def retry_nodes(fake: FakeServer, call: Call) -> Json:
    chosen = [node for node in fake.select(call.fields("select")["select"]) if node["state"] == "faulted"]
    for node in chosen:
        node["state"] = "converging"
    return {"changed": len(chosen), "nodeset": fold(n["name"] for n in chosen), "errors": [], "revision": fake.revision}


def freeze(fake: FakeServer, call: Call) -> tuple[int, Json]:
    body = call.fields("scope reason")
    fake.freezes[body["scope"]] = {**body, "author": "admin", "since": 1_700_000_000.0}
    return 201, fake.freezes[body["scope"]]


def thaw(fake: FakeServer, call: Call) -> tuple[int, None]:
    if fake.freezes.pop(call.name, None) is None:
        raise Refusal(404, "not frozen", title="Not found", where=call.name)
    return 204, None


def put_group(fake: FakeServer, call: Call) -> Json:
    body = call.fields("members description")
    old = fake.groups.get(call.name)
    if call.headers.get("If-None-Match") == "*" and old is not None:
        raise Refusal(412, "is there already", title="Precondition failed", where=call.name)
    members = fold(expand(body.get("members", old["members"] if old else "")))
    return _put_group(fake, call.name, members, body.get("description", ""))


def _put_group(fake: FakeServer, name: str, members: str, description: str) -> Json:
    fake.revision += 1
    fake.groups[name] = {
        "name": name,
        "members": members,
        "description": description,
        "count": len(expand(members)),
        "revision": fake.revision,
    }
    return fake.groups[name]


def show_group(fake: FakeServer, call: Call) -> Json:
    if call.name not in fake.groups:
        raise Refusal(404, "no such group", title="Not found", where=call.name)
    return fake.groups[call.name]


def change_members(fake: FakeServer, call: Call) -> Json:
    body = call.fields("add remove")
    group = show_group(fake, call)
    members = (set(expand(group["members"])) | set(expand(body.get("add", "")))) - set(expand(body.get("remove", "")))
    return _put_group(fake, call.name, fold(members), group["description"])


def delete_group(fake: FakeServer, call: Call) -> tuple[int, None]:
    show_group(fake, call)
    del fake.groups[call.name]
    return 204, None


def show_job(fake: FakeServer, call: Call) -> Json:
    if call.name not in fake.jobs:
        raise Refusal(404, "no such operation", title="Not found", where=call.name)
    job = fake.jobs[call.name]
    if job["state"] == "running":
        job["_steps"] -= 1
        if job["_steps"] <= 0:
            job.update(state="done", done=job["total"], finished=job["created"] + 5)
    return {key: value for key, value in job.items() if key != "_steps"}


def cancel_operation(fake: FakeServer, call: Call) -> Json:
    job = show_job(fake, call)
    if job["state"] != "running":
        raise Refusal(409, f"the operation is {job['state']}", title="Conflict", where=call.name)
    if fake.jobs_linger:
        return job
    fake.jobs[call.name]["state"] = "cancelled"
    return {**job, "state": "cancelled"}


def mint_token(fake: FakeServer, call: Call) -> tuple[int, Json]:
    body = call.fields("role scope ttl note")
    ident = f"{len(fake.tokens):016x}"
    view = {
        **body,
        "id": ident,
        "created": 1_700_000_000.0,
        "expires": 1_700_000_000.0 + body["ttl"],
        "author": "admin",
    }
    view.pop("ttl")
    fake.tokens[ident] = view
    return 201, {"token": f"strata_{ident}_topsecret", "view": view}


def issue_certificate(fake: FakeServer, call: Call) -> tuple[int, Json]:
    body = call.fields("name role scope ttl csr")
    key = "" if body.get("csr") else "THE KEY\n"
    return 201, {
        "serial": "5A0C",
        "certificate": "THE CERT\n",
        "key": key,
        "ca": "THE CA\n",
        "expires": 1_800_000_000.0,
    }


def show_status(fake: FakeServer, call: Call) -> Json:
    by_state: dict[str, int] = {}
    for node in fake.nodes.values():
        by_state[node["state"]] = by_state.get(node["state"], 0) + 1
    return {
        "version": "0.1.0",
        "controller": "here",
        "started": time.time() - 90,
        "nodes": len(fake.nodes),
        "by_state": by_state,
        "queue": {"in_flight": 3},
        "shards": [{"shard": 0, "leader": "here", "epoch": 4}, {"shard": 1, "leader": "", "epoch": 0}],
        "freezes": len(fake.freezes),
        "holds": 0,
        "canaries": fake.canaries,
        "troubles": fake.troubles,
        "revision": fake.revision,
    }


def put_log_level(fake: FakeServer, call: Call) -> Json:
    fake.log_level = call.fields("level")["level"]
    return {"level": fake.log_level}


def _document(fake: FakeServer, call: Call) -> Json:
    if call.name not in fake.documents:
        raise Refusal(404, "no such document", title="Not found", where=call.name)
    return _document_view(fake.documents[call.name])


def _document_view(document: Json) -> Json:
    return {"author": "admin", "revision": 5, "matches": 2, "priority": 0, **document}


def delete_document(fake: FakeServer, call: Call) -> tuple[int, None]:
    _document(fake, call)
    del fake.documents[call.name]
    return 204, None


def delete_token(fake: FakeServer, call: Call) -> tuple[int, None]:
    if fake.tokens.pop(call.name, None) is None:
        raise Refusal(404, "no such token", title="Not found", where=call.name)
    return 204, None


def _plan_node(fake: FakeServer, call: Call) -> Json:
    return {"node": fake.node(call.name)["name"], **fake.node_plan}


def _past(fake: FakeServer, call: Call) -> Json:
    return {"node": fake.node(call.name)["name"], "time": float(call.query["time"]), "facts": {"power": "on"}}


WHO = {"name": "local-admin", "role": "admin", "scope": [], "via": "socket", "rights": ["read node"]}
BACKUP = {"path": "/state/backups/b1", "revision": 9, "bytes": 4096}

ROUTES: list[tuple[str, str, str, Callable[[FakeServer, Call], Any]]] = [
    ("GET", "/v1/nodes", "select state sort limit cursor fields folded", list_nodes),
    ("POST", "/v1/nodes", "", create_nodes),
    ("GET", "/v1/nodes/([^/]+)", "", lambda fake, call: fake.node(call.name)),
    ("PUT", "/v1/nodes/([^/]+)", "", put_node),
    ("DELETE", "/v1/nodes/([^/]+)", "", delete_node),
    ("GET", "/v1/nodes/([^/]+)/why", "", lambda fake, call: {"node": fake.node(call.name)["name"], **fake.why}),
    ("GET", "/v1/why", "select", lambda fake, call: {"items": [fake.why], "total": 1, "unasked": 0}),
    ("GET", "/v1/history", "select since until limit", lambda fake, call: {"items": fake.history}),
    ("GET", "/v1/alerts", "all limit cursor", lambda fake, call: _page(fake, call, fake.alerts)),
    ("GET", "/v1/rollouts", "", lambda fake, call: {"items": fake.rollouts}),
    ("GET", "/v1/images", "", lambda fake, call: {"items": fake.images}),
    ("GET", "/v1/nodes/([^/]+)/plan", "set", _plan_node),
    ("GET", "/v1/nodes/([^/]+)/at", "time", _past),
    ("POST", "/v1/desires", "", set_desires),
    ("POST", "/v1/plan", "", lambda fake, call: fake.plan if call.fields("select set documents") else {}),
    ("POST", "/v1/apply", "", apply_documents),
    ("GET", "/v1/documents", "", lambda f, c: {"items": [_document_view(d) for d in f.documents.values()]}),
    ("GET", "/v1/documents/([^/]+)", "", _document),
    ("DELETE", "/v1/documents/([^/]+)", "", delete_document),
    ("POST", "/v1/holds", "", hold_nodes),
    ("DELETE", "/v1/holds", "select", release_nodes),
    ("POST", "/v1/retries", "", retry_nodes),
    ("GET", "/v1/freezes", "", lambda fake, call: {"items": list(fake.freezes.values())}),
    ("POST", "/v1/freezes", "", freeze),
    ("DELETE", "/v1/freezes/([^/]+)", "", thaw),
    ("GET", "/v1/groups", "", lambda fake, call: {"items": list(fake.groups.values())}),
    ("GET", "/v1/groups/([^/]+)", "", show_group),
    ("PUT", "/v1/groups/([^/]+)", "", put_group),
    ("DELETE", "/v1/groups/([^/]+)", "", delete_group),
    ("POST", "/v1/groups/([^/]+)/members", "", change_members),
    ("GET", "/v1/operations", "limit cursor", lambda f, c: _page(f, c, [dict(j) for j in f.jobs.values()][::-1])),
    ("GET", "/v1/operations/([^/]+)", "", show_job),
    ("POST", "/v1/operations/([^/]+)/cancel", "", cancel_operation),
    ("POST", "/v1/auth/tokens", "", mint_token),
    ("GET", "/v1/auth/tokens", "", lambda fake, call: {"items": list(fake.tokens.values())}),
    ("DELETE", "/v1/auth/tokens/([^/]+)", "", delete_token),
    ("POST", "/v1/auth/certificates", "", issue_certificate),
    ("DELETE", "/v1/auth/certificates/([^/]+)", "", lambda fake, call: (204, None)),
    ("GET", "/v1/auth/whoami", "", lambda fake, call: WHO),
    ("GET", "/v1/auth/oidc", "", lambda fake, call: fake.login_way),
    ("GET", "/v1/audit", "since limit cursor", lambda fake, call: _page(fake, call, fake.audit)),
    ("GET", "/v1/audit/verify", "", lambda fake, call: fake.audit_verdict),
    ("POST", "/v1/store/backup", "", lambda fake, call: (201, BACKUP)),
    ("GET", "/v1/store/check", "", lambda fake, call: fake.store_check),
    ("GET", "/v1/status", "", show_status),
    ("GET", "/v1/health", "", lambda fake, call: {"alive": True}),
    ("GET", "/v1/ready", "", lambda fake, call: {"ready": True}),
    ("GET", "/v1/config/log-level", "", lambda fake, call: {"level": fake.log_level}),
    ("PUT", "/v1/config/log-level", "", put_log_level),
]


def event(kind: str, data: Json, revision: int) -> bytes:
    """One server-sent event as it is on the wire."""
    return f"id: {revision}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()
