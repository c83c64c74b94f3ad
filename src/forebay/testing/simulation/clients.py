"""A simulated client: sends what its plan says, and reacts to the result.

Everything about a request is drawn when it is sent, from the client's own stream of random
numbers: two policies under the same seed see the same requests.
"""

from __future__ import annotations

from itertools import cycle
from random import Random
from typing import TYPE_CHECKING

from forebay.core.events import Arrived, Cancelled, Inspected, Revoked
from forebay.testing.simulation.engine import SentRequest
from forebay.testing.simulation.scenario import Backlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from forebay.testing.simulation.engine import Engine
    from forebay.testing.simulation.scenario import ClientPlan, Recorded

REFUSED_PAUSE_S = 1.0
"""How long a closed loop waits after a refusal, so that it does not spin in one instant."""


class SimulatedClient:
    """Plays one `ClientPlan`."""

    def __init__(self, plan: ClientPlan, random: Random, engine: Engine) -> None:
        self.plan = plan
        self._random = random
        self._engine = engine
        self._sent = 0
        self._cycle = cycle(plan.models)
        self._times: Iterator[float] = iter(())
        self._until_s = 0.0
        self._talks = Random(plan.user)
        """Of its own, so that all else is drawn alike, whichever conversations there are."""

    def start(self, until_s: float) -> None:
        """Begin to send, and stop at `until_s`."""
        self._until_s = until_s
        arrivals = self.plan.arrivals
        if isinstance(arrivals, Backlog):
            for _ in range(arrivals.depth):
                self._engine.after(0.0, self._send)
        else:
            self._times = arrivals.times(self._random)
            self._plan_next()

    def _plan_next(self) -> None:
        at_s = next(self._times, None)
        if at_s is not None and at_s < self._until_s:
            self._engine.clock.call_at(at_s, self._send_and_plan)

    def _send_and_plan(self) -> None:
        self._send()
        self._plan_next()

    def _send(self) -> None:
        if self._sent >= self.plan.count_max or self._engine.now_s() >= self._until_s:
            return
        self._sent += 1
        sent = self._draw()
        self._plan_interference(sent)
        self._engine.send(sent)

    def _draw(self) -> SentRequest:
        plan, random = self.plan, self._random
        job = self._chance(plan.job_rate)
        limit = plan.output_limit
        output_tokens = max(1, round(plan.output_tokens.draw(random)))
        prompt_tokens = max(1, round(plan.prompt_tokens.draw(random)))
        size_bytes = max(1, round(plan.size_bytes.draw(random)))
        own_limit = plan.max_wait_s is not None and self._chance(plan.max_wait_rate)
        arrived = Arrived(
            id=f"{plan.user}-{next(self._engine.numbers)}",
            model=next(self._cycle) if plan.cycle_models else self._pick(plan.models),
            family=self._pick(plan.families),
            user=plan.user,
            priority=self._pick(plan.priorities),
            prompt_tokens=prompt_tokens,
            output_limit=limit,
            size_bytes=size_bytes,
            weight=plan.weight,
            affinity=plan.user if self._chance(plan.affinity_rate) else "",
            max_wait_s=plan.max_wait_s.draw(random)
            if own_limit and plan.max_wait_s and not job
            else None,
            stream=self._chance(plan.stream_rate),
            job=job,
            key=plan.key,
            key_running_max=plan.key_running_max,
            conversation=self._next_conversation(),
        )
        return SentRequest(
            arrived=arrived,
            client=self,
            output_tokens=min(output_tokens, limit) if limit else output_tokens,
            vanish_share=random.random() if self._chance(plan.vanish_rate) else None,
            vanishes_on_grant=self._chance(plan.vanish_on_grant_rate),
        )

    def _next_conversation(self) -> str:
        number = self.plan.conversations
        return f"talk{self._talks.randrange(number)}" if number > 1 else ""

    def _plan_interference(self, sent: SentRequest) -> None:
        plan, request_id, post = self.plan, sent.arrived.id, self._engine.post
        if self._chance(plan.cancel_rate):
            self._later(lambda: None if sent.running else post(Cancelled(request_id)), sent)
        if self._chance(plan.revoke_rate):
            self._later(lambda: post(Revoked(request_id)), sent)
        if self._chance(plan.inspect_rate):
            self._later(lambda: post(Inspected(request_id)), sent)

    def _later(self, action: Callable[[], None], sent: SentRequest) -> None:
        patience_s = self.plan.patience_s.draw(self._random)
        is_open = self._engine.open
        self._engine.after(patience_s, lambda: action() if sent.arrived.id in is_open else None)

    def note_end(self, sent: SentRequest, refused: bool) -> None:
        """A closed loop sends its next."""
        arrivals = self.plan.arrivals
        if isinstance(arrivals, Backlog):
            pause_s = arrivals.think_s.draw(self._random)
            if refused:
                pause_s = max(pause_s, REFUSED_PAUSE_S)
            self._engine.after(pause_s, self._send)

    def _chance(self, rate: float) -> bool:
        return rate > 0.0 and self._random.random() < rate

    def _pick(self, weights: Mapping[str, float]) -> str:
        if len(weights) == 1:
            return next(iter(weights))
        return self._random.choices(list(weights), list(weights.values()))[0]


class RecordedClients:
    """Sends what a recording says, when it says so."""

    def __init__(self, requests: Iterable[Recorded], engine: Engine) -> None:
        self._requests = iter(requests)
        self._engine = engine

    def start(self) -> None:
        """Wait for the next request, and send it."""
        one = next(self._requests, None)
        if one is not None:
            self._engine.clock.call_at(one.at_s, lambda: self._send(one))

    def _send(self, one: Recorded) -> None:
        sent = SentRequest(one.arrived, None, one.output_tokens, one.service_s)
        if one.leaves_after_s is not None:
            self._engine.after(one.leaves_after_s, lambda: self._leave(one, sent))
        self._engine.send(sent)
        self.start()

    def _leave(self, one: Recorded, sent: SentRequest) -> None:
        is_open = one.arrived.id in self._engine.open
        if is_open and (one.leaves_running or not sent.running):
            self._engine.leave(one.arrived.id)
