"""A simulated node: loads models, serves, fails, and reports itself.

A model that is not in memory costs `load_s` before service starts. Loads happen one at a time, in
the order in which they were asked for; the least recently used model makes room, and only once its
running work is done. The node reports its memory when a load is done and with every probe.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forebay.core.events import (
    Cancelled,
    Event,
    Finished,
    NodeChanged,
    NodeRemoved,
    NodeRested,
    NodeState,
    Returned,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from forebay.testing.clock import FakeTimer
    from forebay.testing.simulation.engine import Engine, SentRequest
    from forebay.testing.simulation.scenario import NodePlan

FAILS_WITHIN_S = 0.2
"""How long a refused connection or a 429 takes to be noticed."""


@dataclass(slots=True)
class Run:
    """One answer in the making."""

    sent: SentRequest
    attempt: int
    started_s: float | None = None
    """When service began; None while it waits for its model to load."""
    service_s: float = 0.0
    timer: FakeTimer | None = None

    def share_done(self, now_s: float) -> float:
        """Return how much of the answer has been made, 0 to 1."""
        if self.started_s is None or self.service_s <= 0.0:
            return 0.0
        return min(1.0, (now_s - self.started_s) / self.service_s)


class SimulatedNode:
    """Plays one `NodePlan`."""

    def __init__(
        self, plan: NodePlan, random: Random, engine: Engine, attempts_max: int = 3
    ) -> None:
        self.plan = plan
        self._random = random
        self._engine = engine
        self._attempts_max = attempts_max
        self._state: NodeState = "online"
        self._alive = plan.starts_s <= 0.0
        self._is_new = not self._alive
        self._away_since_s = engine.now_s()
        self._removed = False
        if self._is_new:
            engine.after(plan.starts_s, self.recover)
        self._runs: dict[str, Run] = {}
        self._loaded: dict[str, None] = dict.fromkeys(plan.loaded)  # least recently used first
        self._loading: str | None = None
        self._load_timer: FakeTimer | None = None
        self.loads = 0
        """Models loaded so far."""

    # Being told

    def start(self, sent: SentRequest, attempt: int) -> None:
        run = self._runs[sent.arrived.id] = Run(sent, attempt)
        if not self._alive:
            self._after(run, FAILS_WITHIN_S * self._random.random(), self._fail_before)
        elif not self.plan.swaps or sent.arrived.model in self._loaded:
            self._serve(run)
        else:
            self._load_next()

    def stop(self, request_id: str) -> None:
        """Abort a request: its client left."""
        run = self._runs.get(request_id)
        if run is not None:
            self._cancel(run)

    def fail_all(self, seen: bool) -> None:
        """Crash: everything running here fails, memory is lost. The next report says offline."""
        self._note_absence()
        self._alive = False
        if seen:
            self.report()
        if self._load_timer is not None:
            self._load_timer.cancel()
        self._loading = None
        self._loaded.clear()
        for run in list(self._runs.values()):
            if run.sent.arrived.id not in self._runs:
                continue
            if run.share_done(self._engine.now_s()) < self.plan.first_byte_share:
                self._fail_before(run)
            else:
                self._break_off(run)

    def recover(self) -> None:
        """Be up again after an outage of any kind."""
        self._alive, self._is_new = True, False
        self.change("online")

    def change(self, state: NodeState) -> None:
        """Become something else, and report it."""
        if state != "online":
            self._note_absence()
        self._state = state
        self.report()

    def remake(self, slots: int | None, models: tuple[str, ...] | None) -> None:
        """Have other slots or models; those gone leave the memory when they are next idle."""
        plan = self.plan
        slots = plan.slots if slots is None else slots
        self.plan = replace(plan, slots=slots, models=models or plan.models)
        self.report()

    def _note_absence(self) -> None:
        if self._alive and self._state == "online":
            self._away_since_s = self._engine.now_s()

    def remove(self) -> None:
        if not self._removed:
            self._removed = True
            self._engine.post(NodeRemoved(self.plan.name))

    def report(self) -> None:
        """Post all that is known of this node, unless it has left the configuration."""
        plan = self.plan
        if self._removed:
            return
        state = self._state if self._alive else "offline"
        self._engine.post(
            NodeChanged(
                name=plan.name,
                slots=plan.slots,
                models=() if self._is_new else plan.models,
                families=plan.families,
                state=state,
                loaded=tuple(self._loaded) if plan.swaps else None,
                loaded_max=plan.loaded_max,
                load_s=plan.load_s if plan.tells_loads else 0.0,
                away_s=0.0 if state == "online" else self._engine.now_s() - self._away_since_s,
                is_new=self._is_new,
            )
        )

    # Loading

    def _load_next(self) -> None:
        if not self.plan.swaps or self._loading is not None or not self._alive:
            return
        waiting = [run for run in self._runs.values() if run.started_s is None and not run.timer]
        if not waiting or not self._make_room():
            return
        self._loading = waiting[0].sent.arrived.model
        self.loads += 1
        self._load_timer = self._engine.after(self.plan.load_s, self._finish_load)

    def _make_room(self) -> bool:
        if len(self._loaded) < self.plan.loaded_max:
            return True
        busy = {run.sent.arrived.model for run in self._runs.values() if run.started_s is not None}
        victim = next((model for model in self._loaded if model not in busy), None)
        if victim is None:
            return False
        del self._loaded[victim]
        return True

    def _finish_load(self) -> None:
        model, self._loading = self._loading, None
        if model is None:
            return
        self._loaded[model] = None
        for run in list(self._runs.values()):
            if run.started_s is None and not run.timer and run.sent.arrived.model == model:
                self._serve(run)
        if self.plan.tells_loads:
            self.report()
        self._load_next()

    # Serving

    def _serve(self, run: Run) -> None:
        plan, random = self.plan, self._random
        model = run.sent.arrived.model
        if model in self._loaded:
            self._loaded[model] = self._loaded.pop(model)  # now the most recently used
        service = plan.service_s_by_model.get(model, plan.service_s)
        run.started_s = self._engine.now_s()
        if run.sent.service_s is None:
            run.service_s = service.draw(random) + plan.token_s * run.sent.output_tokens
        else:
            run.service_s = run.sent.service_s * plan.slowness
        fate, vanish_share = random.random(), run.sent.vanish_share
        if fate < plan.fail_before_rate:
            share = plan.first_byte_share * random.random()
            self._after(run, share * run.service_s, self._fail_before)
        elif fate < plan.fail_before_rate + plan.busy_rate:
            self._after(run, FAILS_WITHIN_S * random.random(), self._refuse)
        elif vanish_share is not None:
            self._after(run, vanish_share * run.service_s, self._cancel)
        elif fate > 1.0 - plan.fail_after_rate:
            share = random.uniform(plan.first_byte_share, 1.0)
            self._after(run, share * run.service_s, self._break_off)
        else:
            self._after(run, run.service_s, self._finish)

    def _after(self, run: Run, delay_s: float, outcome: Callable[[Run], None]) -> None:
        run.timer = self._engine.after(delay_s, lambda: outcome(run))

    def _finish(self, run: Run) -> None:
        self._end(run, Finished(run.sent.arrived.id, True, *self._tokens(run, 1.0)))

    def _break_off(self, run: Run) -> None:
        share = run.share_done(self._engine.now_s())
        self._end(run, Finished(run.sent.arrived.id, False, *self._tokens(run, share)))

    def _cancel(self, run: Run) -> None:
        share = run.share_done(self._engine.now_s())
        self._end(run, Cancelled(run.sent.arrived.id, *self._tokens(run, share)))

    def _fail_before(self, run: Run) -> None:
        if run.attempt >= self._attempts_max:
            self._end(run, Finished(run.sent.arrived.id, False, 0, 0))
        else:
            self._end(run, Returned(run.sent.arrived.id))

    def _refuse(self, run: Run) -> None:
        self._engine.post(NodeRested(self.plan.name, self.plan.rest_s))
        self._end(run, Returned(run.sent.arrived.id, exclude=False))

    def _end(self, run: Run, event: Event) -> None:
        del self._runs[run.sent.arrived.id]
        if run.timer is not None:
            run.timer.cancel()
        self._engine.post(event)
        self._load_next()  # what was running may have been in the way of a load

    def _tokens(self, run: Run, share: float) -> tuple[int, int]:
        return run.sent.arrived.prompt_tokens, round(share * run.sent.output_tokens)
