"""The health of a node as a pure state machine: events and time in, changes out.

A circuit breaker with four phases, moved only through `TRANSITIONS`. Two failures in a row open
it; one good probe makes it *half open*: the node is then reported with a single slot, until a
request or a second probe succeeds. A failure while half open opens it again at once.

**Which requests count as failures.** A node is judged by what nobody else can be blamed for: one
request can make a stream wait for ever, or a server close its connection. A time-out, a broken
connection or garbage counts only if the node began no answer below 500 to anybody between the
start and the end of that request; what breaks within `TOGETHER_S` is one failure. A refused connect
always counts. What does not count is a strike of its user (`forebay.core.nodes`). Each asks for a
probe, but good probes do not make up for requests: many servers that hang say that they are well.

Two things keep a sick node from being thrashed. While it is offline, probes back off from
`OFFLINE_PROBE_S` to `PROBE_S`, so that a node that comes back is never overlooked for longer than
between healthy probes. And a node that goes offline soon after coming back has *flapped*: each flap
doubles the wait before it is asked again, up to `FLAP_PROBE_S_MAX`, until it has stayed up for
`STABLE_S`. A node that flaps every 2 s is thus let in a few times in its first two minutes, then
at most about once a minute.

A whole answer of 5xx is no failure of the node: engines give it to requests that are wrong
themselves, and then one client could take a model from all others. It asks for a probe, no more.
Only a model whose last `ERRORS_MAX` answers here were all 5xx, to `USERS_MIN` users or more (it
does not fit in memory, its file is broken), rests alone: for `REST_S`, and again after each further
5xx, twice as long each time up to `REST_S_MAX`. Between rests it is on *trial*: one request at a
time is the probe, and any answer below 500 ends the matter. Nothing of that takes the node offline.

What it does not do: it keeps no timers and asks nobody. Ask `next_wake_s()` when to call `woken`,
and `next_probe_s()` when to probe.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias
from zlib import crc32

from msgspec import structs

from forebay.core.events import NodeChanged, NodeState, SlotsKind
from forebay.nodes.adapters.report import SLOTS_AT_FIRST, SLOTS_ELSE, NodeReport

PROBE_S = 10.0
"""Between probes of a healthy node; DESIGN 7."""
FAILURES_MAX = 2
"""Failures in a row that take a node offline; DESIGN 7."""
PROBE_GAP_S = 1.0
"""Failing requests ask for a probe at once, but a hundred of them not for a hundred probes."""
LOADING_PROBE_S = 1.0
"""A node that loads will be ready soon, and requests are waiting for it."""
CONFIRM_PROBE_S = 2.0
"""From the half-open probe to the second one, so that an idle node is not held at one slot."""
OFFLINE_PROBE_S = 1.0
"""The first probe after going offline: a restart of a small server takes about that long."""
FLAP_PROBE_S_MAX = 60.0
STABLE_S = 60.0
"""Up this long, a node is no longer held to its past."""
GOLDEN_STEP = 0.6180339887498949
"""Steps of this share of a circle come closest to never meeting again."""
UNREAD = (-1, 0)
"""The room in a key-value cache that nobody has told of, and the number of that reading."""
LOAD_STEP = 0.05
"""A smaller change of the GPU's load between probes is not worth telling."""
ERRORS_MAX = 5
"""Answers of 5xx in a row that put a model to rest; DESIGN 4.1."""
USERS_MIN = 2
"""To how many users: one alone may send nothing but bad requests; DESIGN 4.1."""
TOGETHER_S = 1.0
"""Requests that break within so long of each other have most likely broken for one reason."""
NEVER_S = float("-inf")
REST_S = 1.0
REST_S_MAX = 5.0
"""Requests wait meanwhile, and where no other node has the model it helps nobody; DESIGN 4.1."""
ERRORS_KEPT_S = 60.0
"""Without a further 5xx a model is no longer held to its past; others may know better by then."""

Phase: TypeAlias = Literal["new", "online", "half_open", "offline"]
Cause: TypeAlias = Literal["probed", "served", "failed", "failed_often"]
FailureKind: TypeAlias = Literal["connect", "timeout", "status", "garbage", "broken"]
"""How a request failed: no connection, no byte in time, a 5xx, nonsense, broken off half-way."""

