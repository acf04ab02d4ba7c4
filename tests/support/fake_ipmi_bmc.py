"""An IPMI BMC made of pyghmi's, in a process of its own: it keeps state, and misbehaves when told to.

As a module: ``FakeIpmiBmc`` starts one and talks to it. As a program: the BMC; commands come as JSON lines on standard
input, and each is answered with its whole state as one JSON line.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import queue
import struct
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

USER, PASSWORD = "strata", "s3cret-of-bmc"


class FakeIpmiBmc:
    """A BMC that runs. ``options``: fields of ``_State`` to start with."""

    def __init__(self, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self._answer()["port"])
        self.address = f"ipmi://127.0.0.1:{self.port}"

    def tell(self, **fields: Any) -> dict[str, Any]:
        """Change its state (``say``: print on the console; ``forget``: all sessions); how it is afterwards."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields) + "\n")
        self._process.stdin.flush()
        return self._answer()

    @property
    def state(self) -> dict[str, Any]:
        """How it is."""
        return self.tell()

    def until(self, **fields: Any) -> None:
        """Wait until its state is so."""
        end = time.monotonic() + 60
        while any(self.state[name] != value for name, value in fields.items()):
            assert time.monotonic() < end, f"not {fields}: {self.state}"
            time.sleep(0.02)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


def ipmitool(bmc: FakeIpmiBmc, *words: str, suite: int = 3) -> str:
    """What ipmitool, which is somebody else's, says to the same BMC."""
    command = ["ipmitool", "-I", "lanplus", "-C", str(suite), "-H", "127.0.0.1", "-p", str(bmc.port)]
    done = subprocess.run(
        [*command, "-U", USER, "-E", "-N", "2", "-R", "1", *words],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "IPMI_PASSWORD": PASSWORD},
        check=False,
    )
    return (done.stdout + done.stderr).strip()


# -- the BMC itself

SENSORS = {
    # number: (name, type, base unit, M, raw, upper critical raw)
    1: ("CPU1 Temp", 1, 1, 1, 47, 95),
    2: ("FAN1", 4, 18, 100, 83, 250),
    3: ("12V", 2, 4, 1, 12, 15),
}


def _full_record(number: int, follows: int) -> bytes:
    name, kind, unit, factor, _, high = SENSORS[number]
    body = bytearray(43)
    body[0], body[1], body[2], body[3], body[4] = 0x20, 0, number, 7, 1
    body[6], body[7], body[8] = 0x08, kind, 1
    body[13] = 0x10  # upper critical can be read
    body[16] = unit
    body[19] = factor
    body[32] = high
    body[42] = 0xC0 | len(name)
    body += name.encode()
    return struct.pack("<HBBB", number, 0x51, 1, len(body)) + bytes(body)


def _locator(record: int, fru: int, entity: int, name: str) -> bytes:
    body = bytes((0x20, fru, 0x80, 0, 0, 0x10, 0, entity, 1, 0, 0xC0 | len(name))) + name.encode()
    return struct.pack("<HBBB", record, 0x51, 0x11, len(body)) + body


