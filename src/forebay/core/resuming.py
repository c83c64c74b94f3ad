"""Tickets taken over from another core, with their old place and age.

A core is soft state: whoever has the requests can build it again. What ran goes on running and
holds its lease, even beyond the slots (nothing more starts there until it drains); what waited
stands where it stood, because its sequence number comes with it. Nobody is told anything: those
who wait were told already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.core.arrivals import Arrivals
    from forebay.core.book import Book
    from forebay.core.entries import Entry
    from forebay.core.events import Resumed


def resume(book: Book, arrivals: Arrivals, event: Resumed) -> None:
    """Take a ticket over; raises for an arrival that is a bug of the caller."""
    arrivals.refuse_nonsense(event.arrival)
    arrival = event.arrival if event.node else arrivals.with_a_model_that_runs(event.arrival)
    lane = book.cluster.lane(arrival.model, arrival.family)
    entry = book.accept(arrival, lane)
    if event.seq:
        entry.seq = event.seq
        book.seq = max(book.seq, event.seq)
    entry.told = entry.counted = event.waited_s > 0.0 or not event.node
    entry.waited_s = event.waited_s
    entry.wait_left_s -= event.waited_s
    entry.promotes_in_s -= event.waited_s
    entry.attempt = event.attempt
    if event.excluded:
        entry.excluded = frozenset(event.excluded)
    if event.node:
        _hold_lease(book, entry, event)
    else:
        book.enqueue(entry)
        book.stand_in_old_place(entry)
        if book.cluster.open:
            book.fill_open(lane, entry)


def _hold_lease(book: Book, entry: Entry, event: Resumed) -> None:
    node, line = book.cluster.find(event.node), entry.line
    if node.loaded is not None:
        node.measure_load(book.now_s)
    book.charging.charge(entry, node)
    if event.lent and node.lent:
        node.lent -= 1
        entry.lent = True
    book.seq += 1
    node.take(entry, line.lane.model, book.seq)
    if node.on_trial:
        book.cluster.count_trial(node, line.lane.model)
    if not node.has_room():
        book.cluster.open.pop(node.name, None)
    line.lane.running[entry] = None
    line.running += 1
    entry.move("route")
    entry.since_s = book.now_s - event.ran_s
