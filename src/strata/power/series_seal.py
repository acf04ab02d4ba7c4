"""Closes chunks: what was open in memory is packed, summed up and put on the shelf for good."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np

from strata.power.downsample import Fold, Matrix
from strata.power.series import Metric, Uids
from strata.power.series_codec import BLOCK, encode_rows, encode_summary
from strata.power.series_open import Book, OpenChunk, summed
from strata.power.series_pieces import Pieces
from strata.power.series_shelf import LEVELS, Sealed, Shelf


def seal(shelf: Shelf, book: Book, chunk: OpenChunk, hold: float) -> None:
    """Put a minute on the shelf, and the longer chunks that it completes."""
    order = book.sorted_columns()
    times, spread, values = chunk.rows(order)
    uids = book.uids[order]
    there = ~np.isnan(values).all(axis=0)
    if not there.all():
        uids, values = uids[there], values[:, there]
    if len(uids):
        fold = Fold(book.metric, len(uids), hold)
        for index, time in enumerate(times):
            fold.row(float(time), values[index], float(spread[index]))
        sums, counts = summed(book.metric, values)
        blocks = [values[:, first : first + BLOCK] for first in range(0, len(uids), BLOCK)]
        shelf.put(
            Sealed(
                metric=book.metric.name,
                level=LEVELS[0],
                start=chunk.start,
                uids=uids,
                times=times,
                spread=spread,
                sums=sums,
                counts=counts,
                rows=[encode_rows(book.metric, block) for block in blocks],
                summaries=_summaries(book.metric, fold.summary, chunk.start),
            )
        )
    for finer, level in pairwise(LEVELS):
        for end in sorted(_completed(book.sealed_until, chunk, level)):
            _sum_up(shelf, book.metric, finer, level, end, hold)


def _completed(before: int, chunk: OpenChunk, level: int) -> set[int]:
    """The ends of the chunks of ``level`` to which nothing can be added once this minute is closed."""
    ends = {chunk.end} if chunk.end % level == 0 else set()
    # Time may have passed without samples since the last one.
    begun = -(-before // level) * level
    return ends | ({begun} if before < begun <= chunk.start else set())


def _sum_up(shelf: Shelf, metric: Metric, finer: int, level: int, end: int, hold: float) -> None:
    pieces = Pieces(metric, shelf, (), hold)
    heads = [head for head in pieces.heads(finer, end - level, end) if head.writer == shelf.writer]
    if not heads:
        return
    rosters = {id(head.uids): head.uids for head in heads}
    uids: Uids = reduce(np.union1d, rosters.values())
    fold = Fold(metric, len(uids), hold)
    for head in heads:
        fold.absorb(pieces.summary(head, uids))
    none = np.empty(0)
    shelf.put(
        Sealed(
            metric=metric.name,
            level=level,
            start=end - level,
            uids=uids,
            times=none,
            spread=none,
            sums=none,
            counts=np.empty(0, np.int64),
            rows=(),
            summaries=_summaries(metric, fold.summary, end - level),
        )
    )


def _summaries(metric: Metric, summary: Matrix, origin: int) -> list[bytes]:
    return [
        encode_summary(metric, summary[:, first : first + BLOCK], origin) for first in range(0, summary.shape[1], BLOCK)
    ]