HEALTH_KINDS: Final[Mapping[str, FailureKind]] = {
    "connect": "connect",
    "status": "status",
    "garbage": "garbage",
    "too_large": "garbage",
    "lost": "broken",
    "first_byte_timeout": "timeout",
    "chunk_timeout": "timeout",
}
"""What each way for a request to fail says about the health of its node; the rest say nothing."""

WAYS_TO_FAIL: Final[Mapping[str, str]] = {
    "connect": "no connection",
    "status": "it answered with a server error",
    "garbage": "its answer could not be parsed",
    "too_large": "its answer was too large",
    "lost": "the connection broke off",
    "first_byte_timeout": "it did not begin to answer in time",
    "chunk_timeout": "it went silent in mid-answer",
    "run_timeout": "it did not finish in time",
}
"""The ways for a request to fail, for people."""

TIMEOUTS: Final = frozenset({"first_byte_timeout", "chunk_timeout", "run_timeout"})

TRANSITIONS: Mapping[tuple[Phase, Cause], Phase] = {
    ("new", "probed"): "online",
    ("new", "served"): "new",
    ("new", "failed"): "new",
    ("new", "failed_often"): "offline",
    ("online", "probed"): "online",
    ("online", "served"): "online",
    ("online", "failed"): "online",
    ("online", "failed_often"): "offline",
    ("half_open", "probed"): "online",
    ("half_open", "served"): "online",
    ("half_open", "failed"): "offline",
    ("half_open", "failed_often"): "offline",
    ("offline", "probed"): "half_open",
    ("offline", "served"): "offline",  # an answer that began before it went away
    ("offline", "failed"): "offline",
    ("offline", "failed_often"): "offline",
}


class _Errors:
    """The 5xx of one model since its last good answer."""

    __slots__ = ("last_s", "rest_s", "rests_until_s", "users")

    def __init__(self) -> None:
        self.users: deque[str] = deque(maxlen=ERRORS_MAX)  # to whom, the latest last
        self.last_s = 0.0
        self.rest_s = 0.0  # the length of the last rest; 0 before the first
        self.rests_until_s = 0.0

    def add(self, user: str, now_s: float) -> None:
        """Count one; it may be one too many."""
        if now_s < self.rests_until_s:
            return  # it began before the rest did
        self.users.append(user)
        self.last_s = now_s
        if self.is_suspect():
            self.rest_s = min(REST_S_MAX, self.rest_s * 2.0 or REST_S)
            self.rests_until_s = now_s + self.rest_s

    def is_suspect(self) -> bool:
        """Say whether it is the model that fails, as far as can be told, and not its callers."""
        return len(self.users) == ERRORS_MAX and len(set(self.users)) >= USERS_MIN


