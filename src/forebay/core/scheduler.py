"""The scheduler: events in, actions out. Does no I/O and never reads a clock.

Order of choice: priority class -> lane -> user -> node. `arrivals` decides about
newcomers; everything that frees a slot asks `dispatch` for the next entry until the node is full
or nothing fits. A node is *open* only while nothing that waits could use its free slot, so that a
newcomer who finds an open node may go straight to it.

Time matters only through `TimerQueue`: what is due runs before the event that came with it, so that
nothing starts after its deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from forebay.core import arrivals, events, memory, slots
from forebay.core.actions import Abort, Reject, SlotsChanged
from forebay.core.cluster import lanes_on, recount
from forebay.core.dispatch import end_holds, fill, fill_open, fill_stale, release_holds
from forebay.core.nodes import BROKEN_OFF_S, NOTICE_S, add_strike, has_room, is_excused
from forebay.core.options import FROZEN_WHILE_RUNNING, Options
from forebay.core.outlook import come_again_s
from forebay.core.placement import is_as_fast_as_any, measure
from forebay.core.tickets import Book
from forebay.core.view import audit, describe, snapshot
from forebay.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.core.actions import Action
    from forebay.core.cluster import Reaches
    from forebay.core.records import Entry, KeyRate, Limit, Node


class Scheduler:
    """Turn events into actions.

    >>> from forebay.core import Arrived, Finished, NodeChanged
    >>> scheduler = Scheduler()
    >>> node = NodeChanged("gpu1", slots=1, models=("llama",))
    >>> scheduler.handle(node, 0.0)
    []
    >>> scheduler.handle(Arrived("a", "llama"), 0.0)[0].node
    'gpu1'
    >>> scheduler.handle(Arrived("b", "llama"), 0.0)[0].reason
    'busy'
    >>> [action.id for action in scheduler.handle(Finished("a"), 2.0)]
    ['b']
    """

    def __init__(
        self, options: Options | None = None, first_seq: int = 0, reaches: Reaches | None = None
    ) -> None:
        """`first_seq`: one that takes over begins above all that may yet be announced to it.

        `reaches` says whether the owner of a ticket gets to a node: its answer may change only
        before a `NodeChanged` about that node. Without it everybody gets everywhere.
        """
        options = options or Options()
        _check_options(options, options)
        self._book = Book(options, first_seq, reaches)

    def handle(self, event: events.Event, now_s: float) -> list[Action]:
        """Take one event; return what must be done about it, in order.

        `now_s` is a monotonic clock; one that runs backwards is held at its highest value. Raises
        only for bugs of the caller: an id that already exists, options that cannot be.
        """
        book = self._book
        if now_s > book.now_s:
            book.now_s = now_s
        else:
            now_s = book.now_s
        actions: list[Action] = []
        book.actions = actions
        if now_s >= book.timers.next_s:
            _run_due(book, event)
        if type(event) is events.Arrived:  # nearly all are, and `match` asks `isinstance` for each
            arrivals.decide(book, event)
        elif type(event) is events.Finished:
            _finish(book, event)
        else:
            _HANDLERS[type(event)](book, event)
        if book.lines.stale or now_s >= book.timers.next_s:
            fill_stale(book)
            _run_due(book)
        return actions

    def next_deadline_s(self) -> float | None:
        """Return when to post `Ticked` if nothing else happens, or None for never."""
        return self._book.timers.next_live_s()

    def better_on_loan(self, arrival: events.Arrived, nodes: Iterable[str]) -> tuple[str, float]:
        """Return which of `nodes` an arrival had better wait for, and how many seconds that saves.

        Free slots of these nodes are lent, but idle. Without a better one it returns `("", 0.0)`.
        """
        return arrivals.better_on_loan(self._book, arrival, nodes)

    def may_lend(self, name: str) -> bool:
        """Say whether slots of a node may be lent: who borrows knows of no node that is better."""
        node = self._book.cluster.nodes.get(name)
        return node is not None and is_as_fast_as_any(node)


def _finish(book: Book, event: events.Finished) -> None:
    entry = book.entries.get(event.id)
    if entry is None or entry.state != "running":
        return
    service_s = book.now_s - entry.since_s
    node, charging, tally = _release(book, entry, event), book.charging, book.tally
    if charging.needs_cost:
        charging.settle(entry, node, event.prompt_tokens, event.output_tokens)
    if entry.claim is not None:  # one that got no answer used its prompt
        output = event.output_tokens if event.ok else max(0, event.output_tokens)
        book.rates.settle(entry, entry.claim, (event.prompt_tokens, output), book.now_s)
    if event.ok:
        _learn(book, entry, node, event, service_s)
        tally.served += 1
    else:
        tally.failed += 1
    if event.strike:
        add_strike(node, entry.arrival.user, book.now_s)
    elif event.ok and node.strikes:
        node.strikes.pop(entry.arrival.user, None)
    book.end(entry, "finish")
    fill_stale(book)  # what may run elsewhere now goes before others of its key
    fill(book, node)


def _learn(book: Book, entry: Entry, node: Node, event: events.Finished, service_s: float) -> None:
    """Take what a run that ended well tells of its lane and of its node."""
    lane, arrival = entry.queue.lane, entry.arrival
    has_load = node.loaded is not None and memory.has_load(node, entry)
    if len(lane.nodes) > 1 and service_s > 0.0 and not has_load:
        measure(node, entry, service_s, event.output_tokens, book.now_s)
    is_first, measured_s = lane.times.mean_s() is None, service_s
    if node.loaded is not None:  # a load is no part of it
        measured_s = memory.end_run(node, entry, service_s, book.now_s)
    if measured_s >= 0.0:
        lane.times.add(measured_s, arrival.prompt_tokens)
        book.tally.service.append(measured_s)
        if is_first:
            memory.learn_load(node)
    learns = book.charging.needs_cost or book.paced or node.room is not None
    if event.output_tokens >= 0 and (learns or entry.prefix):
        lane.times.add_output(event.output_tokens)
    if event.output_tokens >= 0 and entry.prefix:
        # As estimated on arrival, like the cached ones. What a node counts is in another
        # unit (its tokenizer's), and few streams tell it.
        computed = max(0, arrival.prompt_tokens - entry.cached_tokens)
        lane.prefill.add(computed, event.output_tokens, service_s)


def _cancel(book: Book, event: events.Cancelled) -> None:
    entry = book.entries.get(event.id)
    if entry is None:
        return
    book.tally.cancelled += 1
    if entry.state != "running":
        book.end(entry, "cancel")
        wait_s = come_again_s(book, entry.arrival, entry.queue.lane)
        book.keep_number(entry.arrival, entry.seq, wait_s)
        return
    node = book.release(entry)
    if not node.removed:
        node.broken_off.append(book.now_s)
    book.charging.settle(entry, node, event.prompt_tokens, event.output_tokens)
    if entry.claim is not None and event.unused:
        book.rates.refund(entry.claim, 1, book.now_s)
    elif entry.claim is not None:
        used = event.prompt_tokens, max(0, event.output_tokens)
        book.rates.settle(entry, entry.claim, used, book.now_s)
    book.end(entry, "cancel")
    fill(book, node)


def _return(book: Book, event: events.Returned) -> None:
    """Put an entry back into its old place, at its old age, off the node that failed it."""
    entry = book.entries.get(event.id)
    if entry is None or entry.state != "running":
        return
    node = _release(book, entry, event)
    entry.joins_load = False
    book.charging.refund_class(entry, node)
    book.tally.returned += 1
    if event.strike:
        add_strike(node, entry.arrival.user, book.now_s)
    if event.exclude:
        entry.excluded |= {node.name}
    entry.queued = True
    book.wait(entry, "return")
    if entry.revoked or book.stopping:
        _reject(book, entry, entry.revoked or "shutting_down")
    elif entry.wait_left_s <= 0.0 and not entry.arrival.job:
        book.expire([entry])
    else:
        _run_with_fallback(book, entry)
        fill_open(book, entry.queue.lane, entry)
    fill(book, node)
    if _is_waiting(book, entry.id) and not entry.counted:
        entry.counted = True
        book.tally.enqueued += 1


def _revoke(book: Book, event: events.Revoked) -> None:
    entry = book.entries.get(event.id)
    if entry is None:
        return
    if entry.state == "running":
        entry.revoked = event.code  # should it come back, it must not start again
        book.actions.append(Abort(entry.id, event.code))
    else:
        _reject(book, entry, event.code)


def _inspect(book: Book, event: events.Inspected) -> None:
    entry = book.entries.get(event.id)
    if entry is not None:
        book.actions.append(describe(book, entry))


def _reject(book: Book, entry: Entry, code: str) -> None:
    """End one that waits, because others want it gone or everything stops."""
    book.end(entry, "reject")
    words = arrivals.REASONS.get(code)
    reasons: tuple[str, ...] = ()
    if words is not None:
        if not entry.arrival.job:
            book.tally.rejected[code] += 1
        reasons = (words,)
    else:
        book.tally.cancelled += 1
    book.actions.append(Reject(entry.id, code, reasons))


def _run_due(book: Book, event: events.Event | None = None) -> None:
    """Do what is due before the event is looked at, but start nothing that it takes back."""
    if event is not None:
        _validate(book, event)  # before anything is done that an error would lose
    while book.now_s >= book.timers.next_s:  # a limit of zero is due as soon as it is set
        entries, rates, nodes = book.timers.due(book.now_s)
        book.expire([entry for entry in entries if entry.deadline_s <= book.now_s])
        if isinstance(event, events.Cancelled) and _is_waiting(book, event.id):
            _cancel(book, event)
        _let_go(book, entries, rates, nodes)
        fill_stale(book)


def _let_go(book: Book, entries: list[Entry], rates: list[KeyRate], nodes: list[Node]) -> None:
    """Let those be looked at again that time has changed something for."""
    for entry in entries:
        if entry.since_s + entry.promotes_in_s <= book.now_s and entry.state == "waiting":
            book.promote(entry)
    over = [one for one in entries if one.hold and one.hold.until_s <= book.now_s]
    end_holds(book, over)
    for rate in rates:
        book.rates.offer(rate, book.now_s)
    for node in nodes:
        if book.now_s < node.rest_until_s:
            book.timers.set(node, node.rest_until_s)
        fill(book, node)


def _validate(book: Book, event: events.Event) -> None:
    """Raise for an event that is a bug of the caller."""
    if isinstance(event, events.Arrived | events.Resumed):
        arrival = event if isinstance(event, events.Arrived) else event.arrival
        arrivals.validate(book, arrival)
    elif isinstance(event, events.OptionsChanged):
        _check_options(event.options, book.options)


def _is_waiting(book: Book, ticket_id: str) -> bool:
    entry = book.entries.get(ticket_id)
    return entry is not None and entry.state != "running"


def _change_node(book: Book, event: events.NodeChanged) -> None:
    before = book.cluster.nodes.get(event.name)
    had = None if before is None else (before.state == "online", before.models)
    node = book.cluster.change(event, book.now_s)
    book.lines.short.pop(event.name, None)
    if event.state == "online":
        book.cluster.readmit(node)
    if node.held:
        release_holds(book, node)
    _refuse_unlisted(book)
    if had != (node.state == "online", node.models):
        _run_with_fallbacks(book)
    fill(book, node)


def _run_with_fallbacks(book: Book) -> None:
    """Let those wait for another model whose own has no node, where that is up."""
    if any(lane.unfinished and not lane.is_up for lane in book.cluster.lanes.values()):
        for entry in list(book.entries.values()):
            if entry.state == "waiting":
                _run_with_fallback(book, entry)


def _run_with_fallback(book: Book, entry: Entry) -> None:
    arrival = entry.arrival
    if not arrival.fallbacks or entry.queue.lane.is_up:
        return
    arrival = arrivals.choose_model(book, arrival)
    lane = book.cluster.lanes.get((arrival.model, arrival.family))
    if lane is not None and lane.is_up:
        entry.arrival = arrival
        book.move(entry, lane.queues[entry.queue.rank])


def _remove_node(book: Book, event: events.NodeRemoved) -> None:
    node = book.cluster.remove(event.name)
    book.lines.short.pop(event.name, None)
    if node is not None and node.held:
        release_holds(book, node)
    _refuse_unlisted(book)
    _run_with_fallbacks(book)


def _refuse_unlisted(book: Book) -> None:
    """End those who waited for what a node might have, once all have said what they have."""
    unlisted = any(lane.is_unlisted for lane in book.cluster.lanes.values())
    if not unlisted or book.cluster.unreported:
        return
    for entry in list(book.entries.values()):
        if entry.queue.lane.is_unlisted and entry.state == "waiting":
            _reject(book, entry, arrivals.unknown(book, entry.arrival.model))


def _rest_node(book: Book, event: events.NodeRested) -> None:
    node = book.cluster.nodes.get(event.name)
    if node is None or node.removed:
        return
    if event.waiting:
        if node.limit is not None:
            running = len(node.leases) + node.lent
            slots.waits_inside(node.limit, event.waiting, running, book.now_s)
            _tell_slots(book, node, node.limit)
        return
    rest_s = event.rest_s
    if is_excused(node.broken_off, book.now_s):  # it may not have noticed the end yet
        if rest_s <= BROKEN_OFF_S:
            rest_s = min(rest_s, NOTICE_S)
    elif _lower_slots(book, node):
        rest_s = min(rest_s, NOTICE_S)
    node.rest_until_s = max(node.rest_until_s, book.now_s + rest_s)
    book.cluster.open.pop(node.name, None)
    book.timers.set(node, min(node.wake_s, node.rest_until_s))
    if node.held:
        release_holds(book, node)


def _lend(book: Book, event: events.Lent) -> None:
    node = book.cluster.nodes.get(event.name)
    if node is None:
        return
    node.lent = max(0, node.lent + event.change)
    if node.removed or has_room(node):
        fill(book, node)
    else:
        book.cluster.open.pop(node.name, None)


def _change_options(book: Book, event: events.OptionsChanged) -> None:
    _validate(book, event)
    book.change_options(event.options)


def _shut_down(book: Book, _event: events.ShutDown) -> None:
    book.stopping = True
    for entry in [e for e in book.entries.values() if e.state == "waiting"]:
        _reject(book, entry, "shutting_down")


def _release(book: Book, entry: Entry, event: events.Finished | events.Returned) -> Node:
    """End a run: while it holds its lease, its node's number of slots is learned from it."""
    node = entry.node
    if node is not None and node.limit is not None:
        slots.learn(node, entry, event, book.now_s)
        _tell_slots(book, node, node.limit)
    return book.release(entry)


