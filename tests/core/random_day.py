"""Seeded days: a stream of events that fits what the scheduler has just done.

Plain `random` rather than Hypothesis: ten times as many steps in the same time, at the price of
failures that do not shrink. The seed is the whole failure report.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec.structs import replace

from forebay.core import (
    Arrived,
    Audited,
    Cancelled,
    Finished,
    Inspected,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Options,
    OptionsChanged,
    Reject,
    Returned,
    Revoked,
    Route,
    ShutDown,
    Ticked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import Any

    from forebay.core import Action, Event

NODES = ("n1", "n2", "n3")
MODELS = ("m1", "m2", "m3")
WEIGHTS = {"ann": 1.0, "bob": 2.0, "cat": 0.5}
"""Powers of two, so that every sum is exact and equal counters are equal."""
LIMITS = (
    "enabled", "max_size", "bytes_max", "per_user_max", "wait_s_max", "queue_streams",
    "offline_wait_s",
)  # fmt: skip


def draw_options(rng: Random) -> Options:
    """Draw how the day is run: half of them with room for everyone, so that lines grow."""
    pick = rng.choice
    narrow = rng.random() < 0.5
    return Options(
        enabled=not narrow or rng.random() < 0.9,
        max_size=pick((0, 1, 2, 3, 4, 6)) if narrow else 100,
        bytes_max=pick((6, 12, 1000)) if narrow else 1000,
        per_user_max=pick((0, 0, 1, 2)) if narrow else 0,
        when_full=pick(("class", "displace", "reject")),
        wait_s_max=pick((2.0, 5.0, 60.0)) if narrow else pick((10.0, 60.0)),
        queue_streams=not narrow or rng.random() < 0.6,
        class_order=pick(("strict", "strict", "weighted")),
        aging_s=pick((0.0, 0.0, 0.0, 2.0)),
        fairness=pick(("round_robin", "round_robin", "tokens", "tokens", "fifo")),
        burst=pick((0.0, 0.0, 2.0)),
        output_tokens_unmeasured=pick((0, 4)),
        swap_wait_s=pick((0.0, 2.0, 60.0)),
        offline_wait_s=pick((0.0, 3.0, 30.0)),
        idle_users_max=pick((0, 1, 10_000, 10_000)),
    )


class Day:
    """One day's mood, and the tickets it knows of.

    On a day of `returning` callers there is little room, and who was refused sends the same again.
    """

    def __init__(
        self, rng: Random, *, swaps: bool, returning: bool = False, one_slot: bool = False
    ) -> None:
        self.rng = rng
        self.swaps = swaps
        self.one_slot = one_slot
        self.options = draw_options(rng)
        if returning:
            self.options = replace(self.options, enabled=True, max_size=rng.choice((1, 2, 3, 20)))
        self.count = 0
        self.users = rng.choice((("ann", "bob"), tuple(WEIGHTS), tuple(WEIGHTS)))
        self.jobs = rng.choice((0.0, 0.1, 0.4))
        self.second_model = rng.choice((0.0, 0.4))
        self.odd = rng.choice((0.0, 0.2, 1.0))
        self.ends = rng.random() < 0.2
        self.strikes = rng.choice((0.0, 0.0, 0.9))
        self.known: list[str] = []
        self.running: list[str] = []
        self.arrived: dict[str, Arrived] = {}
        self.refused: list[Arrived] = []
        """Those for whom there was no room, as they come back."""
        changes = rng.choice((0.0, 1.0, 8.0))
        self.kinds: list[tuple[Callable[[], Event | None], float]] = [
            (self.arrive, 45.0), (self.finish, 30.0), (self.come_back, 6.0), (self.cancel, 4.0),
            (self.revoke, 2.0), (self.inspect, 3.0), (self.tick, 6.0),
            (self.rest, 2.0), (self.change_node, changes * 0.7), (self.remove, changes * 0.3),
            (self.change_limits, 1.0), (self.shut_down, 0.5), (self.speak_of_the_dead, 1.0),
            (self.arrive_again, 25.0 if returning else 0.0),
        ]  # fmt: skip
        self.makers = [make for make, _ in self.kinds]
        self.up_to = list(accumulate(weight for _, weight in self.kinds))

    def beginning(self) -> list[Event]:
        """Name the nodes the day begins with."""
        number = self.rng.choice((1, 1, 2, 2, 3))
        return [self.draw_node(name, online=True) for name in NODES[:number]]

    def next_event(self) -> tuple[Event, float]:
        """Draw an event and how long after the last one it comes."""
        rng = self.rng
        while True:
            made = rng.choices(self.makers, cum_weights=self.up_to)[0]()
            if made is None:
                continue
            if isinstance(made, Ticked):
                return made, rng.choice((0.5, 2.0, 10.0))
            return made, rng.choice((0.0, 0.0, 0.0, 0.0, 0.25, 0.25, 1.0, 3.0))

    def note(self, event: Event, actions: Sequence[Action]) -> None:
        """Keep track of what runs, so that the next events make sense."""
        if isinstance(event, Finished | Returned | Cancelled) and event.id in self.running:
            self.running.remove(event.id)
        self.running += [action.id for action in actions if isinstance(action, Route)]
        self.refused += [
            self.arrived[action.id]
            for action in actions
            if isinstance(action, Reject) and action.code in ("queue_full", "user_queue_full")
        ]

    # -- the events

    def arrive(self) -> Event:
        rng = self.rng
        self.count += 1
        user = rng.choice(self.users)
        second = rng.random() < self.second_model
        odd = rng.random() < self.odd
        key = "key" if odd and rng.random() < 0.1 else ""
        arrival = Arrived(
            f"r{self.count}",
            "m2" if second else "m3" if odd and rng.random() < 0.1 else "m1",
            "ollama" if odd and rng.random() < 0.2 else "openai",
            user,
            rng.choice(("normal", "high", "low", "urgent")) if odd else "normal",
            prompt_tokens=rng.randint(0, 5),
            output_limit=rng.choice((0, 0, 2, 50)),
            size_bytes=rng.randint(0, 4),
            weight=WEIGHTS[user],
            affinity=rng.choice(("", "x")),
            max_wait_s=rng.choice((None, None, 0.0, 1.0, 4.0, 90.0)) if odd else None,
            stream=odd and rng.random() < 0.3,
            job=(job := rng.random() < self.jobs),
            key=key,
            key_running_max=2 if key and not job else 0,  # jobs wait for it: `test_key_caps`
            digest=self.count,
            conversation=rng.choice(("", "x", "y")) if odd else "",
        )
        if self.one_slot:
            arrival = replace(arrival, model=rng.choice(MODELS))
        self.known.append(arrival.id)
        self.arrived[arrival.id] = arrival
        return arrival

    def arrive_again(self) -> Event | None:
        """Send one of the latest that were refused again, now and then as somebody else."""
        rng = self.rng
        if not self.refused:
            return None
        shown = rng.choice(self.refused[-4:])
        new = self.arrive()
        assert isinstance(new, Arrived)
        arrival = replace(shown, id=new.id)
        if rng.random() < 0.3:
            names = rng.choice((("user",), ("key", "key_running_max"), ("model",), ("priority",)))
            arrival = replace(arrival, **{name: getattr(new, name) for name in names})
        self.arrived[new.id] = arrival = replace(arrival, weight=WEIGHTS[arrival.user])
        return arrival

    def finish(self) -> Event | None:
        rng = self.rng
        prompt, output = rng.choice((-1, 0, 1, 10)), rng.choice((-1, 0, 1, 10, 100))
        name = self.any_of(self.running)
        ok = rng.random() < (0.9 if rng.random() >= self.strikes else 0.5)
        strike = not ok and rng.random() < self.strikes
        return None if name is None else Finished(name, ok, prompt, output, strike)

    def come_back(self) -> Event | None:
        name = self.any_of(self.running)
        strike = self.rng.random() < self.strikes
        return None if name is None else Returned(name, self.rng.random() < 0.5, strike)

    def cancel(self) -> Event | None:
        name = self.any_of(self.known[-12:] + self.running)
        return None if name is None else Cancelled(name, output_tokens=self.rng.choice((-1, 3)))

    def revoke(self) -> Event | None:
        name = self.any_of(self.known[-12:] + self.running)
        return None if name is None else Revoked(name)

    def inspect(self) -> Event | None:
        name = self.any_of(self.known[-12:] + self.running)
        return None if name is None else Inspected(name)

    def speak_of_the_dead(self) -> Event | None:
        name = self.any_of(self.known)
        kind = self.rng.choice((Finished, Returned, Inspected, Observed, Audited))
        if kind is Observed or kind is Audited:
            return kind()
        return None if name is None else kind(name)

    def tick(self) -> Event:
        return Ticked()

    def rest(self) -> Event | None:
        if self.options.aging_s:  # no rule says which comes first where both are due at once
            return None
        return NodeRested(self.rng.choice(NODES), self.rng.choice((0.5, 2.0)))

    def change_node(self) -> Event:
        return self.draw_node(self.rng.choice(NODES), online=False)

    def remove(self) -> Event:
        return NodeRemoved(self.rng.choice(NODES))

    def change_limits(self) -> Event:
        drawn = draw_options(self.rng)
        kept = {name: getattr(self.options, name) for name in Options.__struct_fields__}
        limits = {name: getattr(drawn, name) for name in LIMITS}
        return OptionsChanged(Options(**{**kept, **limits}))

    def shut_down(self) -> Event | None:
        return ShutDown() if self.ends and self.count > 12 else None

    def draw_node(self, name: str, *, online: bool) -> NodeChanged:
        pick = self.rng.choice
        states = ("online", "online", "online", "loading", "offline", "draining")
        models = pick((("m1", "m2"), ("m1", "m2"), ("m1",), ("m1", "m2") if online else ("m2",)))
        loaded = None
        if self.swaps and self.rng.random() < 0.9:
            loaded = tuple(self.rng.sample(models, self.rng.randint(0, len(models))))
        node = NodeChanged(
            name,
            pick((1, 1, 1, 2, 3) if online else (0, 1, 1, 2, 3)),
            models,
            pick((("openai",), ("openai", "ollama"))),
            "online" if online else pick(states),  # type: ignore[arg-type]  # mypy widens it
            pick((0.0, 0.5)),
            loaded,
            pick((1, 1, 2)),
            pick((0.0, 1.0, 3.0)),
        )
        if self.one_slot:
            node = self.draw_small_node(node)
        return replace(node, **self.draw_absence(online=online))

    def draw_small_node(self, node: NodeChanged) -> NodeChanged:
        """Make it one with a slot, most of the models, and room for one of them."""
        rng = self.rng
        models = tuple(sorted(rng.sample(MODELS, rng.choice((2, 3, 3)))))
        loaded = None if rng.random() < 0.05 else tuple(rng.sample(models, rng.choice((0, 1, 1))))
        slots = min(node.slots, 1)
        return replace(node, slots=slots, models=models, loaded=loaded, loaded_max=1)

    def draw_absence(self, *, online: bool) -> dict[str, Any]:
        """Draw for how long a node has been away, if it is, and whether it was ever there."""
        if online:
            return {}
        absence: dict[str, Any] = {"away_s": self.rng.choice((0.0, 1.0, 100.0))}
        if self.rng.random() < 0.2:
            absence |= {"is_new": True, "state": "offline"}
            if self.rng.random() < 0.7:
                absence["models"] = ()
        return absence

    def any_of(self, names: list[str]) -> str | None:
        return self.rng.choice(names) if names else None
