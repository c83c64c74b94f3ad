"""One node at run time: its connections, its health, and the probes that keep it up to date.

Everything that is decided is decided by `NodeHealth`; this class only asks at the times it says,
hands over what it heard, and posts what the core must be told. One timer, at most one probe under
way. Cancelling a probe closes its connection.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from forebay.core import NodeRemoved, NodeRested
from forebay.core.nodes import is_excused, new_excuses
from forebay.core.pools import pool_name, split_pools
from forebay.core.slots import SLOTS_MAX
from forebay.errors import BackendFailed
from forebay.nodes.adapters.detection import ADAPTERS, detect
from forebay.nodes.adapters.lm_studio import LmStudio
from forebay.nodes.adapters.report import NodeReport, ProbeReply, says_loading
from forebay.nodes.health import HEALTH_KINDS, UNREAD, WAYS_TO_FAIL, NodeHealth
from forebay.nodes.probing import Probing
from forebay.wire.fetch import fetch
from forebay.wire.pool import ConnectionPool, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from forebay.clock import TimerHandle, Timers
    from forebay.core import SlotsChanged
    from forebay.core.events import Arrived, NodeChanged
    from forebay.nodes.adapters.report import Adapter
    from forebay.nodes.gpu import GpuMeter, GpuReading
    from forebay.settings import NodeSettings
    from forebay.wire.heads import Headers

logger = logging.getLogger("forebay.nodes")

PROBE_SECONDS = 5.0
"""How long one question of a probe may take; engines answer these from memory."""

ABSENCE_S: Final = 60.0
"""How long a route that a node did not have is not asked for there again."""
ABSENCES_MAX: Final = 256
USER_BYTES_MAX: Final = 256
"""What a guard is told of a user's name, before it is percent-encoded."""

COMES_BACK: Final = "it has just come back, and gets one request until one has succeeded"
SILENT: Final = "its guard has sent no heartbeat for too long"