def _lower_slots(book: Book, node: Node) -> bool:
    """Take one off after a refusal; say whether that was what had been asked for."""
    asked = False
    if node.limit is not None:
        asked = slots.refused(node.limit, book.now_s)
        _tell_slots(book, node, node.limit)
    elif node.slots > 1:
        node.slots -= 1
        recount(lanes_on(node))
    return asked


def _tell_slots(book: Book, node: Node, limit: Limit) -> None:
    """Go by the number that was found; the node is to be filled after it."""
    if limit.slots != node.slots:
        node.slots = limit.slots
        recount(lanes_on(node))
        if not has_room(node):
            book.cluster.open.pop(node.name, None)
        book.actions.append(SlotsChanged(node.name, limit.slots, limit.reason, limit.is_trial))


def _check_options(options: Options, before: Options) -> None:
    """Raise for options that cannot be, or differ in what cannot change while running."""
    problems = options.problems() or [
        f"{name} cannot change while running: restart with the new value"
        for name in FROZEN_WHILE_RUNNING
        if getattr(options, name) != getattr(before, name)
    ]
    if problems:
        raise NotAllowed("; ".join(problems))


_HANDLERS: Final[dict[type, Callable[[Book, Any], None]]] = {
    events.Resumed: arrivals.resume,
    events.Returned: _return,
    events.Cancelled: _cancel,
    events.Revoked: _revoke,
    events.NodeChanged: _change_node,
    events.NodeRested: _rest_node,
    events.NodeRemoved: _remove_node,
    events.Lent: _lend,
    events.OptionsChanged: _change_options,
    events.KeysUsed: lambda book, event: book.rates.note_usage(event, book.now_s),
    events.Ticked: lambda book, _: None,  # what is due has run already
    events.Inspected: _inspect,
    events.Observed: lambda book, _: book.actions.append(snapshot(book)),
    events.Audited: lambda book, _: book.actions.append(audit(book)),
    events.ShutDown: _shut_down,
}
"""What takes each event; an arrival and an end are known without looking here."""
