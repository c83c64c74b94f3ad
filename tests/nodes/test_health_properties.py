"""What holds for a node's health whatever happens, in whatever order."""

from dataclasses import dataclass, field
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from forebay.core import NodeChanged
from forebay.nodes.adapters.report import NodeReport
from forebay.nodes.health import (
    FAILURES_MAX,
    FLAP_PROBE_S_MAX,
    PROBE_S,
    REST_S_MAX,
    TOGETHER_S,
    FailureKind,
    NodeHealth,
)

MODELS = ("a", "b", "c")
KINDS = st.sampled_from(("connect", "timeout", "status", "garbage", "broken"))
USERS = st.sampled_from("xyz")
REPORTS = st.builds(
    NodeReport,
    models=st.lists(st.sampled_from(MODELS), unique=True).map(tuple),
    families=st.just(("openai",)),
    kind=st.just("ollama"),
    state=st.sampled_from(("online", "loading")),
    slots=st.none() | st.integers(1, 8),
    gpu_load=st.none() | st.floats(allow_nan=False),
)
STEPS = st.tuples(
    st.floats(0.0, 30.0),
    st.one_of(
        st.tuples(st.just("good"), REPORTS),
        st.tuples(st.just("bad"), st.none()),
        st.tuples(st.just("failed"), st.tuples(st.sampled_from((*MODELS, "other")), KINDS, USERS)),
        st.tuples(st.sampled_from(("served", "refused")), st.sampled_from(MODELS)),
        st.tuples(st.sampled_from(("drain", "resume", "wake", "start")), st.none()),
    ),
)


@dataclass
class Watched:
    """A health, what it told last, and what an observer may conclude without looking inside."""

    health: NodeHealth
    now_s: float = 0.0
    told: NodeChanged | None = None
    in_a_row: int = 0  # failures that are no 5xx, with nothing good between
    broke_s: float = -1.0  # the last of these that was a request's
    log: list[NodeChanged | None] = field(default_factory=list)

    def step(self, wait_s: float, what: str, detail: object) -> None:
        self.now_s += wait_s
        before = self.told
        told = self._call(what, detail)
        self.log.append(told)
        self.told = told or self.told
        if before and self.told and before.state == "offline" and self.told.state != "offline":
            assert what == "good", "only a good probe brings a node back"

    def _count(self, kind: object) -> None:
        if kind == "connect" or (kind != "status" and self.now_s >= self.broke_s + TOGETHER_S):
            self.in_a_row += 1
            self.broke_s = self.now_s

    def _call(self, what: str, detail: object) -> NodeChanged | None:
        health, now_s = self.health, self.now_s
        match what, detail:
            case "good", NodeReport():
                self.in_a_row = 0
                return health.probe_succeeded(detail, now_s)
            case "bad", _:
                self.in_a_row += 1
                return health.probe_failed(now_s)
            case "failed", (str(model), kind, str(user)):
                self._count(kind)
                return health.request_failed(model, cast("FailureKind", kind), user, now_s)
            case "served" | "refused", str():
                self.in_a_row = 0 if what == "served" else self.in_a_row
                return health.request_answered(detail, now_s, ok=what == "served")
            case "drain", _:
                return health.drained(now_s)
            case "resume", _:
                return health.resumed(now_s)
            case "start", _:
                health.probe_started(now_s)
                return None
            case _:
                return health.woken(now_s)


@given(st.lists(STEPS, max_size=60), st.integers(0, 6))
def test_what_is_told_always_makes_sense(
    steps: list[tuple[float, tuple[str, object]]], slots: int
) -> None:
    watched = Watched(NodeHealth("n", slots=slots))
    for wait_s, (what, detail) in steps:
        watched.step(wait_s, what, detail)
        told = watched.health.changed(watched.now_s)
        assert told.slots >= 1
        assert 0.0 <= told.gpu_load <= 1.0
        assert set(told.failing) | set(told.on_trial) <= set(told.models)
        assert not set(told.failing) & set(told.on_trial)
        assert (told.state == "offline") == (watched.health.phase in {"new", "offline"})
        if watched.health.phase == "half_open":
            assert told.slots == 1
        if watched.in_a_row >= FAILURES_MAX:
            assert told.state == "offline"


@given(st.lists(STEPS, max_size=60))
def test_the_next_probe_is_never_far_and_never_forgotten(
    steps: list[tuple[float, tuple[str, object]]],
) -> None:
    watched = Watched(NodeHealth("n"))
    for wait_s, (what, detail) in steps:
        watched.step(wait_s, what, detail)
        probe_s, now_s = watched.health.next_probe_s(), watched.now_s
        assert probe_s <= now_s + FLAP_PROBE_S_MAX
        if what in {"good", "bad"}:
            assert probe_s > now_s, "a probe that has just ended is not followed by another at once"
        if watched.health.state == "online":
            assert probe_s <= now_s + PROBE_S
        assert watched.health.next_wake_s() <= probe_s


@given(st.lists(STEPS, max_size=60))
def test_every_rest_ends_within_five_seconds(steps: list[tuple[float, tuple[str, object]]]) -> None:
    watched = Watched(NodeHealth("n"))
    for wait_s, (what, detail) in steps:
        watched.step(wait_s, what, detail)
    assert watched.health.changed(watched.now_s + REST_S_MAX).failing == ()


@given(st.lists(STEPS, max_size=40))
def test_the_same_events_at_the_same_times_tell_the_same(
    steps: list[tuple[float, tuple[str, object]]],
) -> None:
    first, second = Watched(NodeHealth("n")), Watched(NodeHealth("n"))
    for wait_s, (what, detail) in steps:
        first.step(wait_s, what, detail)
        second.step(wait_s, what, detail)
    assert first.log == second.log


@given(st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from("xyzg40")), max_size=80))
def test_a_model_rests_only_after_five_5xx_in_a_row_to_two_users(
    steps: list[tuple[float, str]],
) -> None:
    """Letters x to z are users who get a 5xx, g a good answer, 4 a refusal, 0 a good probe."""
    report = NodeReport(models=MODELS, families=("openai",), kind="ollama", slots=4)
    health = NodeHealth("n")
    health.probe_succeeded(report, 0.0)
    now_s, answers = 0.0, ""
    for wait_s, what in steps:
        now_s += wait_s
        if what == "0":
            health.probe_succeeded(report, now_s)
        elif what in "g4":
            answers += what
            health.request_answered("a", now_s, ok=what == "g")
        else:
            rests = bool(health.changed(now_s).failing)
            answers += "" if rests else what  # it began before the rest did
            health.request_failed("a", "status", what, now_s)
        told = health.changed(now_s)
        assert (told.state, told.slots) == ("online", 4)
        last = set(answers[-5:])
        held = bool(told.failing or told.on_trial)
        if len(answers) < 5 or last & {"g", "4"} or len(last) < 2:
            assert not held
