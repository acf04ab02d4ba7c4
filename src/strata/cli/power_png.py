"""A plot as PNG, with nothing but NumPy and zlib: straight lines, and a font of five by seven dots."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from strata.cli.power_draw import Scene, Stroke, Text

SCALE = 2
"""Dots for each unit of the plot."""

_FONT = bytes.fromhex(
    "000000000000005f00000007000700147f147f14242a7f2a1223130864623649562050000807030000"
    "1c2241000041221c002a1c7f1c2a08083e080800807030000808080808000060600020100804023e51"
    "49453e00427f400072494949462141494d331814127f1027454545393c4a4949314121110907364949"
    "4936464949291e0000140000004034000000081422411414141414004122140802015909063e415d594e"
    "7c1211127c7f494949363e414141227f4141413e7f494949417f090909013e414151737f0808087f00"
    "417f41002040413f017f081422417f404040407f021c027f7f0408107f3e4141413e7f090909063e41"
    "51215e7f09192946264949493203017f01033f4040403f1f2040201f3f4038403f631408146303047804"
    "036159494d43007f4141410204081020004141417f040201020440404040400003070800"
    "20545478407f284444383844444428384444287f385454541800087e090218a4a49c787f0804047800447d"
    "40002040403d007f1028440000417f40007c047804787c080404783844444438fc1824241818242418"
    "fc7c08040408485454542404043f44243c4040207c1c2040201c3c4030403c44281028444c9090907c"
    "4464544c440008364100000077000000413608000201020402"
)
"""Columns of the characters from space to ~, the lowest bit on top."""
_DEGREE = bytes((0x00, 0x06, 0x09, 0x09, 0x06))
_FIRST, _WIDE = 0x20, 5

Picture = npt.NDArray[np.uint8]


def png(scene: Scene) -> bytes:
    """The plot as a file."""
    picture = np.full((scene.height * SCALE, scene.width * SCALE, 3), 255, np.uint8)
    for stroke in scene.strokes:
        _draw(picture, stroke)
    for text in scene.texts:
        _write(picture, text)
    rows = np.concatenate([np.zeros((len(picture), 1), np.uint8), picture.reshape(len(picture), -1)], axis=1)
    size = struct.pack(">IIBBBBB", picture.shape[1], picture.shape[0], 8, 2, 0, 0, 0)
    parts = ((b"IHDR", size), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _draw(picture: Picture, stroke: Stroke) -> None:
    """Straight lines from point to point; a single point is a dot."""
    colour, wide = _colour(stroke.colour), max(1, round(stroke.width * SCALE))
    points = [(x * SCALE, y * SCALE) for x, y in stroke.points]
    for (x, y), (to_x, to_y) in zip(points, points[1:] or points, strict=False):
        steps = int(max(abs(to_x - x), abs(to_y - y))) + 1
        along = np.linspace(0.0, 1.0, steps + 1)
        columns = np.rint(x + along * (to_x - x)).astype(np.int64)
        rows = np.rint(y + along * (to_y - y)).astype(np.int64)
        for across in range(-(wide // 2), wide - wide // 2):
            for down in range(-(wide // 2), wide - wide // 2):
                _dots(picture, rows + down, columns + across, colour)


def _write(picture: Picture, text: Text) -> None:
    dot = SCALE + 1 if text.large else SCALE
    cells = [_glyph(sign) for sign in text.text]
    wide = len(cells) * (_WIDE + 1) * dot
    left = text.x * SCALE - {"start": 0.0, "middle": wide / 2, "end": float(wide)}[text.anchor]
    top = text.y * SCALE - 7 * dot
    for place, cell in enumerate(cells):
        dark = np.kron(cell, np.ones((dot, dot), np.uint8))
        rows, columns = np.nonzero(dark)
        begin = round(left) + place * (_WIDE + 1) * dot
        _dots(picture, rows + round(top), columns + begin, _colour(text.colour))


def _dots(picture: Picture, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], colour: Picture) -> None:
    inside = (rows >= 0) & (rows < picture.shape[0]) & (columns >= 0) & (columns < picture.shape[1])
    picture[rows[inside], columns[inside]] = colour


def _glyph(sign: str) -> Picture:
    at = (ord(sign) - _FIRST) * _WIDE
    if sign == "°":
        columns = _DEGREE
    else:
        at = at if 0 <= at < len(_FONT) else (ord("?") - _FIRST) * _WIDE
        columns = _FONT[at : at + _WIDE]
    bits = np.unpackbits(np.frombuffer(columns, np.uint8)[:, None], axis=1, bitorder="little")
    return bits.T.copy()


def _colour(text: str) -> Picture:
    """``#rgb`` or ``#rrggbb``."""
    digits = text.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    return np.frombuffer(bytes.fromhex(digits), np.uint8)
