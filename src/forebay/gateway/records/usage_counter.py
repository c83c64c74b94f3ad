"""Counts usage from the stream of ended requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from forebay.records.usage import HOUR_S, UsageBook, UsageCounts, UsageKey, storable

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.gateway.hot.ended import EndedBatch

BATCHES_MAX: Final = 64
"""Batches that wait to be counted; more are counted at once."""
LABELS_MAX: Final = 4000


class UsageCounter:
    """Takes batches as they come and counts them later, so that no tick of the stream is long."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        """`name_of` returns the name of an owner's key: the user of its jobs."""
        self._name_of = name_of
        self.book = UsageBook()
        self.tokens_by_key: dict[tuple[str, str], int] = {}
        """Since the start, by key and kind; requests without a key are not in it."""
        self._batches: list[EndedBatch] = []

    def take(self, batch: EndedBatch) -> None:
        if len(self._batches) < BATCHES_MAX:
            self._batches.append(batch)
        else:
            self._count(batch)

    async def count(self) -> None:
        """Count what has come, one batch in a turn of the loop."""
        batches, self._batches = self._batches, []
        for batch in batches:
            self._count(batch)
            await asyncio.sleep(0)

    def _count(self, batch: EndedBatch) -> None:
        sums: dict[tuple[str, str, str], list[int]] = {}
        for ended in batch.requests:
            arrival = ended.arrival
            if arrival is None or ended.arrived_s < 0.0:
                continue  # it never reached the queue
            model = ended.model if ended.node else ""
            whose = (arrival.key, arrival.user, model)
            counts = sums.get(whose)
            if counts is None:
                counts = sums[whose] = [0, 0, 0]
            counts[0] += 1
            if ended.node:
                told = ended.prompt_tokens
                counts[1] += told if told > 0 else arrival.prompt_tokens
                counts[2] += max(0, ended.output_tokens)
        hour = int(batch.time.timestamp()) // HOUR_S
        for (key, user, model), (requests, prompt, output) in sums.items():
            whole = UsageKey(hour, key, storable(user or self._name_of(key)), storable(model))
            self.book.add(whole, UsageCounts(requests, prompt, output))
            if key:
                self._count_tokens((key, "prompt"), prompt)
                self._count_tokens((key, "output"), output)

    def _count_tokens(self, label: tuple[str, str], tokens: int) -> None:
        known = self.tokens_by_key.get(label)
        if known is not None or len(self.tokens_by_key) < LABELS_MAX:
            self.tokens_by_key[label] = (known or 0) + tokens
