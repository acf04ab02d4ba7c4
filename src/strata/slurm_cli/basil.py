"""``apbasil``: a BASIL request (XML) on standard input, its response on standard output. Inventory only, read-only.

Speaks protocols 1.0 to 1.7. Like the original it ends with 0 whenever it has a response, also one that says FAILURE. A
request with a document type is refused before any entity in it is looked at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from strata.capmc_cli.wire import Failed, request
from strata.slurm_cli.power import place_of, settings, token_of, usage

PROTOCOLS = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7")
_SOCKETS_SINCE = PROTOCOLS.index("1.3")
_LONGEST, _DEEPEST = 1 << 20, 20
_PAGE_KB = 4
_USAGE = """usage: apbasil [FILE]

Answers a BASIL request (XML) from FILE or standard input. It takes queries of INVENTORY and ENGINE.
"""


class Refused(Exception):
    """No response but FAILURE. ``kind``: what BASIL calls the class and the source of the error."""

    def __init__(self, told: str, kind: str = "PERMANENT", source: str = "PARSER") -> None:
        super().__init__(told)
        self.kind = kind
        self.source = source


def main() -> None:
    """The command."""
    arguments = sys.argv[1:]
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        sys.exit(usage(_USAGE, arguments))
    if arguments:
        try:
            with open(arguments[0], "rb") as file:  # noqa: PTH123
                text = file.read(_LONGEST + 1)
        except OSError as error:
            sys.exit(f"apbasil: {arguments[0]}: {error.strerror}")
    else:
        text = sys.stdin.buffer.read(_LONGEST + 1)
    sys.stdout.write("".join(respond(text)))


def respond(text: bytes) -> Iterator[str]:
    """The response to a request, in pieces."""
    protocol, method = PROTOCOLS[-1], "UNDEFINED"
    yield '<?xml version="1.0"?>\n'
    try:
        protocol, method, kind = asked(text)
        found = None if kind == "ENGINE" else _inventory()
    except (Refused, Failed) as error:
        kind, source = (error.kind, error.source) if isinstance(error, Refused) else ("TRANSIENT", "BACKEND")
        yield f'<BasilResponse protocol="{protocol}">\n <ResponseData status="FAILURE" method="{method}" '
        yield f'error_class="{kind}" error_source="{source}">\n'
        yield f'  <Message severity="ERROR">{_text(str(error))}</Message>\n </ResponseData>\n</BasilResponse>\n'
        return
    yield f'<BasilResponse protocol="{protocol}">\n <ResponseData status="SUCCESS" method="QUERY" type="{kind}">\n'
    if found is None:
        yield f'  <Engine name="Strata" version="1.0" basil_support="{",".join(PROTOCOLS)}"/>\n'
    else:
        yield from _shown(found, PROTOCOLS.index(protocol) >= _SOCKETS_SINCE)
    yield " </ResponseData>\n</BasilResponse>\n"


def asked(text: bytes) -> tuple[str, str, str]:
    """Protocol, method and type of a request that can be answered."""
    from xml.parsers import expat

    if len(text) > _LONGEST:
        raise Refused(f"more than {_LONGEST} bytes")
    first: dict[str, str] = {}
    depth = 0

    def doctype(*_: object) -> None:
        raise Refused("a document type is not accepted")

    def begin(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise Refused("nested too deeply")
        if depth == 1:
            first.update(attributes)
            first["<"] = name

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = doctype
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise Refused(f"not XML: {error}") from None
    protocol, method, kind = first.get("protocol", ""), first.get("method", ""), first.get("type", "")
    if first.get("<") != "BasilRequest":
        raise Refused("not a BasilRequest")
    if protocol not in PROTOCOLS:
        raise Refused(f"protocol {protocol[:20]!r} is not spoken: {', '.join(PROTOCOLS)}")
    if method != "QUERY" or kind not in ("INVENTORY", "ENGINE"):
        raise Refused(f"{method[:20]} {kind[:20]} is not offered: only QUERY of INVENTORY and ENGINE", source="BACKEND")
    return protocol, method, kind


def _inventory() -> dict[str, object]:
    chosen = settings()
    status, body = request("GET", "/v1/basil/inventory", b"", place_of(chosen), token_of(chosen.get("token_file", "")))
    try:
        found = json.loads(body)
        if status != 200:
            raise Failed(f"{found['detail']} ({status})")
        return {"time": int(found["time"]), "items": found["items"]}
    except (ValueError, KeyError, TypeError):
        raise Failed(f"the service says {status}") from None


def _shown(found: dict, sockets: bool) -> Iterator[str]:  # type: ignore[type-arg]
    yield f'  <Inventory mpp_host="strata" timestamp="{found["time"]}">\n   <NodeArray changecount="1">\n'
    for alike in found["items"]:
        inner = "".join(_hardware(alike, sockets))
        for nid, name in zip(alike["nids"], alike["names"], strict=True):
            yield (
                f'    <Node node_id="{nid}" name="{_text(name)}" architecture="XT" role="{alike["role"]}" '
                f'state="{alike["state"]}">\n{inner}    </Node>\n'
            )
    yield "   </NodeArray>\n   <ReservationArray/>\n  </Inventory>\n"


def _hardware(alike: dict, sockets: bool) -> Iterator[str]:  # type: ignore[type-arg]
    """What is in each of the nodes."""
    architecture = _text(alike["architecture"])
    pages = alike["memory"] * 1024 // _PAGE_KB // max(1, alike["sockets"])
    memory = (
        f'<MemoryArray><Memory type="OS" page_size_kb="{_PAGE_KB}" page_count="{pages}"/></MemoryArray><LabelArray/>'
    )
    threads = range(alike["threads"])
    yield "     <SocketArray>\n" if sockets else "     <SegmentArray>\n"
    for socket in range(alike["sockets"]):
        if sockets:
            unit = "".join(f'<Processor ordinal="{thread}"/>' for thread in threads)
            units = "".join(
                f'<ComputeUnit ordinal="{core}"><ProcessorArray>{unit}</ProcessorArray></ComputeUnit>'
                for core in range(alike["cores"])
            )
            yield (
                f'      <Socket ordinal="{socket}" architecture="{architecture}" clock_mhz="0"><SegmentArray>'
                f'<Segment ordinal="0"><ComputeUnitArray>{units}</ComputeUnitArray>{memory}</Segment>'
                "</SegmentArray></Socket>\n"
            )
        else:
            every = "".join(
                f'<Processor ordinal="{ordinal}" architecture="{architecture}" clock_mhz="0"/>'
                for ordinal in range(alike["cores"] * alike["threads"])
            )
            yield f'      <Segment ordinal="{socket}"><ProcessorArray>{every}</ProcessorArray>{memory}</Segment>\n'
    yield "     </SocketArray>\n" if sockets else "     </SegmentArray>\n"
    if alike["accelerators"] and sockets:
        cards = "".join(
            f'<Accelerator ordinal="{ordinal}" type="GPU" state="UP" family="{_text(family)}"/>'
            for ordinal, family in enumerate(alike["accelerators"])
        )
        yield f"     <AcceleratorArray>{cards}</AcceleratorArray>\n"


def _text(text: str) -> str:
    for bad, good in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(bad, good)
    return "".join(one if one.isprintable() else "?" for one in text)
