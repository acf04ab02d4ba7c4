"""``bench/api.py`` runs and says what is documented; its load generator takes nothing for an answer that is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bench_support import figures
from load import Door, load, request

MEASURED = ("rps", "p50_ms", "p99_ms", "cpu_us", "client_cores")


@pytest.mark.slow
@pytest.mark.server
def test_every_route_is_measured_through_both_doors_and_held_against_nginx(scratch: Path) -> None:
    found = figures(scratch, "api.py", "--nodes", "500", "--seconds", "0.2", "--connections", "4")
    for name in ("one_node", "list_100", "tls_one_node", "tls_list_100"):
        for figure in MEASURED:
            assert found[f"{name}_{figure}"] >= 0
            assert found[f"nginx_{name}_{figure}"] >= 0
        ratio = found[f"{name}_rps"] / found[f"nginx_{name}_rps"]
        assert found[f"{name}_ratio"] == pytest.approx(ratio, rel=0.01)
        assert found[f"{name}_p50_ms"] <= found[f"{name}_p99_ms"]
    assert found["list_100_bytes"] > 50 * found["one_node_bytes"]


def test_an_answer_in_pieces_counts_once(scratch: Path) -> None:
    path = _server(
        scratch, lambda connection: _in_pieces(connection, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd")
    )
    found = load(Door(path), request("GET", "/"), connections=1, seconds=0.05)
    assert found.requests >= 1
    assert found.rate == pytest.approx(found.requests / found.seconds)


def test_an_error_ends_the_run(scratch: Path) -> None:
    path = _server(scratch, lambda connection: connection.sendall(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"))
    with pytest.raises(SystemExit, match="503"):
        load(Door(path), request("GET", "/"), connections=1, seconds=0.05)


def test_a_server_that_hangs_up_ends_the_run(scratch: Path) -> None:
    path = _server(scratch, lambda connection: connection.shutdown(socket.SHUT_RDWR))
    with pytest.raises(SystemExit, match="hung up"):
        load(Door(path), request("GET", "/"), connections=1, seconds=0.05)


def _in_pieces(connection: socket.socket, data: bytes) -> None:
    for place in range(0, len(data), 7):
        connection.sendall(data[place : place + 7])


def _server(directory: Path, answer: Callable[[socket.socket], None]) -> str:
    """Takes one connection and answers whatever comes in on it, until the client hangs up."""
    path = str(directory / "s")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            while connection.recv(65536):
                try:
                    answer(connection)
                except OSError:
                    return

    threading.Thread(target=serve, daemon=True).start()
    return path