class Backend:
    """A node that is configured, found or registered."""

    slots_most = 0
    """What `told` has said at most since the last self-check."""

    def __init__(
        self,
        settings: NodeSettings,
        api_key: str | None,
        post: Callable[[NodeChanged | NodeRemoved | NodeRested], None],
        clock: Timers,
        gpu: GpuMeter,
        probing: Probing | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.pool_names = [pool_name(settings.name, each) for each in settings.model_slots]
        """What the core knows the slots by that some models have for themselves."""
        self._post = post
        self._clock = clock
        self._gpu = gpu
        self._probing_by = probing or Probing()
        self.last_result: NodeReport | str = ""
        """Of the last probe: a report, or why there is none; "" before the first."""
        self.probes = 0
        """How many results there have been."""
        fixed = 0 if settings.slots == "auto" else settings.slots
        self.slots_changes = 0
        """How often the core has changed the number of slots, as far as is known here."""
        self.pool = ConnectionPool(_target(settings), idle_max=max(64, fixed or SLOTS_MAX))
        self._line = _request_line(settings.url)
        self._credentials = _credentials(api_key)
        self.health = NodeHealth(settings.name, fixed, settings.models, clock.monotonic_s())
        self.told: NodeChanged = self.health.changed(clock.monotonic_s())
        self.kind = "" if settings.kind == "auto" else settings.kind
        self.version = ""
        self.contexts: Mapping[str, int] = {}  # tokens that fit into each model's context
        self.about: Mapping[str, Mapping[str, object]] = {}  # what it says of each model
        self.gpu_load: float | None = None  # as it was last read; None when unknown
        self.vram_used_bytes: int | None = None
        self.vram_total_bytes: int | None = None
        self.guarded = False  # whether a guard stands before it, and tells of it
        self.heard_slots = 0  # what that guard said last that it lets through
        self._kv_reading = 0  # the number of the last room in its cache that was heard of
        self._heard_gpu: GpuReading | None = None  # what that guard said of its GPU
        self._tells_gpu = False  # whether the node says itself how busy its GPU is
        self.state_since_s = clock.monotonic_s()
        self.failures: dict[str, int] = {}  # by kind, for the metrics
        self.last_error = ""
        self.draining = False
        self.absences: dict[tuple[str, str], float] = {}
        """Routes that it does not have, by route and model, and until when that is believed."""
        self.hides_absences = False
        """Whether it answers 200 where it has no route."""
        self._adapter: Adapter | None = ADAPTERS.get(settings.kind)
        self._timer: TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        self._probed = asyncio.Event()
        self._stopped = False
        self._slots_cut = 0
        self._was_busy = False
        self._broken_off = new_excuses()
        self._says_loading = False  # in answer to the last probe

    # -- for the relay

    def request(
        self,
        target: bytes,
        headers: bytes,
        credentials: bytes,
        length: int,
        arrival: Arrived | None = None,
    ) -> bytes:
        """Return the head of a request to this node; its own credentials come before others.

        A guard is told whose request it is, and its class, for an engine with a queue of its own.
        """
        if self.guarded and arrival is not None:
            headers += _caller_headers(arrival)
        return b"POST %b%b%b%bcontent-length: %d\r\n\r\n" % (
            target, self._line, headers, self._credentials or credentials, length
        )  # fmt: skip

    def failed(self, kind: str, model: str, user: str, started_s: float) -> bool:
        """Take note of a request that failed; say whether it has itself to blame for that."""
        self.failures[kind] = self.failures.get(kind, 0) + 1
        self.last_error = f"a request failed: {WAYS_TO_FAIL.get(kind, kind)}"
        known = HEALTH_KINDS.get(kind)
        now_s = self._clock.monotonic_s()
        is_own = known is not None and self.health.excuses(known, started_s)
        if known is not None:
            self._tell(self.health.request_failed(model, known, user, now_s, excused=is_own))
        return is_own

    def answered(self, model: str, *, ok: bool) -> None:
        """Take note of a request that was answered in full, well (`ok`) or with a refusal."""
        if self.health.is_steady:
            return
        self._tell(self.health.request_answered(model, self._clock.monotonic_s(), ok=ok))

    def began(self, model: str) -> None:
        """Take note of a stream that has begun well."""
        if not self.health.is_steady:
            self._tell(self.health.stream_began(model, self._clock.monotonic_s()))

    def loads(self) -> None:
        self._tell(self.health.found_loading(self._clock.monotonic_s()))

    def broken_off(self) -> None:
        """Take note that a request was cancelled here while the node ran it."""
        self._broken_off.append(self._clock.monotonic_s())

    def busy(self, model: str) -> None:
        """Take note of a node that says it is full, and ask whether it is loading.

        It has fewer slots than we thought, unless a request was broken off just before, of which it
        may not know: one for each.

        The core has taken one off. Where it does not find the number itself, we do so, too, until
        good probes, with no such answer between them, give them back one at a time.
        """
        self.refresh()
        is_found = self.finds_slots or self.slots_of(model) != self.name
        if is_excused(self._broken_off, self._clock.monotonic_s()) or is_found:
            return
        whole = self.told.slots + self._slots_cut
        self._slots_cut = min(self._slots_cut + 1, max(0, whole - 1))
        self._was_busy = True

    @property
    def finds_slots(self) -> bool:
        """Whether the core finds out how many slots it has, up to what the node may have named."""
        return self.health.slots_kind != "fixed"

    def slots_reason(self, found: str) -> str | None:
        """Why it has the slots it has, as far as the core has `found` out; None where it is set."""
        return COMES_BACK if self.health.phase == "half_open" else found or None

    def slots_changed(self, change: SlotsChanged) -> None:
        """Take the number that the core has found: whoever runs it next begins with that.

        Of several workers with one log, the one that asks the node says so.
        """
        self.health.slots_found = change.slots
        self.slots_changes += 1
        self.slots_most = max(self.slots_most, change.slots)
        say = logger.debug if change.is_trial or not self._probing_by.asks else logger.info
        extra = {"node": self.name, "slots": change.slots, "reason": change.reason}
        say("node has %d slots now", change.slots, extra=extra)

    def slots_of(self, model: str) -> str:
        """Return by which name the core knows the slots that a model's requests take here."""
        pools = zip(self.settings.model_slots, self.pool_names, strict=True)
        return next((name for pattern, name in pools if fnmatchcase(model, pattern)), self.name)

    async def read_gpu(self) -> None:
        """Read the GPU anew between probes, where it could be read before. Never raises."""
        if self.gpu_load is None or self.told.state != "online":
            return
        if self._tells_gpu:
            self.refresh()
        elif not self.guarded and (gpu := await self._gpu.read(self.settings.url)):
            self._take_gpu(gpu)

    def _take_gpu(self, gpu: GpuReading | None) -> None:
        self.gpu_load = None if gpu is None else gpu.load
        self.vram_used_bytes = None if gpu is None else gpu.used_bytes
        self.vram_total_bytes = None if gpu is None else gpu.total_bytes

    def serves(self, model: str, family: str) -> bool:
        """Say whether it is up and has the model."""
        told = self.told
        return told.state == "online" and model in told.models and family in told.families

    def learn_absence(self, route: str, model: str) -> None:
        if len(self.absences) >= ABSENCES_MAX:
            self.absences.clear()
        self.absences[route, model] = self._clock.monotonic_s() + ABSENCE_S

    def lacks(self, route: str, model: str) -> bool:
        until_s = self.absences.get((route, model)) if self.absences else None
        if until_s is None:
            return False
        if self._clock.monotonic_s() < until_s:
            return True
        del self.absences[route, model]
        return False

    # -- for the guard before it, where there is one

    def guarded_by(self, token_header: bytes) -> None:
        """Know that a guard stands before it, which wants this header; call it before `start`."""
        self.guarded = True
        self._line += token_header

    def heard(self, slots: int, gpu: GpuReading | None, kv_free_tokens: int | None = None) -> None:
        """Take a heartbeat: the slots that the guard lets through, the GPU and the cache."""
        self._heard_gpu = gpu
        self.heard_slots = slots
        if gpu is not None or not self._tells_gpu:
            self._take_gpu(gpu)
        if self.health.is_silent:
            self.last_error = ""
        room = UNREAD
        if kv_free_tokens is not None or self._kv_reading:
            # By the time of day, so that the readings of several gateways can be compared.
            self._kv_reading = max(
                self._kv_reading + 1, int(self._clock.utc().timestamp() * 1_000_000)
            )
            room = (-1 if kv_free_tokens is None else kv_free_tokens, self._kv_reading)
        self._tell(self.health.heard(slots, self.gpu_load, self._clock.monotonic_s(), room))

    @property
    def kv_free_tokens(self) -> int | None:
        """What its key-value cache has room for, as its guard last said; None where it did not."""
        return self.told.kv_free_tokens if self.told.kv_free_tokens >= 0 else None

    def fell_silent(self) -> None:
        """Take it out: its guard has not been heard of. What runs there may finish."""
        self.last_error = SILENT
        self._tell(self.health.fell_silent(self._clock.monotonic_s()))

    # -- for the operator

    def drain(self) -> None:
        """Let nothing new start here."""
        self.draining = True
        self._tell(self.health.drained(self._clock.monotonic_s()))

    def resume(self) -> None:
        self.draining = False
        self._tell(self.health.resumed(self._clock.monotonic_s()))

    def take_over(self, other: Backend) -> None:
        """Begin with what was known of the node that had this name; call it before `start`."""
        same = other.settings.url == self.settings.url
        self.health.take_over(other.health, same_server=same)
        self.draining = other.draining
        if same:
            self.kind, self.version, self._adapter = other.kind, other.version, other._adapter
            self.contexts = other.contexts
            self.about = other.about
            self.state_since_s, self.slots_changes = other.state_since_s, other.slots_changes
            self._probed.set()
        self.told = self.health.changed(self._clock.monotonic_s())

    # -- lifecycle

    def start(self) -> None:
        """Begin to ask; the core hears of the node at once, as far as it is known."""
        self._post_told()
        self._wake()

    @property
    def was_probed(self) -> bool:
        """Whether it has been asked at least once."""
        return self._probed.is_set()

    def may_have_anything(self, offline_wait_s: float) -> bool:
        """Say whether it has not said yet which models it has, and will soon."""
        told = self.told
        if told.models or told.state == "loading":
            return not told.models
        return told.is_new and self._clock.monotonic_s() < self.state_since_s + offline_wait_s

    async def first_probe(self) -> None:
        """Wait until the node has been asked once, whatever came of it."""
        await self._probed.wait()

    def stop(self) -> None:
        """Ask no more, close what is idle, take the node out of the core; may be called twice."""
        if self._stopped:
            return
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._probing is not None:
            self._probing.cancel()
        self._probed.set()
        self.pool.close()
        for name in (*self.pool_names, self.name):
            self._post(NodeRemoved(name))

    # -- probes

    def _wake(self) -> None:
        self._timer = None
        now_s = self._clock.monotonic_s()
        if now_s >= self.health.next_probe_s():
            self.refresh()
        self._tell(self.health.woken(now_s))

    def refresh(self) -> None:
        """Ask the node now; call it when something that it did does not fit what we know."""
        if self._stopped:
            return
        self.health.probe_started(self._clock.monotonic_s())  # one under way puts the next off
        if not self._probing_by.asks:
            self._probing_by.request(self.name)
        elif self._probing is None or self._probing.done():
            self._probing = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        result: NodeReport | str
        try:
            result = await self._report()
        except BackendFailed as error:
            result = str(error)
            if self.settings.kind == "auto":
                self._adapter = None  # what comes back may be something else
        except Exception as error:  # a bug of ours must not leave the node unwatched
            logger.exception("probing failed", extra={"node": self.name})
            result = f"{type(error).__name__}: {error}"
        finally:
            self._probed.set()
        self._probing = None
        self.learn(result)
        self._probing_by.on_result(self.name)

    def learn(self, result: NodeReport | str) -> None:
        """Take the result of a probe: a report, or why there is none."""
        self._probed.set()
        self.last_result = result
        self.probes += 1
        now_s = self._clock.monotonic_s()
        if isinstance(result, str):
            self.last_error = result
            self._tell(self.health.probe_failed(now_s))
            return
        self.last_error = SILENT if self.health.is_silent else ""
        if (result.kind, result.version) != (self.kind, self.version):
            self.absences.clear()
        self.kind, self.version = result.kind, result.version
        self.hides_absences = result.kind == LmStudio.kind
        self.gpu_load = result.gpu_load
        self.vram_used_bytes = result.vram_used_bytes
        self.vram_total_bytes = result.vram_total_bytes
        kept = {name: size for name, size in self.contexts.items() if name in result.models}
        self.contexts = {**kept, **result.contexts}  # some tell of loaded models only
        if result.about or result.state == "online":
            self.about = result.about
        if not self._was_busy:
            self._slots_cut = max(0, self._slots_cut - 1)
        self._was_busy = False
        self._tell(self.health.probe_succeeded(result, now_s))
        if result.waiting and self.health.slots_kind == "found" and self._probing_by.asks:
            self._post(NodeRested(self.name, waiting=result.waiting))

    async def _report(self) -> NodeReport:
        self._says_loading = False
        try:
            self._adapter = self._adapter or await detect(self.fetch)
            report = await self._adapter.probe(self.fetch)
        except BackendFailed:
            if not self._says_loading:
                raise
            return NodeReport((), self.told.families, self.kind, state="loading")
        self._tells_gpu = report.gpu_load is not None
        if self._tells_gpu:
            return report
        gpu = self._heard_gpu if self.guarded else await self._gpu.read(self.settings.url)
        if gpu is not None:
            report = replace(
                report,
                gpu_load=gpu.load,
                vram_used_bytes=gpu.used_bytes,
                vram_total_bytes=gpu.total_bytes,
            )
        return report

    async def fetch(self, method: str, path: str, body: bytes = b"") -> ProbeReply:
        """Ask the node one question; raises BackendFailed."""
        head = b"%b %b%baccept: application/json\r\nconnection: close\r\n%b" % (
            method.encode(), path.encode(), self._line, self._credentials
        )  # fmt: skip
        if body:
            head += b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        answer = await fetch(self.pool, head + b"\r\n", body, limit_s=PROBE_SECONDS, fresh=True)
        self._says_loading |= answer.status == 503 and says_loading(answer.body)
        return ProbeReply(answer.status, answer.headers, answer.body)

    def _tell(self, change: NodeChanged | None) -> None:
        if self._stopped:
            return
        if change is not None:
            if change.state != self.told.state:
                self.absences.clear()  # it may come back with other options
                self.state_since_s = self._clock.monotonic_s()
                self._say(change)
            slots = max(1, change.slots - self._slots_cut) if self._slots_cut else change.slots
            self.told = replace(change, slots=slots)
            self.slots_most = max(self.slots_most, self.told.slots)
            self._post_told()
        self._arm()

    def _post_told(self) -> None:
        for event in split_pools(self.told, self.settings.model_slots):
            self._post(event)

    def _say(self, change: NodeChanged) -> None:
        """Log a change of state: one line each time, none while it lasts."""
        say = logger.warning if change.state == "offline" else logger.info
        extra = {"node": self.name, "state": change.state}
        if change.state == "offline":
            extra["error"] = self.last_error
        say("node is %s", change.state, extra=extra)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_at(self.health.next_wake_s(), self._wake)


def _target(settings: NodeSettings) -> Target:
    parts = urlsplit(settings.url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    return Target(parts.hostname or "", port, tls, settings.connect_seconds)


def _request_line(url: str) -> bytes:
    """Return what follows the target: the version and the headers that every request has."""
    host = urlsplit(url).netloc.rpartition("@")[2].encode()
    return b" HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\n" % host


def _caller_headers(arrival: Arrived) -> bytes:
    """Return the class and the user as an engine behind a guard is told them."""
    block = b"x-forebay-priority: %b\r\n" % arrival.priority.encode()
    if arrival.user:
        user = quote(arrival.user.encode(errors="replace")[:USER_BYTES_MAX], safe="/:@")
        block += b"x-forebay-user: %b\r\n" % user.encode()
    return block


def _credentials(api_key: str | None) -> bytes:
    """Return the node's own key in the header of each family."""
    if not api_key:
        return b""
    key = api_key.encode()
    headers: Headers = [(b"authorization", b"Bearer " + key), (b"x-api-key", key)]
    return b"".join(b"%b: %b\r\n" % pair for pair in headers)