def _area(*texts: str, lead: bytes = b"") -> bytes:
    fields = b"".join(bytes((0xC0 | len(text),)) + text.encode() for text in texts) + b"\xc1"
    body = lead + fields
    length = -(-(len(body) + 3) // 8)
    body = bytes((1, length)) + body
    body = body.ljust(length * 8 - 1, b"\x00")
    return body + bytes((-sum(body) & 0xFF,))


def _fru(maker: str, product: str, part: str, serial: str) -> bytes:
    board = _area(maker, product, serial, part, "", lead=b"\x00\x00\x00\x00")
    made = _area(maker, product, part, "1", serial, "", "", lead=b"\x00")
    head = bytes((1, 0, 0, 1, 1 + len(board) // 8, 0, 0))
    return head + bytes((-sum(head) & 0xFF,)) + board + made


FRUS = {0: _fru("Acme", "Node 9000", "N9K", "SN0042"), 5: _fru("Memco", "DDR5 64G", "M64", "MEM77")}


class _State:
    """What the BMC remembers, and how it misbehaves."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.power = "off"
        self.controls: list[int] = []
        """Chassis controls that arrived."""
        self.refuses: list[int] = []
        """Chassis controls that it says it cannot do."""
        self.boot = [0, 0]
        self.light = False
        self.log: list[str] = []
        self.limit: int | None = None
        self.active = False
        self.passwords: dict[str, str] = {}
        self.sessions = 0
        self.suites = [3]
        self.lies = False
        """Agrees to any suite, and then answers with none."""
        self.silent = False
        self.loses: list[int] = []
        """Commands whose effect happens and whose answer is lost."""
        self.console = True
        self.lacks: list[list[int]] = []
        """(netfn, command) that it does not know."""
        self.pieces = False
        """Cannot return whole records."""
        self.neighbours = False
        """Its repository also tells of another controller in the chassis, with sensors of the same numbers."""
        vars(self).update(options)


def main() -> None:
    """Run the BMC."""
    from pyghmi.ipmi import bmc as ipmi_bmc
    from pyghmi.ipmi.private import constants, serversession, session

    session.ipv6support = False
    session.myself = "127.0.0.1"
    state = _State(json.loads(sys.argv[1]))

    class ServerSession(serversession.ServerSession):  # type: ignore[misc]
        """With cipher suite 17, which pyghmi's lacks."""

        def create_open_session_response(self, request: bytearray) -> bytearray:
            asked = request[12]
            self.currhashlib, self.currhashlen = (hashlib.sha256, 16) if asked == 3 else (hashlib.sha1, 12)
            self.clientsessionid, self.managedsessionid = request[4:8], os.urandom(4)
            self.privlevel = 4
            known = {3: 17, 1: 3, 0: 0}.get(asked) in state.suites
            if not known and not state.lies:
                return bytearray((request[0], 0x11, 4, 0)) + self.clientsessionid
            numbers = (0, 0, 0) if state.lies else (asked, 4 if asked == 3 else 1, 1)
            answer = bytearray((request[0], 0, 4, 0)) + self.clientsessionid + self.managedsessionid
            for kind, number in enumerate(numbers):
                answer += struct.pack("<BxxBBxxx", kind, 8, number)
            return answer

        def _mac(self, key: bytes, data: bytes) -> bytes:
            return hmac.new(key, bytes(data), self.currhashlib).digest()

        def _got_rakp1(self, data: bytearray) -> None:
            self.Rm, self.rolem, self.username = data[8:24], data[24], bytes(data[28:])
            self.maxpriv = self.rolem & 7
            password = self.authdata.get(self.username.decode())
            if password is None:
                refusal = bytearray((data[0], 0x0D, 0, 0)) + self.clientsessionid
                self.send_payload(refusal, constants.payload_types["rakp2"], retry=False)
                return
            self.kuid = self.kg = password.encode()
            self.uuiddata, self.Rc = self.uuid.bytes, os.urandom(16)
            self.who = bytes((self.rolem, len(self.username))) + self.username
            proof = self._mac(
                self.kuid, self.clientsessionid + self.managedsessionid + self.Rm + self.Rc + self.uuiddata + self.who
            )
            answer = bytearray((data[0], 0, 0, 0)) + self.clientsessionid + self.Rc + self.uuiddata + proof
            self.send_payload(answer, constants.payload_types["rakp2"], retry=False)

        def _got_rakp3(self, data: bytearray) -> None:
            expected = self._mac(self.kuid, self.Rc + self.clientsessionid + self.who)
            if bytes(data[8:]) != expected:
                refusal = bytearray((data[0], 0x0F, 0, 0)) + self.clientsessionid
                self.send_payload(refusal, constants.payload_types["rakp4"], retry=False)
                return
            self.sik = self._mac(self.kg, self.Rm + self.Rc + self.who)
            self.k1, self.k2 = self._mac(self.sik, b"\x01" * 20), self._mac(self.sik, b"\x02" * 20)
            self.aeskey = self.k2[:16]
            self.localsid = struct.unpack("<I", self.managedsessionid)[0]
            self.ipmicallback = self.handle_client_request
            proof = self._mac(self.sik, self.Rm + self.managedsessionid + self.uuiddata)[: self.currhashlen]
            answer = bytearray((data[0], 0, 0, 0)) + self.clientsessionid + proof
            self.send_payload(answer, constants.payload_types["rakp4"], retry=False)
            self.confalgo, self.integrityalgo, self.sequencenumber = "aes", "yes", 1
            self.sessionid = struct.unpack("<I", bytes(self.clientsessionid))[0]
            state.sessions += 1

        def close_server_session(self) -> None:
            state.sessions -= 1

    serversession.ServerSession = ServerSession

    class Bmc(ipmi_bmc.Bmc):  # type: ignore[misc]
        """The commands."""

        def send_cipher_suites(
            self, myaddr: int, mylun: int, client: int, lun: int, seq: int, data: bytearray, peer: Any
        ) -> None:
            listed = b"".join(bytes((0xC0, suite, 0x01, 0x41, 0x81)) for suite in state.suites)
            body = bytes((client, lun | 7 << 2))
            body += bytes((session._checksum(*body),))
            reply = bytes((myaddr, mylun | seq << 2, 0x54, 0, 1)) + listed
            body += reply + bytes((session._checksum(*reply),))
            head = b"\x06\x00\xff\x07\x06\x00" + bytes(8) + struct.pack("<H", len(body))
            session._io_sendto(self.serversocket, head + body, peer)

        def sessionless_data(self, data: bytes, peer: Any) -> None:
            if not state.silent:
                super().sessionless_data(data, peer)

        def get_system_guid(self) -> uuid.UUID:
            return uuid.UUID("12345678-1234-5678-1234-567812345678")

        def get_power_state(self) -> str:
            return state.power

        def is_active(self) -> bool:
            return state.console

        def control_chassis(self, request: dict[str, Any], to: Any) -> None:
            control = request["data"][0]
            state.controls.append(control)
            if control in state.refuses:
                to.send_ipmi_response(code=0xCC)
                return
            state.power = {0: "off", 1: "on", 2: "on", 3: "on", 5: "off"}.get(control, state.power)
            if 0x02 not in state.loses:
                to.send_ipmi_response()

        def handle_raw_request(self, request: dict[str, Any], to: Any) -> None:
            if state.silent:
                return
            netfn, command, data = request["netfn"], request["command"], bytes(request["data"])
            if [netfn, command] in state.lacks:
                to.send_ipmi_response(code=0xC1)
                return
            answer = self._answer(netfn, command, data)
            if answer is None:
                super().handle_raw_request(request, to)
            elif command not in state.loses:
                to.send_ipmi_response(code=answer[0], data=answer[1:])

        def _answer(self, netfn: int, command: int, data: bytes) -> bytes | None:
            """Completion code and data; None: pyghmi's own."""
            known = {
                0x00: self._chassis,
                0x06: self._application,
                0x0A: self._storage,
                0x04: self._sensor,
                0x2C: self._dcmi,
            }
            return known[netfn](command, data) if netfn in known else b"\xc1"

        def _chassis(self, command: int, data: bytes) -> bytes | None:
            if command == 0x04:
                state.light = len(data) > 1 and bool(data[1] & 1)
                return b"\x00"
            if command == 0x08 and data[0] == 5:
                state.boot = [data[1], data[2]]
                return b"\x00"
            if command == 0x09 and data[0] == 5:
                return bytes((0, 1, 5, *state.boot, 0, 0, 0))
            return None

        def _application(self, command: int, data: bytes) -> bytes | None:
            if command == 0x44:
                return bytes((0, 4, 2, 2, 0x14))
            if command == 0x46:
                name = {1: b"", 2: USER.encode(), 3: b"other"}.get(data[0])
                return b"\xcc" if name is None else b"\x00" + name.ljust(16, b"\x00")
            if command == 0x47:
                state.passwords[str(data[0] & 0x3F)] = data[2:].rstrip(b"\x00").decode()
                return b"\x00"
            return None

        def _storage(self, command: int, data: bytes) -> bytes:
            records = [_full_record(1, 2), _full_record(2, 3), _full_record(3, 4), _locator(4, 5, 32, "DIMM A1")]
            if state.neighbours:
                # What a neighbour has goes by its address, 2Ch: the sixth byte of a record.
                theirs = (_full_record(1, 2).replace(b"CPU1 Temp", b"Node2 CPU"), _locator(5, 5, 32, "DIMM B1"))
                records += [record[:5] + b"\x2c" + record[6:] for record in theirs]
            if command == 0x20:
                return b"\x00\x51" + struct.pack("<HH", len(records), 0xFFFF) + bytes(8) + b"\x02"
            if command in (0x22, 0x42):
                return b"\x00\x07\x00"
            if command == 0x23:
                number, offset, size = struct.unpack_from("<HBB", data, 2)
                at = max(number, 1) - 1
                if state.pieces and size > 32:
                    return b"\xca"
                following = at + 2 if at + 1 < len(records) else 0xFFFF
                part = records[at][offset : offset + size] if size != 0xFF else records[at]
                return b"\x00" + struct.pack("<H", following) + part
            if command == 0x10:
                return b"\x00" + struct.pack("<HB", len(FRUS[data[0]]), 0) if data[0] in FRUS else b"\xcb"
            if command == 0x11:
                fru, offset, size = struct.unpack("<BHB", data)
                part = FRUS[fru][offset : offset + size]
                return b"\xca" if size > 64 else bytes((0, len(part))) + part
            if command == 0x43:
                number = struct.unpack_from("<H", data, 2)[0]
                at = max(number, 1) - 1
                if at >= len(state.log):
                    return b"\xcb"
                following = at + 2 if at + 1 < len(state.log) else 0xFFFF
                return b"\x00" + struct.pack("<H", following) + bytes.fromhex(state.log[at])
            if command == 0x47:
                state.log = []
                return b"\x00\x01"
            if command == 0x48:
                return b"\x00" + struct.pack("<I", int(time.time()))
            return b"\xc1"

        def _sensor(self, command: int, data: bytes) -> bytes:
            if command == 0x2D and data[0] in SENSORS:
                return bytes((0, SENSORS[data[0]][4], 0xC0, 0, 0))
            return b"\xc1"

        def _dcmi(self, command: int, data: bytes) -> bytes:
            if command == 0x02:
                return b"\x00\xdc" + struct.pack("<HHHHII", 345, 100, 400, 300, 0, 1000) + b"\x40"
            if command == 0x03:
                if state.limit is None or not state.active:
                    return b"\x80"
                return b"\x00\xdc" + struct.pack("<xxBHIxxH", 0, state.limit, 6000, 1)
            if command == 0x04:
                state.limit = struct.unpack_from("<H", data, 5)[0]
                return b"\x00\xdc"
            if command == 0x05:
                state.active = bool(data[1])
                return b"\x00\xdc"
            return b"\xc1"

    bmc = Bmc({USER: PASSWORD}, port=0, address="127.0.0.1")
    bmc.port = bmc.serversocket.getsockname()[1]
    typed: list[str] = []
    bmc.iohandler = lambda data: typed.append(data if isinstance(data, str) else data.decode("latin-1"))
    commands: queue.Queue[str | None] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            commands.put(line)
        commands.put(None)

    threading.Thread(target=listen, daemon=True).start()
    print(json.dumps({"port": bmc.port}), flush=True)
    while True:
        session.Session.wait_for_rsp(0.02)
        with contextlib.suppress(queue.Empty):
            line = commands.get_nowait()
            if line is None:
                os._exit(0)
            told = json.loads(line)
            text = told.pop("say", None)
            if told.pop("forget", False):  # as after a restart: it knows of no session any more
                for peer in [key for key in session.Session.bmc_handlers if key is not bmc.serversocket]:
                    del session.Session.bmc_handlers[peer]
                bmc.sol, bmc.activated = None, False
            vars(state).update(told)
            if text is not None and bmc.sol is not None:
                bmc.sol.send_data(text.encode())
            print(json.dumps({**vars(state), "sol": bmc.sol is not None, "typed": "".join(typed)}), flush=True)


if __name__ == "__main__":
    main()