class NodeHealth:
    """The health of one node. Every method returns an event for the core, or None."""

    def __init__(
        self, name: str, slots: int = 0, models: tuple[str, ...] = (), now_s: float = 0.0
    ) -> None:
        """Begin with a node of which nothing is known; `slots` and `models` are the operator's.

        `slots = 0` and no models mean: what the node says.
        """
        self._name = name
        self._slots_set = slots
        self.slots_found = 0
        """What the core has found, where it has."""
        self._room = UNREAD
        self._models_set = models
        self.phase: Phase = "new"
        self._report = NodeReport(models=(), families=("openai",), kind="")
        self._failures = 0  # in a row, probes among them
        self._unanswered = 0  # requests among them, whatever probes say meanwhile
        self._counted_s = NEVER_S  # when the last of these failed
        self._broke_s = NEVER_S  # when any did, 5xx aside
        self._breaks_together = False  # the last that broke was not alone
        self.answered_s = NEVER_S  # when the last answer below 500 began, to a request from here
        self.answered_others_s = NEVER_S  # to other gateways, as far as they have said
        self._offline_tries = 0  # failed probes since it went offline
        self._flaps = 0
        self._place = crc32(name.encode()) / 2**32  # in the cycle of `_spread`
        self._up_since_s = now_s
        self._has_answered = False  # to anyone, since it was added
        self._failed_since_s: float | None = now_s  # the first failure since its last good answer
        self._drained_since_s: float | None = None
        self._silent_since_s: float | None = None
        self._loading_since_s: float | None = None
        self._load_s: float | None = None  # how long it took to load, the last times
        self._probe_at_s = now_s
        self._probe_started_s = now_s - PROBE_GAP_S
        self._errors: dict[str, _Errors] = {}  # by model
        self._told: NodeChanged | None = None
        self._told_s = now_s

    @property
    def is_silent(self) -> bool:
        """Say whether the node is out because its guard is not heard of."""
        return self._silent_since_s is not None

    @property
    def is_steady(self) -> bool:
        """Say whether a request that succeeds is no news: the usual case, once per request."""
        return self.phase == "online" and not self._failures and not self._errors

    @property
    def state(self) -> NodeState:
        if self.is_silent or self.phase in {"new", "offline"}:
            return "offline"
        return self._report.state if self._drained_since_s is None else "draining"

    @property
    def is_doubtful(self) -> bool:
        """Say, of a request that has just broken, whether its node may be gone for all."""
        return self.phase == "offline" or self._failures > 0 or self._breaks_together

    def excuses(self, kind: FailureKind, started_s: float) -> bool:
        """Say whether a request that failed has itself to blame: others were answered meanwhile."""
        return kind not in ("connect", "status") and self._last_answer_s() >= started_s

    def _last_answer_s(self) -> float:
        return max(self.answered_s, self.answered_others_s)

    def next_probe_s(self) -> float:
        return self._probe_at_s

    def next_wake_s(self) -> float:
        """Return when something happens by time alone: the next probe, or the end of a rest."""
        ends = [e.rests_until_s for e in self._errors.values() if e.rests_until_s > self._told_s]
        return min((self._probe_at_s, *ends))

    def probe_started(self, now_s: float) -> None:
        """Take note of a probe on its way: the next one is not due before this one is over."""
        self._probe_started_s = now_s
        self._probe_at_s = now_s + PROBE_S

    def probe_succeeded(self, report: NodeReport, now_s: float) -> NodeChanged:
        """Take a good answer. Always tells the core: for it this is the sign of a good probe."""
        if report.state == "loading":  # it does not say all then
            known = self._report
            models, slots = report.models or known.models, report.slots or known.slots
            report = structs.replace(report, models=models, slots=slots)
        self._report = report
        if report.state == "online" or self.phase in {"new", "offline"}:
            self._move("probed", now_s)
        self._answer_well()
        self._has_answered = True
        self._measure_load(report.state, now_s)
        names = set(self._models())
        self._errors = {
            model: errors
            for model, errors in self._errors.items()
            if model in names and now_s < errors.last_s + ERRORS_KEPT_S
        }
        self._probe_at_s = now_s + self._interval_s()
        return self.changed(now_s)

    def probe_failed(self, now_s: float) -> NodeChanged | None:
        """Take a probe that found nobody, or nonsense."""
        self._probe_at_s = now_s + PROBE_GAP_S
        self._fail(now_s, self._probe_at_s)
        return self._tell_if_changed(now_s)

    def request_failed(
        self, model: str, kind: FailureKind, user: str, now_s: float, *, excused: bool = False
    ) -> NodeChanged | None:
        """Take a request that failed; busy answers (429) are no failures.

        One that is `excused` says nothing of the node. A `status` may be the fault of the request,
        so it counts against the model alone, and there only together with those of other users.
        """
        if self.phase == "offline":
            return None  # one of many that broke together: it says nothing new
        ask_at_s = max(now_s, self._probe_started_s + PROBE_GAP_S)
        self._probe_at_s = min(self._probe_at_s, ask_at_s)
        if kind == "status":
            if model in self._models():
                self._errors.setdefault(model, _Errors()).add(user, now_s)
            return self._tell_if_changed(now_s)
        self._breaks_together = now_s < self._broke_s + TOGETHER_S
        self._broke_s = now_s
        if not excused and (kind == "connect" or now_s >= self._counted_s + TOGETHER_S):
            if self._last_answer_s() >= self._counted_s:
                self._unanswered = 0
            self._unanswered += 1
            self._counted_s = now_s
            self._fail(now_s, ask_at_s)
        return self._tell_if_changed(now_s)

    def request_answered(self, model: str, now_s: float, *, ok: bool) -> NodeChanged | None:
        """Take a request that was answered in full; not `ok` where the node refused it (4xx)."""
        if self.is_steady:
            return None
        self._errors.pop(model, None)
        if ok:
            self._answer_well()
            self._unanswered = 0
            self._move("served", now_s)
        return self._tell_if_changed(now_s)

    def found_loading(self, now_s: float) -> NodeChanged | None:
        """Take a request that was told to come again because the model is being loaded.

        That is no failure. The node is asked once a second when it is ready: by itself it may
        well say that it is healthy, and have many requests come in vain.
        """
        if self.phase == "offline":
            return None
        self._report = structs.replace(self._report, state="loading")
        self._measure_load("loading", now_s)
        self._probe_at_s = now_s + LOADING_PROBE_S
        return self._tell_if_changed(now_s)

    def stream_began(self, model: str, now_s: float) -> NodeChanged | None:
        """Take a stream that has begun well: the model works, whatever becomes of the node.

        Waiting for its end would keep a model on trial for as long as one user's stream lasts.
        """
        if self._errors.pop(model, None) is None:
            return None
        return self._tell_if_changed(now_s)

    def take_over(self, other: "NodeHealth", *, same_server: bool) -> None:
        """Begin with what was known under this name before the operator changed its settings.

        Its models stay known, so that nobody is told meanwhile that there are none.
        """
        self._report = other._report
        self._drained_since_s = other._drained_since_s
        if same_server:
            self.phase = other.phase
            self._has_answered = other._has_answered
            self._failed_since_s = other._failed_since_s
            self._loading_since_s, self._load_s = other._loading_since_s, other._load_s
            self.slots_found = other.slots_found

    def drained(self, now_s: float) -> NodeChanged | None:
        """Let nothing new start there, by the operator's wish."""
        if self._drained_since_s is None:
            self._drained_since_s = now_s
        return self._tell_if_changed(now_s)

    def resumed(self, now_s: float) -> NodeChanged | None:
        """Use it again, after looking at it first."""
        self._drained_since_s = None
        self._probe_at_s = now_s
        return self._tell_if_changed(now_s)

    def heard(
        self, slots: int, gpu_load: float | None, now_s: float, room: tuple[int, int] = UNREAD
    ) -> NodeChanged | None:
        """Take a heartbeat of the node's guard: its slots, and the GPU between probes.

        And the room in its key-value cache, with the number of the reading.

        A node whose guard had gone silent is usable again, after looking at it first.
        """
        self._slots_set = slots
        self._room = room
        if self.is_silent:
            self._silent_since_s = None
            self._probe_at_s = now_s
        before = self._report.gpu_load
        if gpu_load is None or before is None or abs(gpu_load - before) >= LOAD_STEP:
            self._report = structs.replace(self._report, gpu_load=gpu_load)
        return self._tell_if_changed(now_s)

    def fell_silent(self, now_s: float) -> NodeChanged | None:
        """Take the node out: its guard has not been heard of for too long."""
        self._silent_since_s = now_s
        return self._tell_if_changed(now_s)

    def woken(self, now_s: float) -> NodeChanged | None:
        """Take the passing of time: models whose rest is over may be tried again."""
        return self._tell_if_changed(now_s)

    def _fail(self, now_s: float, ask_at_s: float) -> None:
        """Count one failure.

        The next probe is at `ask_at_s`, unless the node is offline: then its backoff holds.
        """
        self._failures += 1
        if self._failed_since_s is None:
            self._failed_since_s = now_s
        was_offline = self.phase == "offline"
        in_a_row = max(self._failures, self._unanswered)
        self._move("failed_often" if in_a_row >= FAILURES_MAX else "failed", now_s)
        if was_offline:
            self._offline_tries += 1
        if self.phase == "offline":
            self._probe_at_s = now_s + self._interval_s()
        else:
            self._probe_at_s = min(self._probe_at_s, ask_at_s)

    def _answer_well(self) -> None:
        self._failures = 0
        self._failed_since_s = None

    def _measure_load(self, state: NodeState, now_s: float) -> None:
        """Learn how long it takes to load, from its first word of it to the first without."""
        began_s = self._loading_since_s
        if state == "loading":
            self._loading_since_s = now_s if began_s is None else began_s
        elif began_s is not None:
            took_s, self._loading_since_s = now_s - began_s, None
            self._load_s = took_s if self._load_s is None else (took_s + self._load_s) / 2.0

    def _away_s(self, now_s: float) -> float:
        """Return for how long nobody could use it."""
        spells_s = (self._failed_since_s, self._drained_since_s, self._silent_since_s)
        return max((now_s - since_s for since_s in spells_s if since_s is not None), default=0.0)

    def _ready_in_s(self, now_s: float) -> float | None:
        """Return when it will be ready, going by earlier loads; None where that cannot be known."""
        if self._load_s is None or self._loading_since_s is None:
            return None
        return max(0.0, self._loading_since_s + self._load_s - now_s)

    def _move(self, cause: Cause, now_s: float) -> None:
        before = self.phase
        self.phase = TRANSITIONS[before, cause]
        if self.phase == before:
            return
        if self.phase == "offline":
            self._offline_tries = 0
            is_flap = before != "new" and now_s - self._up_since_s < STABLE_S
            self._flaps = self._flaps + 1 if is_flap else 0
        elif before in {"new", "offline"}:
            # The first time up is no comeback: a node may fail early without having flapped.
            self._up_since_s = now_s if before == "offline" else now_s - STABLE_S

    def _interval_s(self) -> float:
        """Return how long to the next probe, from one that has just ended."""
        if self.phase == "offline":
            backoff_s = min(PROBE_S, OFFLINE_PROBE_S * 2.0 ** min(self._offline_tries, 8))
            flap_s = min(FLAP_PROBE_S_MAX, OFFLINE_PROBE_S * 2.0 ** min(self._flaps, 8))
            return max(backoff_s, flap_s) * self._spread()
        if self.phase == "new" or self._report.state == "loading":
            return LOADING_PROBE_S
        return CONFIRM_PROBE_S if self.phase == "half_open" else PROBE_S

    def _spread(self) -> float:
        """Return 0.75 to 1, another each time, by golden steps from a place of the node's own.

        Evenly spaced probes can miss a node that is up half of the time, for ever; and nodes that
        die together would be probed together.
        """
        self._place = (self._place + GOLDEN_STEP) % 1.0
        return 0.75 + 0.25 * self._place

    def _models(self) -> tuple[str, ...]:
        return self._models_set or self._report.models

    def _slots(self) -> int:
        if self.phase == "half_open":
            return 1
        known, kind = self._report.slots or self.slots_found, self._report.kind
        return self._slots_set or known or (SLOTS_AT_FIRST.get(kind, SLOTS_ELSE) if kind else 1)

    @property
    def slots_kind(self) -> SlotsKind:
        """Who knows how many slots there are; nobody tries any number before it has come up."""
        report, is_up = self._report, self.phase == "online"
        if self._slots_set or not (is_up and report.state == "online"):
            return "fixed"
        return "named" if report.slots else "found"

    def changed(self, now_s: float) -> NodeChanged:
        """Return all that is to be told now; for a core that has not heard of the node yet."""
        report = self._report
        suspects = [(m, e.rests_until_s > now_s) for m, e in self._errors.items() if e.is_suspect()]
        state = self.state
        self._told_s = now_s
        self._told = NodeChanged(
            name=self._name,
            slots=self._slots(),
            models=self._models(),
            families=report.families,
            state=state,
            gpu_load=min(1.0, max(0.0, report.gpu_load or 0.0)),
            loaded=report.loaded,
            loaded_max=report.loaded_max,
            failing=tuple(model for model, rests in suspects if rests),
            on_trial=tuple(model for model, rests in suspects if not rests),
            away_s=0.0 if state in ("online", "loading") else self._away_s(now_s),
            is_new=not self._has_answered,
            ready_in_s=self._ready_in_s(now_s) if state == "loading" else None,
            slots_kind=self.slots_kind,
            kv_free_tokens=self._room[0],
            kv_reading=self._room[1],
        )
        return self._told

    def _tell_if_changed(self, now_s: float) -> NodeChanged | None:
        before = self._told
        now = self.changed(now_s)
        if before is not None:  # these pass by themselves, and whoever was told them knows
            before = structs.replace(before, away_s=now.away_s, ready_in_s=now.ready_in_s)
        return None if now == before else now
