"""What the naive model makes of arrivals: run now, wait, or be refused for the first reason."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core import Expire, Reject, Wait

from .naive_book import NaiveBook, NaiveReturn
from .naive_order import Lane, Ticket

if TYPE_CHECKING:
    from forebay.core import Action, Arrived


class NaiveArrivals(NaiveBook):
    """Judges what the core answered to an arrival."""

    def arrive(self, arrival: Arrived) -> None:
        """Refuse by the first reason that holds, run now, or wait."""
        code = self.refusal_at_the_door(arrival)
        if code is not None:
            self.refuse(arrival, code)
            return
        key = (arrival.model, arrival.family)
        if key not in self.lanes:  # a node that has not said what it has may have it
            self.births += 1
            self.lanes[key] = self.births
        lane = (*key, self.lanes[key])
        if not self.nodes_of(lane):
            self.unlisted.add(key)
        self.arriving = {key}
        self.arrive_in(lane, arrival)
        self.arriving = set()
        self.learn_lanes()

    def arrive_in(self, lane: Lane, arrival: Arrived) -> None:
        if self.starts_at_once(arrival, lane):
            return
        if self.comes_too_late(arrival):
            return
        code = None if arrival.job else self.refusal_for_room(arrival)
        if code in (None, "queue_full") and not arrival.job and self.strands_too_many(lane):
            code = "queue_full"
        elif code == "queue_full" and self.displaces(arrival):
            code = None
        elif code in ("queue_disabled", "stream_not_queued") and self.finds_a_job(lane):
            code = self.refusal_for_room(arrival, guest=True)
        if code is not None:
            self.refuse(arrival, code)
        elif self.is_told_to_wait(arrival) or not self.starts_at_once(arrival, lane):
            self.join_queue(self.accept(arrival))

    def is_told_to_wait(self, arrival: Arrived) -> bool:
        return any(isinstance(action, Wait) and action.id == arrival.id for action in self.others)

    def refusal_at_the_door(self, arrival: Arrived) -> str | None:
        lane = (arrival.model, arrival.family, self.lanes.get((arrival.model, arrival.family), 0))
        nodes = self.nodes_of(lane).values()
        away = not self.is_up(lane) and not (nodes and arrival.job)
        hope = self.hope(lane)
        unknown = away and not hope and not nodes and not self.unsaid()
        refused = away and (not hope or not (arrival.job or self.may_wait(arrival)))
        reasons = [
            ("shutting_down", self.stopping),
            ("route_not_supported", unknown and self.is_known(arrival.model)),
            ("model_not_found", unknown),
            ("model_loading", refused and hope in ("loading", "starting")),
            ("no_node", refused),
            ("user_queue_full", self.key_is_full(arrival)),
        ]
        return next((code for code, holds in reasons if holds), None)

    def may_wait(self, arrival: Arrived) -> bool:
        """Say whether it is one that waits at all."""
        options = self.options
        has_time = options.wait_s_max > 0.0 and arrival.max_wait_s != 0.0
        may = not arrival.stream or options.queue_streams
        return has_time and may and options.enabled and options.max_size > 0

    def strands_too_many(self, lane: Lane) -> bool:
        """Say whether half of the places are taken by those whose nodes are not up."""
        lanes = [(*key, born) for key, born in self.lanes.items()]
        if self.is_up(lane) or not any(map(self.is_up, lanes)):
            return False
        stranded = [t for t in self.in_state("waiting") if not self.is_up(t.lane)]
        live = sum(not ticket.arrival.job for ticket in stranded)
        return live >= max(1, self.options.max_size // 2)

    def finds_a_job(self, lane: Lane) -> bool:
        """Say whether more jobs run on its nodes than wait for one of these to end."""
        nodes = self.nodes_of(lane)
        up = [name for name, node in nodes.items() if node.said.state == "online"]
        jobs = sum(t.arrival.job and t.node in up for t in self.in_state("running"))
        guests = [t for t in self.in_state("waiting") if t.guest]
        return jobs > sum(bool(nodes.keys() & self.nodes_of(t.lane).keys()) for t in guests)

    def is_known(self, model: str) -> bool:
        nodes = self.nodes.values()
        return any(model in node.said.models and not node.removed for node in nodes)

    def key_is_full(self, arrival: Arrived) -> bool:
        mine = [t for t in self.tickets.values() if t.arrival.key == arrival.key]
        live = [t for t in mine if not t.arrival.job]
        return 0 < arrival.key_running_max <= len(live)

    def comes_too_late(self, arrival: Arrived) -> bool:
        """Take over the core's refusal for an estimate if it agrees with the number it tells."""
        own_s = arrival.max_wait_s
        refusals = [a for a in self.others if isinstance(a, Reject) and a.id == arrival.id]
        refused = [a for a in refusals if a.code == "deadline_unreachable"]
        may = own_s is not None and not arrival.job and own_s < self.options.wait_s_max
        if not refused:
            assert not (may and own_s == 0.0), f"{arrival.id} will not wait, but was not refused"
            return False
        assert may
        assert own_s is not None
        assert own_s == 0.0 or (refused[0].estimate_s or 0.0) > own_s
        self.others.remove(refused[0])
        return True

    def refusal_for_room(self, arrival: Arrived, *, guest: bool = False) -> str | None:
        options, queued = self.options, self.queued()
        inside = [ticket for ticket in queued if not ticket.guest]
        mine = sum(1 for ticket in queued if ticket.user == arrival.user)
        size = sum(ticket.arrival.size_bytes for ticket in queued)
        reasons = [
            ("queue_disabled", not guest and (not options.enabled or options.max_size == 0)),
            ("stream_not_queued", not guest and arrival.stream and not options.queue_streams),
            ("user_queue_full", 0 < options.per_user_max <= mine),
            ("queue_full", not guest and len(inside) >= options.max_size),
            ("queue_full", size + arrival.size_bytes > options.bytes_max),
        ]
        return next((code for code, holds in reasons if holds), None)

    def displaces(self, arrival: Arrived) -> bool:
        """Say whether a newcomer takes a waiter's place, and let the core say whose."""
        own_s = arrival.max_wait_s
        if self.options.wait_s_max <= 0.0 or (own_s is not None and own_s <= 0.0):
            return False  # who may not wait takes nobody's place
        victims = self.victims(arrival)
        size = sum(ticket.arrival.size_bytes for ticket in self.queued()) + arrival.size_bytes
        room = sum(not ticket.guest for ticket in self.queued()) <= self.options.max_size
        fitting = [
            v for v in victims if room and size - v.arrival.size_bytes <= self.options.bytes_max
        ]
        for victim in fitting:
            told = [a for a in self.others if isinstance(a, Reject) and a.id == victim.id]
            if told:
                self.refuse(victim.arrival, "queue_full", victim.seq)
                self.end(victim, "displaced")
                return True
        assert not fitting or len(fitting) < len(victims), f"one of {victims} must make room"
        return False

    def victims(self, arrival: Arrived) -> list[Ticket]:
        """Return the newest entries of the largest holders, where the newcomer has a claim."""
        rank, queued = self.rank_of(arrival), [t for t in self.queued() if not t.guest]
        lowest = max((ticket.rank for ticket in queued), default=-1)
        held: dict[str, list[Ticket]] = {}
        for ticket in sorted((t for t in queued if t.rank == lowest), key=lambda t: t.seq):
            held.setdefault(ticket.user, []).append(ticket)
        largest = max(map(len, held.values()), default=0)
        lead = largest - len(held.get(arrival.user, []))
        if self.options.when_full != "displace" or lowest < rank or (lowest == rank and lead < 2):
            return []
        return [tickets[-1] for tickets in held.values() if len(tickets) == largest]

    def accept(self, arrival: Arrived) -> Ticket:
        seq = self.arrival_number(arrival)
        own_s, most_s = arrival.max_wait_s, self.options.wait_s_max
        ticket = Ticket(
            arrival=arrival,
            seq=seq,
            rank=self.rank_of(arrival),
            lane=(arrival.model, arrival.family, self.lanes[arrival.model, arrival.family]),
            since_s=self.now_s,
            wait_left_s=most_s if own_s is None else min(own_s, most_s),
            promote_left_s=self.options.aging_s,
        )
        if arrival.user in self.accounts.idle:
            self.accounts.idle.remove(arrival.user)
        self.accounts.open(ticket.line, arrival.user, arrival.weight)
        self.tickets[arrival.id] = ticket
        return ticket

    def starts_at_once(self, arrival: Arrived, lane: Lane) -> bool:
        """Start a newcomer where a slot is free: then nobody who waits can use it."""
        free = [name for name in self.nodes_of(lane) if self.is_free(name)]
        swapping = (
            [name for name in free if not self.has_model(name, arrival)] if arrival.job else []
        )
        free = [name for name in free if name not in swapping]
        best = self.preferred(free, arrival.model, arrival.affinity) if free else set()
        best = best or {name for name in swapping if self.may_job_swap(name)}
        if not best:
            return False
        assert self.routes, f"{arrival.id} must start on one of {best}"
        route = self.routes.pop(0)
        assert route.id == arrival.id
        assert route.node in best, f"{arrival.id} should go to {best}, not {route.node}"
        self.start(self.accept(arrival), route)
        return True

    def has_model(self, name: str, arrival: Arrived) -> bool:
        """Say whether a node has a model in memory, or room for it."""
        memory = self.nodes[name].memory
        return memory.has(arrival.model) or memory.has_room()

    def may_job_swap(self, name: str) -> bool:
        """Say whether a job may put out what nobody waits for; no rule says on which node."""
        look = self.decision(name, [])
        return not self.candidates(name) and self.now_s >= look.since_s() + look.stays_s()

    def join_queue(self, ticket: Ticket) -> None:
        arrival = ticket.arrival
        never = not self.options.enabled or self.options.max_size == 0
        refused = never or (arrival.stream and not self.options.queue_streams)
        ticket.guest = refused and not arrival.job
        if ticket.wait_left_s <= 0.0 and not arrival.job:
            told = self.expect(lambda action: isinstance(action, Expire), "Expire")
            assert isinstance(told, Expire)
            assert (told.id, told.code, told.waited_s) == (ticket.id, "queue_timeout", 0.0)
            self.end(ticket, "expired")
            return
        told_wait = self.expect(lambda a: isinstance(a, Wait) and a.id == ticket.id, "Wait")
        assert isinstance(told_wait, Wait)
        self.stand_in_line(ticket)
        assert told_wait.reason == self.reason(ticket)
        self.check_position(ticket, told_wait.position)
        own_s = arrival.max_wait_s
        warm = self.is_warm_off("", ticket.lane)  # else its turn counts, and what is before it
        if arrival.return_ticket:
            return  # at the door it was judged as a newcomer
        if own_s is not None and own_s < self.options.wait_s_max and not arrival.job and warm:
            assert told_wait.p50_s is None or told_wait.p50_s <= own_s

    def expect_reject(self, ticket_id: str, code: str) -> Reject:
        def matches(action: Action) -> bool:
            return isinstance(action, Reject) and (action.id, action.code) == (ticket_id, code)

        told = self.expect(matches, f"Reject({ticket_id}, {code})")
        assert isinstance(told, Reject)
        return told

    def refuse(self, arrival: Arrived, code: str, seq: int = 0) -> None:
        """Refuse one; where that is for lack of room, it gets a return ticket for its number."""
        told = self.expect_reject(arrival.id, code)
        if code not in ("queue_full", "user_queue_full"):
            assert not told.return_ticket
            return
        seq = seq or self.arrival_number(arrival)
        alive = [one for one in self.return_tickets.values() if one.until_s > self.now_s]
        mine = sum(one.arrival.user == arrival.user for one in alive)
        most = self.options.max_size
        assert bool(told.return_ticket) == (len(alive) < most and mine < max(1, most // 10))
        if told.return_ticket:
            assert told.return_ticket not in self.return_tickets
            measured_s = 2.0 if told.retry_after_s is None else told.retry_after_s
            delay_s = min(120.0, max(1.0, 1.2 * measured_s))  # with the jitter of an answer
            until_s = self.now_s + 2 * ceil(delay_s)
            self.return_tickets[told.return_ticket] = NaiveReturn(arrival, seq, until_s)
            self.refused.append(replace(arrival, return_ticket=told.return_ticket))

    def arrival_number(self, arrival: Arrived) -> int:
        """Return the number of a ticket that counts, which is then spent, or the next."""
        ticket = self.return_tickets.get(arrival.return_ticket)
        if ticket is not None and ticket.until_s > self.now_s:
            first = ticket.arrival
            same = (first.user, first.key, first.model) == (
                arrival.user,
                arrival.key,
                arrival.model,
            )
            if same and self.rank_of(first) == self.rank_of(arrival):
                ticket.until_s = 0.0
                return ticket.seq
        self.seq += 1
        return self.seq

    def reason(self, ticket: Ticket) -> str:
        if any(self.is_free(name) for name in self.nodes_of(ticket.lane)):
            return "busy" if ticket.excluded else "turn"
        return "busy" if self.is_up(ticket.lane) else self.hope(ticket.lane) or "offline"

    def check_position(self, ticket: Ticket, told: int | None) -> None:
        """Positions are exact in strict order where every dispatch costs the same."""
        if self.options.class_order == "strict" and self.options.fairness != "tokens":
            assert told == self.position(ticket), f"{ticket.id}: {self.position(ticket)}"
        else:
            assert told is not None
            assert told >= 1
