"""The specification's story in virtual time: N jobs approved at once, one small GPU, three models.

Each approval makes a cover letter, a research and a wizard job; each kind has its model, of which
one is in memory at a time. Loading takes 20 s, a job 10 s. *Spawn per task*: every job asks the
backend at once, which serves them as they come (threads race, so in random order). *FIFO*: one
after the other as submitted. *Forebay*: the core's own scheduler with one ticket per model.
"""

from __future__ import annotations

import heapq
import random
from statistics import mean

from forebay.core import Arrived, Event, Finished, NodeChanged, Options, Route, Scheduler, Ticked

LOAD_S = 20.0
SERVICE_S = 10.0
MODELS = ("letters", "research", "wizard")


def story(approvals: int) -> list[str]:
    return [model for _ in range(approvals) for model in MODELS]


def served_in_order(order: list[str]) -> dict[str, float]:
    """Serve one after the other, loading whenever the model changes."""
    now_s, loads, loaded = 0.0, 0, ""
    ends: list[float] = []
    for model in order:
        if model != loaded:
            now_s, loads, loaded = now_s + LOAD_S, loads + 1, model
        now_s += SERVICE_S
        ends.append(now_s)
    return {"loads": loads, "makespan_s": now_s, "mean_end_s": mean(ends)}


def spawned(order: list[str], seeds: int = 50) -> dict[str, float]:
    runs = []
    for seed in range(seeds):
        raced = list(order)
        random.Random(seed).shuffle(raced)
        runs.append(served_in_order(raced))
    return {key: mean(run[key] for run in runs) for key in runs[0]}


class Story:
    """The real scheduler in virtual time, with a ticket per model as `jobs.filling` keeps them."""

    def __init__(self, order: list[str]) -> None:
        self.scheduler = Scheduler(Options())
        self.queued = {model: order.count(model) for model in MODELS}
        self.ending: list[tuple[float, str]] = []  # when which ticket ends
        self.ends: list[float] = []
        self.waiting: set[str] = set()
        self.now_s = 0.0
        self.loaded = ""
        self.loads = self.tickets = 0

    def reserve(self, model: str) -> None:
        if self.queued[model] and model not in self.waiting:
            self.waiting.add(model)
            self.tickets += 1
            self.post(Arrived(f"{model}:{self.tickets}", model, job=True))

    def post(self, event: Event) -> None:
        for action in self.scheduler.handle(event, self.now_s):
            if isinstance(action, Route):
                self.run(action.id)

    def run(self, ticket: str) -> None:
        model = ticket.partition(":")[0]
        self.waiting.discard(model)
        self.queued[model] -= 1
        cold = model != self.loaded
        self.loads += cold
        self.loaded = model
        heapq.heappush(self.ending, (self.now_s + SERVICE_S + LOAD_S * cold, ticket))
        self.reserve(model)

    def play(self) -> dict[str, float]:
        self.post(NodeChanged("gpu", 1, MODELS, loaded=(), loaded_max=1, load_s=LOAD_S))
        for model in MODELS:
            self.reserve(model)
        while self.ending or any(self.queued.values()):
            due_s = self.scheduler.next_deadline_s()
            if due_s is not None and (not self.ending or due_s < self.ending[0][0]):
                self.now_s = due_s
                self.post(Ticked())
                continue
            self.now_s, ticket = heapq.heappop(self.ending)
            self.ends.append(self.now_s)
            self.post(Finished(ticket))
        return {"loads": self.loads, "makespan_s": self.now_s, "mean_end_s": mean(self.ends)}


def compared(approvals: int = 30) -> dict[str, dict[str, float]]:
    order = story(approvals)
    return {
        "spawn per task": spawned(order),
        "FIFO": served_in_order(order),
        "Forebay": Story(order).play(),
    }
