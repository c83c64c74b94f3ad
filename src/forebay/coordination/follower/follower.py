"""One replica's side of the shared queue: pure, events and messages in, actions and messages out.

It knows every ticket of its own and what became of it, so that it can announce them to whoever
leads next; fills the slots lent to it without asking; and passes everything else on. It believes
nobody but the leader of its epoch, and that one only in the order of its numbers.

**Safety.** A ticket runs only by a `Route` of the present epoch and generation, and never while it
runs already; a loan is used only within two thirds of a lease of the last stamp that the leader
sent back, and the leader takes the slots back only a whole lease after it received that stamp. So
without a change of leader no slot has two users, whatever the clocks say: only differences of one
clock are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.coordination.follower.borrowed_slots import Borrowing
from forebay.coordination.follower.local_ticket import Held, announcement, audit, late, note
from forebay.coordination.follower.standalone import Alone, own_picture
from forebay.coordination.follower.wait_limits import Patience
from forebay.coordination.leader.node_views import OwnViews
from forebay.coordination.leader.totals import highest, one_more, with_endings
from forebay.coordination.protocol.messages import (
    About,
    Announced,
    Batch,
    Down,
    Endings,
    GaveBack,
    Left,
    Lend,
    Look,
    Orders,
    Owner,
    Pulse,
    Recall,
    Resigned,
    Resync,
    Signed,
    Told,
    Up,
    in_batches,
)
from forebay.core import (
    Arrived,
    Audited,
    Cancelled,
    Expire,
    Finished,
    Lent,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Options,
    OptionsChanged,
    Reject,
    Resumed,
    Returned,
    Route,
    ShutDown,
    Snapshot,
    Ticked,
    Totals,
    Wait,
)
from forebay.core.arrivals import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from forebay.coordination.protocol.fleet import Mode
    from forebay.coordination.protocol.messages import Passed, Standing
    from forebay.core import Action, Event, RejectCode

USABLE = 2 / 3
"""The part of a lease for which a loan, or leadership, is used without being renewed."""


class Outbox:
    """What waits to be sent to the leader: in order, and numbered when it leaves this process."""

    def __init__(self) -> None:
        self.generation = 0
        """Which announcement they follow."""
        self.items: list[Up] = []
        self._number = 0  # of the next batch

    def begin(self, announcement: Iterable[Up]) -> None:
        """Announce everything anew: whatever was to be said before is void."""
        self.generation += 1
        self._number = 0
        self.items = [*announcement]

    def take(self) -> list[Up]:
        """Return all there is, and forget it."""
        items, self.items = self.items, []
        return items

    def batches(self, member: str) -> list[Batch]:
        """Return the same as messages."""
        batches = in_batches(member, self.generation, self._number, self.take())
        self._number += len(batches)
        return batches

    def last(self, member: str) -> Batch:
        """Return the message that this replica is gone; it is outside the count."""
        return Batch(member, self.generation, -1, (Left(member),))


class Follower:
    """One replica."""

    def __init__(self, about: About, options: Options, lease_s: float) -> None:
        self.about = about
        self.options = options
        self._lease_s = lease_s
        self.epoch, self.leader = 0, ""
        self.mode: Mode = "seeking"
        self.tickets: dict[str, Held] = {}
        self.totals = Totals()
        self.endings = Endings()  # of this replica's own requests
        self.known_endings: dict[str, Endings] = {}  # as the leader said last
        self.replicas: tuple[Standing, ...] = ()
        self.members: tuple[str, ...] = ()  # as the store knew them last; shares go by them
        self.stopping = False
        self.listen: Callable[[Look | Owner | Told | Left | Resigned], None] = lambda _: None
        self._views = OwnViews()
        self._borrowing = Borrowing(options)
        self._alone: Alone | None = None
        self._stamp_s = -lease_s  # the last one that the leader sent back
        self._numbers_in = 0
        self._outbox = Outbox()
        self._patience = Patience(self.tickets)

    def post(self, event: Event, now_s: float) -> list[Action]:
        """Take an event of this replica; return what can be done about it at once."""
        if isinstance(event, Arrived):
            return self._arrive(event, now_s)
        if isinstance(event, Finished | Cancelled | Returned):
            return self._move(event, now_s)
        return self._other(event, now_s)

    def _arrive(self, arrival: Arrived, now_s: float) -> list[Action]:
        if self.stopping:
            return [refusal(arrival.id, "shutting_down")]
        if self._alone is None and self._borrowing.idle and self.may_borrow(now_s):
            route = self._borrowing.start(arrival, now_s)
            if route is not None:
                held = self.tickets[arrival.id] = Held(arrival, now_s)
                held.run(route, now_s)
                held.lent, held.seq = True, 0
                self.say(Resumed(arrival, node=route.node, attempt=1, lent=True))
                return [route]
        if self.mode != "coordinated" and len(self.tickets) >= self._unanswered_max():
            return [refusal(arrival.id, "queue_full")]
        held = self.tickets[arrival.id] = Held(arrival, now_s)
        self._watch(held, now_s)
        return self._pass_on(arrival, now_s)

    def _watch(self, held: Held, now_s: float) -> None:
        if self.mode == "coordinated" and self.leader != self.about.member:  # else it is in time
            self._patience.watch(held, self.options.wait_s_max, now_s)

    def may_borrow(self, now_s: float) -> bool:
        """Say whether what was granted or lent to us is still ours to use."""
        return now_s < self._stamp_s + USABLE * self._lease_s

    def may_hear(self, now_s: float) -> bool:
        """Say whether the leader has answered within a lease; else it may not know us any more."""
        return now_s < self._stamp_s + self._lease_s

    @property
    def is_alone(self) -> bool:
        """Whether it goes by its own share, or by nothing."""
        return self._alone is not None

    @property
    def has_mail(self) -> bool:
        """Whether there is something to send to the leader."""
        return bool(self._outbox.items) and self.mode == "coordinated"

    @property
    def generation(self) -> int:
        """Which announcement the leader goes by."""
        return self._outbox.generation

    def _unanswered_max(self) -> int:
        """Return how much may be here while nobody bounds it for all."""
        return self.options.max_size + self._views.slots()

    def _move(self, event: Finished | Cancelled | Returned, now_s: float) -> list[Action]:
        held = self.tickets.get(event.id)
        if held is None:
            return []
        owed, node = 0, held.node
        if held.lent:
            held.lent = False
            owed = self._borrowing.end(event.id, node, now_s)
        if isinstance(event, Returned):
            held.come_back(now_s, exclude=event.exclude)
            self._watch(held, now_s)
        else:
            if isinstance(event, Finished) and held.stage == "running":
                self.endings = one_more(self.endings, event)
            del self.tickets[event.id]
        actions = self._pass_on(event, now_s)
        if owed:
            self.say(GaveBack(node, owed))
        return actions

    def _other(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case NodeChanged():
                self._views.change(event, now_s)
                self._borrowing.change(event, now_s)
            case NodeRested():
                self._borrowing.rest(event, now_s)
            case NodeRemoved():
                self._views.remove(event.name)
                self._borrowing.remove(event.name, now_s)
            case ShutDown():
                return self._shut_down(now_s)
            case Ticked():
                return self.tick(now_s)
            case OptionsChanged() | Lent() | Observed() | Audited():
                return self._keep(event, now_s)
            case _:
                pass
        actions = self._pass_on(event, now_s)
        if self._alone is not None:
            self.mode = self._alone.mode  # there may be a share now, or none any more
        return actions

    def _keep(self, event: Event, now_s: float) -> list[Action]:
        """Take what is not for the leader, or not always."""
        if isinstance(event, Audited):
            return [audit(self.tickets)]
        if isinstance(event, OptionsChanged):
            self.options = event.options
        if self._alone is not None:
            return self._perform(self._alone.handle(event, now_s), now_s)
        if not isinstance(event, Observed):
            return []
        if self.mode == "coordinated":
            return self._pass_on(event, now_s)
        mine = own_picture(self.options, self._views.at(now_s), self.tickets.values(), now_s)
        return self._perform([mine], now_s)

    def _pass_on(self, event: Passed, now_s: float) -> list[Action]:
        """Let the one decide who decides now."""
        if self._alone is not None:
            return self._perform(self._alone.handle(event, now_s), now_s)
        self.say(event)
        return []

    def say(self, item: Up) -> None:
        """Have the leader hear of it; without one it will be announced, where it still matters."""
        if self.mode == "coordinated":
            self._outbox.items.append(item)

    def _shut_down(self, now_s: float) -> list[Action]:
        """Answer all who wait here, at once: who leads only hears that they are gone."""
        self.stopping = True
        actions: list[Action] = []
        for name in [name for name, held in self.tickets.items() if held.stage != "running"]:
            actions += [refusal(name, "shutting_down"), *self._move(Cancelled(name), now_s)]
        for node in self._borrowing.nodes:  # others need not wait until we are missed
            self._give_back(node, 0, now_s)
        return actions

    def _give_back(self, node: str, keep: int, now_s: float) -> None:
        if freed := self._borrowing.recall(node, keep, now_s):
            self.say(GaveBack(node, freed))

    def tick(self, now_s: float) -> list[Action]:
        """Let time pass: waiting ends here while nobody leads, or whoever leads does not say so."""
        if self._alone is not None:
            return self._perform(self._alone.handle(Ticked(), now_s), now_s)
        if self.mode == "seeking":
            expired = late(self.tickets.values(), self.options.wait_s_max, now_s)
        else:
            expired = self._patience.late(now_s)
        for action in expired:
            self.endings = one_more(self.endings, action)
            del self.tickets[action.id]
            self.say(Cancelled(action.id))
        return [*expired]

    def next_deadline_s(self) -> float | None:
        """Return when to `tick` if nothing happens; None also while nobody leads."""
        if self._alone is not None:
            return self._alone.next_deadline_s()
        return self._patience.next_s if self.mode == "coordinated" else None

    def join(self, epoch: int, leader: str, now_s: float) -> None:
        """Follow a leader from now on, and announce everything to it."""
        self.epoch, self.leader, self.mode = epoch, leader, "coordinated"
        self._numbers_in = 0
        self._stamp_s = now_s  # whatever follows from this announcement is younger than it
        self._alone = None
        self._patience.begin(self.options.wait_s_max, now_s)
        self._borrowing = Borrowing(self.options)
        views = self._views.at(now_s).values()
        for view in views:
            self._borrowing.change(view, now_s)
        for held in self.tickets.values():
            held.lent = False  # what runs on a loan is a lease like any other from now on
        tickets = announcement(self.tickets.values(), now_s)
        last = (Announced(self.about), Signed(now_s, self.endings))
        self._outbox.begin((*views, *tickets, *last))

    def follows(self, epoch: int, leader: str) -> bool:
        """Say whether it goes by that leader already."""
        return (self.mode, self.epoch, self.leader) == ("coordinated", epoch, leader)

    def seek(self) -> None:
        """Know that nobody leads; the store is there, so somebody soon will."""
        if self.mode == "coordinated":
            self.mode = "seeking"
            self._outbox.items.clear()  # it would be announced again

    def lose_store(self, now_s: float) -> list[Action]:
        """Go on alone."""
        if self._alone is not None:
            return []
        self._outbox.items.clear()
        for held in self.tickets.values():
            held.lent = False
        self._borrowing = Borrowing(self.options)
        known = (*self.members, *(one.about.member for one in self.replicas))
        self._alone = Alone(self.about.member, known, self.options)
        self._alone.cut_off = not self.epoch  # who never met the others knows no share
        actions = self._alone.begin(self._views.at(now_s), list(self.tickets.values()), now_s)
        self.mode = self._alone.mode
        return self._perform(actions, now_s)

    def cut(self, *, off: bool, now_s: float) -> list[Action]:
        """Learn, when alone, whether the others go on together."""
        if self._alone is None:
            return []
        actions = self._alone.cut(off=off or not self.epoch, now_s=now_s)
        self.mode = self._alone.mode
        return self._perform(actions, now_s)

    def find_store(self) -> None:
        """Know that the store is back; who leads will be known soon."""
        if self._alone is not None:
            self._alone = None
            self.mode = "seeking"

    def sign(self, now_s: float) -> None:
        """Give a sign of life."""
        self.say(Signed(now_s, self.endings))

    def take_items(self) -> list[Up]:
        """Return what is to be said to the leader, and forget it."""
        return self._outbox.take()

    def take_batches(self) -> list[Batch]:
        """Return the same as messages."""
        return self._outbox.batches(self.about.member) if self.has_mail else []

    def last_batches(self) -> list[Batch]:
        """Return what there is to say before this replica goes: nothing runs here now."""
        if self.mode != "coordinated":
            return []
        return [*self.take_batches(), self._outbox.last(self.about.member)]

    def hear(self, orders: Orders, now_s: float) -> list[Action]:
        """Take what the leader says, unless it is late, early or from another."""
        if orders.epoch > self.epoch:
            self.join(orders.epoch, orders.leader, now_s)
            return []
        if self.mode != "coordinated" or orders.epoch < self.epoch:
            return []
        number, expected = orders.number, self._numbers_in
        known = orders.leader == self.leader  # a store that forgets may give an epoch twice
        late = orders.generation != self.generation  # it went by what was announced before
        if known and orders.are_last and (late or number != expected):
            return self._obey(orders.items[-1], now_s)  # whatever is missing, the next will ask
        if late:
            return []
        if not known or number == -1 or number > expected or not self.may_borrow(now_s):
            # It asks for it, we missed something, or it may have given us up already.
            self.join(self.epoch, orders.leader, now_s)
            return []
        return self._follow(orders, now_s) if number == expected else []

    def _follow(self, orders: Orders, now_s: float) -> list[Action]:
        self._numbers_in += 1
        return self.obey(orders.items, now_s)

    def obey(self, items: Sequence[Down], now_s: float) -> list[Action]:
        """Do what the leader says, in order."""
        generation = self.generation
        actions: list[Action] = []
        for item in items:
            if self.generation != generation:
                break  # it announces anew: the rest is void
            if type(item) is Route or type(item) is Wait:  # nearly all are
                if note(self.tickets, item, now_s):
                    actions.append(item)
            else:
                actions += self._obey(item, now_s)
        return actions

    def _obey(self, item: Down, now_s: float) -> list[Action]:
        match item:
            case Lend():
                self._borrowing.lend(item.node, item.slots, now_s)
                if self.stopping:
                    self._give_back(item.node, 0, now_s)
            case Recall():
                self._give_back(item.node, item.keep, now_s)
            case Pulse():
                self._stamp_s = max(self._stamp_s, item.stamp_s)
                self.totals, self.replicas = highest(self.totals, item.totals), item.replicas
                self.known_endings = item.endings
            case Resigned():
                self.listen(item)
                self.seek()
            case Resync():
                self.join(self.epoch, self.leader, now_s)
            case Look() | Owner() | Told() | Left():
                self.listen(item)
            case _:
                return self._perform([item], now_s)
        return []

    def _perform(self, actions: list[Action], now_s: float) -> list[Action]:
        """Take note of what was decided; leave out what is about tickets that are gone."""
        told = (action for action in actions if note(self.tickets, action, now_s))
        return [self._counted(action) for action in told]

    def _counted(self, action: Action) -> Action:
        """Count an ending; never let a count go down that was shown once."""
        if isinstance(action, Expire):
            self.endings = one_more(self.endings, action)
        if not isinstance(action, Snapshot):
            return action
        seen = highest(self.totals, action.totals)
        self.totals = highest(seen, with_endings(seen, self.fleet_endings()))
        return replace(action, totals=self.totals)

    def fleet_endings(self) -> dict[str, Endings]:
        """Return how requests have ended, by member, as far as it is known here."""
        return {**self.known_endings, self.about.member: self.endings}


def refusal(ticket_id: str, code: RejectCode) -> Reject:
    """Return a refusal in the same words that the core would use."""
    return Reject(ticket_id, code, (REASONS[code],))
