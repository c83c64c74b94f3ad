"""The core against the naive model: the same events to both, under every mix of options.

In every step the model checks each action: who is routed and in which order (3, 4, 5, 6, 9, 14),
the codes of refusals (12), places and waiting times (11). The outsider checks what needs no model
(1, 2, 8, 12), and at the end everything is played again (13). Invariant 10 is in `test_swaps`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.core import (
    Action,
    Arrived,
    Cancelled,
    Event,
    Finished,
    Inspected,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    Observed,
    Options,
    OptionsChanged,
    Returned,
    Revoked,
    Scheduler,
    ShutDown,
    Snapshot,
    Ticked,
)

from .naive_model import NaiveModel
from .outsider import Outsider

NODES = ("n1", "n2", "n3")
MODELS = ("m1", "m2")
USERS = ("ann", "bob", "cat")
WEIGHTS = {"ann": 1.0, "bob": 2.0, "cat": 0.5}
"""Powers of two, so that every sum is exact and equal counters are equal."""
STEPS_S = st.sampled_from((0.0, 0.0, 0.0, 0.25, 1.0, 3.0))
TOKENS = st.sampled_from((-1, 0, 1, 10, 100))
INDEX = st.integers(0, 30)

generous = st.builds(
    Options,
    when_full=st.just("displace"),
    class_order=st.sampled_from(("strict", "strict", "weighted")),
    aging_s=st.sampled_from((0.0, 0.0, 2.0)),
    fairness=st.sampled_from(("round_robin", "tokens", "fifo")),
    burst=st.sampled_from((0.0, 2.0)),
    output_tokens_unmeasured=st.sampled_from((0, 4)),
    idle_users_max=st.sampled_from((10_000, 1, 0)),
)
narrow = st.builds(
    Options,
    enabled=st.sampled_from((True, True, True, False)),
    max_size=st.sampled_from((2, 4, 1, 0)),
    bytes_max=st.sampled_from((1000, 10)),
    per_user_max=st.sampled_from((0, 2, 1)),
    when_full=st.sampled_from(("displace", "reject")),
    wait_s_max=st.sampled_from((5.0, 2.0)),
    queue_streams=st.booleans(),
    fairness=st.sampled_from(("round_robin", "tokens", "fifo")),
)
options_drawn = generous | narrow
nodes_drawn = st.builds(
    NodeChanged,
    name=st.sampled_from(NODES),
    slots=st.integers(0, 3),
    models=st.sampled_from((("m1",), ("m2",), ("m1", "m2"))),
    families=st.sampled_from((("openai",), ("openai", "ollama"))),
    state=st.sampled_from(("online", "online", "online", "loading", "offline", "draining")),
    gpu_load=st.sampled_from((0.0, 0.5)),
)


class CoreAgainstModel(RuleBasedStateMachine):
    """Drives core, model and outsider; `step` is the only way to any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.count = 0
        self.begin(Options(), 1, late=False)

    @initialize(options=options_drawn, slots=st.integers(1, 3), late=st.booleans())
    def begin(self, options: Options, slots: int, late: bool) -> None:
        """Where ticks may come late, one event can end and start things of several instants."""
        self.options = options
        self.late = late and not options.aging_s
        self.core = Scheduler(options)
        self.model = NaiveModel(options)
        self.outsider = Outsider(options)
        self.log: list[tuple[float, Event, list[Action]]] = []
        self.give(NodeChanged("n1", slots, MODELS), 0.0)

    def step(self, event: Event, pause_s: float) -> None:
        """Let time pass and give everyone the event."""
        until_s = self.now_s + pause_s
        due_s = None if self.late else self.core.next_deadline_s()
        while due_s is not None and self.now_s <= due_s <= until_s:
            self.give(Ticked(), due_s)
            due_s = self.core.next_deadline_s()
        self.give(event, until_s)

    def give(self, event: Event, now_s: float) -> list[Action]:
        """Hand over one event; the model fails where the core did not do what it had to do."""
        self.now_s = now_s
        actions = list(self.core.handle(event, now_s))
        self.log.append((now_s, event, actions))
        self.model.take(event, now_s, actions)
        if not self.late:
            self.outsider.watch(event, now_s, actions)
        return actions

    def pick(self, index: int, *states: str) -> str | None:
        found = self.model.in_state(*states)
        return found[index % len(found)].id if found else None

    @rule(
        user=st.sampled_from(USERS),
        priority=st.sampled_from(("normal", "high", "low", "urgent")),
        model=st.sampled_from((*MODELS, *MODELS, "m3")),
        family=st.sampled_from(("openai", "openai", "openai", "ollama")),
        sizes=st.tuples(st.integers(0, 5), st.sampled_from((0, 0, 2, 50)), st.integers(0, 4)),
        max_wait_s=st.sampled_from((None, 0.0, 1.0, 4.0, 90.0)),
        flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
        key=st.sampled_from(("", "key")),
        pause_s=STEPS_S,
    )
    def arrive_somehow(
        self, user: str, priority: str, model: str, family: str,
        sizes: tuple[int, int, int], max_wait_s: float | None, flags: tuple[bool, bool, bool],
        key: str, pause_s: float,
    ) -> None:  # fmt: skip
        self.count += 1
        arrival = Arrived(
            f"r{self.count}", model, family, user, priority, *sizes, weight=WEIGHTS[user],
            affinity="x" if flags[2] else "", max_wait_s=max_wait_s,
            stream=flags[0], job=flags[1], key=key,
            key_running_max=2 if key and not flags[1] else 0,
        )  # fmt: skip
        self.step(arrival, pause_s)

    @rule(
        users=st.lists(st.sampled_from(USERS), min_size=1, max_size=6),
        model=st.sampled_from(MODELS),
        priority=st.sampled_from(("normal", "normal", "high", "low")),
        tokens=st.integers(0, 5),
    )
    def arrive_together(self, users: list[str], model: str, priority: str, tokens: int) -> None:
        for user in users:
            self.count += 1
            arrival = Arrived(
                f"r{self.count}", model, user=user, priority=priority, prompt_tokens=tokens,
                size_bytes=1, weight=WEIGHTS[user],
            )  # fmt: skip
            self.step(arrival, 0.0)

    @rule(
        indices=st.lists(INDEX, min_size=1, max_size=4),
        prompt=TOKENS,
        output=TOKENS,
        ok=st.booleans(),
        pause_s=STEPS_S,
    )
    def finish_some(
        self, indices: list[int], prompt: int, output: int, ok: bool, pause_s: float
    ) -> None:
        for index in indices:
            found = self.pick(index, "running")
            if found is not None:
                self.step(Finished(found, ok, prompt, output), pause_s)

    @rule(index=INDEX, exclude=st.booleans(), pause_s=STEPS_S)
    def come_back(self, index: int, exclude: bool, pause_s: float) -> None:
        found = self.pick(index, "running")
        if found is not None:
            self.step(Returned(found, exclude), pause_s)

    @rule(index=INDEX, output=TOKENS, pause_s=STEPS_S)
    def cancel(self, index: int, output: int, pause_s: float) -> None:
        found = self.pick(index, "running", "waiting")
        if found is not None:
            self.step(Cancelled(found, output_tokens=output), pause_s)

    @rule(index=INDEX, pause_s=STEPS_S)
    def revoke(self, index: int, pause_s: float) -> None:
        found = self.pick(index, "running", "waiting")
        if found is not None:
            self.step(Revoked(found, "unauthorized"), pause_s)

    @rule(index=INDEX, pause_s=STEPS_S)
    def inspect(self, index: int, pause_s: float) -> None:
        found = self.pick(index, "running", "waiting")
        if found is not None:
            self.step(Inspected(found), pause_s)

    @rule(index=INDEX, kind=st.sampled_from((Finished, Cancelled, Returned, Inspected, Revoked)))
    def speak_of_the_dead(
        self, index: int, kind: type[Finished | Cancelled | Returned | Inspected | Revoked]
    ) -> None:
        ended = list(self.model.ended)
        if ended:
            self.step(kind(ended[index % len(ended)]), 0.0)

    @rule(event=nodes_drawn, pause_s=STEPS_S)
    def change_node(self, event: NodeChanged, pause_s: float) -> None:
        self.step(event, pause_s)

    @rule(name=st.sampled_from(NODES), pause_s=STEPS_S)
    def remove_node(self, name: str, pause_s: float) -> None:
        self.step(NodeRemoved(name), pause_s)

    @precondition(lambda self: not self.options.aging_s)
    @rule(name=st.sampled_from(NODES), rest_s=st.sampled_from((0.5, 2.0)), pause_s=STEPS_S)
    def rest_node(self, name: str, rest_s: float, pause_s: float) -> None:
        self.step(NodeRested(name, rest_s), pause_s)

    @rule(drawn=options_drawn, pause_s=STEPS_S)
    def change_limits(self, drawn: Options, pause_s: float) -> None:
        now = self.model.options
        limits = {
            name: getattr(drawn, name)
            for name in (
                "enabled", "max_size", "bytes_max", "per_user_max", "wait_s_max",
                "queue_streams",
            )
        }  # fmt: skip
        kept = {n: getattr(now, n) for n in now.__struct_fields__ if n not in limits}
        self.step(OptionsChanged(Options(**{**kept, **limits})), pause_s)

    @rule(pause_s=st.sampled_from((0.5, 2.0, 10.0)))
    def tick(self, pause_s: float) -> None:
        self.step(Ticked(), pause_s)

    @rule()
    def tick_when_due(self) -> None:
        due_s = self.core.next_deadline_s()
        if due_s is not None:
            self.step(Ticked(), max(0.0, due_s - self.now_s))

    @precondition(lambda self: self.count > 12)
    @rule(pause_s=STEPS_S)
    def shut_down(self, pause_s: float) -> None:
        self.step(ShutDown(), pause_s)

    @invariant()
    def the_picture_is_what_an_outsider_counts(self) -> None:
        """1 and 2 (conservation, leases), and 3: no free slot is left unused."""
        seen = [a for a in self.give(Observed(), self.now_s) if isinstance(a, Snapshot)]
        assert seen[0].waiting == len(self.model.queued())
        assert seen[0].waiting_bytes == sum(t.arrival.size_bytes for t in self.model.queued())
        if not self.late:
            self.outsider.check_free_slots(seen[0])

    @invariant()
    def nothing_due_is_forgotten(self) -> None:
        """8: whoever has a deadline is looked at in time."""
        deadlines = [t.deadline_s for t in self.model.in_state("waiting") if not t.arrival.job]
        due_s = self.core.next_deadline_s()
        assert not deadlines or (due_s is not None and due_s <= min(deadlines))

    def teardown(self) -> None:
        """13: same events, same order."""
        again = Scheduler(self.options)
        for now_s, event, actions in self.log:
            assert list(again.handle(event, now_s)) == actions


CoreAgainstModel.TestCase.settings = settings(
    max_examples=50,  # the seeded days find more, and sooner; what is found here is shrunk
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCoreAgainstModel = CoreAgainstModel.TestCase
