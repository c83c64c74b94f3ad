"""The composition root: makes the parts of one gateway and hands each what it uses."""

from __future__ import annotations

import asyncio
import logging
import random
from hashlib import blake2b
from typing import TYPE_CHECKING

from forebay import __version__
from forebay.api.events import SessionsSnapshot
from forebay.dashboard.feed import DashboardDeps, DashboardFeed, LifecycleStatus
from forebay.dashboard.observer import QueueObserver
from forebay.gateway.dashboard import (
    BODIES_REFUSED,
    FINE_BOUNDS_S,
    GPUS_S,
    OUTPUT_TOKENS,
    RETRIES,
    JobsView,
    RateLimit,
    RequestTimes,
    bad_ends,
    page_figures,
    remedy_of,
    with_ends,
    with_first_tokens,
    with_waits,
)
from forebay.gateway.errors.rendering import ErrorRenderer
from forebay.gateway.fleet.guarded_nodes import GuardedNodes
from forebay.gateway.fleet.membership import Membership, make_coordinator
from forebay.gateway.fleet.node_answers import NodeAnswers
from forebay.gateway.fleet.node_commands import NodeCommandLog
from forebay.gateway.fleet.peers import Peers
from forebay.gateway.holdings import HoldingsAudit
from forebay.gateway.hot.accounting import Accounting
from forebay.gateway.hot.admission import Admission
from forebay.gateway.hot.callers import Callers
from forebay.gateway.hot.ended_stream import EndedStream
from forebay.gateway.hot.inflation import Inflations
from forebay.gateway.hot.keys import KeyRing
from forebay.gateway.hot.model_names import ModelNames
from forebay.gateway.hot.proxies import TrustedProxies
from forebay.gateway.http.authorization import Authorizer
from forebay.gateway.http.json_body import RequestReader
from forebay.gateway.jobs.service import JobDeps, JobFigures, JobService
from forebay.gateway.key_rates import KeyRates
from forebay.gateway.live_settings import LiveSettings
from forebay.gateway.metrics import Metrics
from forebay.gateway.readiness import Readiness
from forebay.gateway.records.history_writer import HistoryWriter
from forebay.gateway.records.service import RecordService
from forebay.gateway.routes.request_list import RequestList
from forebay.gateway.sessions.host import SessionCalls, SessionHost
from forebay.gateway.workers.channels import WorkerChannels
from forebay.nodes.registry import Nodes
from forebay.relay.openai import OPENAI
from forebay.relay.relay import Relay
from forebay.relay.watchdog import Watchdog
from forebay.sessions.deps import SessionDeps
from forebay.sessions.record import session_id
from forebay.settings import SettingsError, node_api_key, read_secret, resolve_keys
from forebay.settings.addresses import without_password
from forebay.wire.budget import Budget
from forebay.wire.hosts import HostGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from forebay.clock import Timers
    from forebay.coordination import Coordinator
    from forebay.core import Event
    from forebay.gateway.hot.access_log import AccessLog
    from forebay.gateway.traces import Traces
    from forebay.gateway.workers.seat import Seat
    from forebay.relay.problem import Problem
    from forebay.relay.relay import Observer
    from forebay.settings import ReloadPlan, ResolvedKey, Settings
    from forebay.wire.connection import ServerConnection

logger = logging.getLogger("forebay.serve")

UNREAD_KEYS = (
    "the keys in %s (jobs.database) cannot be read: every request without a key of the settings "
    "file gets 503 until they are; if this lasts, restore that file, unlock it, or start its server"
)


class Parts:
    """One gateway without its sockets: everything is made here, in the order of what uses what.

    What two parts need of each other is asked for when it is needed (`lambda`).
    """

    _reloading: asyncio.Task[None] | None = None

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        settings: Settings,
        clock: Timers,
        *,
        environ: Mapping[str, str] | None = None,
        log: AccessLog | None = None,
        traces: Traces | None = None,
        read_settings: Callable[[], Settings] | None = None,
        seat: Seat | None = None,
    ) -> None:
        """`seat` is its place among the workers, where there are several."""
        self.seat, self.clock = seat, clock
        server, queue = settings.server, settings.queue
        self.live = LiveSettings(settings, environ, read_settings, self._apply)
        # -- callers
        self._set_keys = resolve_keys(settings, environ)  # those of the settings
        self.keys = KeyRing(self._set_keys, sealed=True)
        self.hosts = HostGuard(server.host, server.allowed_hosts, server.cors_origins)
        proxies = TrustedProxies(server.trusted_proxies)
        self.callers = Callers(self.keys, self.hosts, proxies, queue.priorities)
        self.authorizer = Authorizer(self.callers, self.keys, public_status=server.public_status)
        self.ended = EndedStream(clock, () if log is None else (log.take,))
        """Requests that have ended, for all who want to know of them."""
        self.accounting = Accounting(clock.monotonic_s, self.ended)
        self.request_times = RequestTimes(self.accounting, self.ended)
        # -- nodes
        self.nodes = Nodes(lambda node: node_api_key(node, environ), clock)
        self.nodes.offline_wait_s = queue.offline_wait_seconds
        token = read_secret("guard.token_env", settings.guard.token_env, environ)
        self.guarded = GuardedNodes(self.nodes, token or "", clock)
        self.node_commands = NodeCommandLog(self.nodes, clock)
        self._share_queue(settings, traces)
        self._take_requests(settings)
        self._keep_records(settings, environ)
        self._show(clock)

    def _share_queue(self, settings: Settings, traces: Traces | None) -> None:
        """Make the queue, and the fleet that shares it."""
        seat, clock, queue = self.seat, self.clock, settings.queue
        observer = self.accounting if traces is None else self._observed_by(traces)
        self.relay = Relay(self.nodes, queue, settings.retry, clock, observer)
        self.coordinator = self._make_coordinator(clock)
        self.relay.connect(self.coordinator)
        self.membership = Membership(
            self.coordinator,
            self.node_commands,
            NodeAnswers(self.nodes, clock),
            is_shared=bool(settings.coordination.url),
            worker=None if seat is None else seat.about,
        )
        self.readiness = Readiness(self.nodes, lambda: self.membership.fleet)
        self.watchdog = Watchdog(self.relay, clock)
        self.connections: set[ServerConnection] = set()
        self.bodies = Budget(self._body_bytes(settings))  # of memory, for bodies of requests
        self.holdings = HoldingsAudit(
            self.relay, self.nodes, self.watchdog, self.membership, self.connections, self.bodies
        )

    def _take_requests(self, settings: Settings) -> None:
        """Make what reads requests, and what says why one is refused."""
        clock, server = self.clock, settings.server
        chance = random.SystemRandom()  # ids that nobody can guess
        self.admission = Admission(
            self.callers, settings.models, self.relay, chance, self._prefix_key()
        )
        self.models = ModelNames(self.nodes, self.admission, self.keys)
        self.error_renderer = ErrorRenderer(settings.queue, chance, self.models.explained)
        self.inflations = Inflations(self.bodies, server.body_max_bytes, server.body_seconds, clock)
        self.reader = RequestReader(server.body_seconds)
        self.requests = RequestList(self.relay, self.ended, self.error_renderer.status, clock)

    def _keep_records(self, settings: Settings, environ: Mapping[str, str] | None) -> None:
        """Make what is kept in databases."""
        clock, database = self.clock, settings.jobs.database
        history = HistoryWriter(
            self.requests, lambda: self.dashboard_feed.minutes, lambda: self.membership.name
        )
        self.records = RecordService(
            database,
            settings.usage,
            clock,
            history,
            set_names=lambda: {key.name for key in self._set_keys},
            wants_today=lambda: self.key_rates.has_day_limits(),
        )
        self.ended.read_by(self.records.usage.take)
        self.records.keys.on_change.append(lambda: self._change_keys(self._all_keys()))
        self.key_rates = KeyRates(
            settings.queue, self._set_keys, self.coordinator.post, self.records.used_today, clock
        )
        self.jobs = JobService(self._job_deps(environ))
        self.sessions = SessionHost(
            settings.sessions,
            database,
            self._session_deps(),
            lambda: self.membership.name,
            self.keys,
        )
        self.nodes.connect(self._node_changed)
        self.peers = Peers(self.membership, self.sessions, self.reader, settings.server.tls_cert)

    def _show(self, clock: Timers) -> None:
        """Make what can be seen from the outside."""
        figures = (self.jobs.figures, self.sessions.figures)
        self.metrics = Metrics(self.accounting, self.nodes, *figures, self.records)
        self.workers = self._join_workers(clock)
        """The other workers, where there are several."""
        self.queue_observer = QueueObserver(
            self.relay.observe, lambda: self.settings.queue.options(), clock, self._bodies_refused
        )
        self.dashboard_feed = DashboardFeed(self._dashboard_deps())

    @property
    def settings(self) -> Settings:
        return self.live.current

    def _observed_by(self, traces: Traces) -> Observer:
        """Have traces told of every end, too; those that are off are in nobody's way."""

        def url_of(name: str) -> str:
            node = self.nodes.get(name)
            return node.settings.url if node is not None else ""

        self.ended.read_by(traces.take)
        return traces.watch(self.accounting, url_of)

    def _bodies_refused(self) -> int:
        """Return how many this gateway had no memory for, with all of its workers."""
        return self.accounting.bodies_refused + int(self._others().get(BODIES_REFUSED, 0))

    def _prefix_key(self) -> bytes:
        """Return what gateways that share a queue have in common, and others do not know."""
        if self.seat is not None:
            return blake2b(str(self.seat.door.parent).encode(), digest_size=16).digest()
        url = self.settings.coordination.url
        return blake2b(url.encode(), digest_size=16).digest() if url else b""

    def _make_coordinator(self, clock: Timers) -> Coordinator:
        perform, probe, chance = self.relay.perform, self._probe, random.Random()
        if self.seat is None:
            return make_coordinator(self.settings, perform, clock, chance, probe)
        return self.seat.coordinator(self.settings.queue.options(), perform, clock, probe)

    def _job_deps(self, environ: Mapping[str, str] | None) -> JobDeps:
        settings = self.settings.jobs
        return JobDeps(
            settings=settings,
            relay=self.relay,
            resolve=self.admission.resolve,
            clock=self.clock,
            records=self.records,
            may_use=self._may_use,
            explain=self._explain_to_owner,
            paced=self.key_rates.paced,
            figures=JobFigures(self.clock),
            in_force=self.keys.is_in_force,
            revoked=self.records.keys.revoked,
            shares_nodes=bool(self.settings.coordination.url),
            webhook_secret=read_secret(
                "jobs.webhook_secret_env", settings.webhook_secret_env, environ
            ),
        )

    def _explain_to_owner(self, problem: Problem, model: str, owner: str) -> Problem:
        if problem.code != "model_not_found":
            return problem
        return self.models.explained(problem, model, owner, OPENAI.name)

    def _session_deps(self) -> SessionDeps:
        entropy = random.SystemRandom()

        def new_id(prefix: str) -> str:
            secret = entropy.randbytes(16).hex()
            if prefix == "ses":
                return session_id(self.membership.name, secret)
            return f"{prefix}_{secret}"

        return SessionDeps(
            relay=self.relay,
            clock=self.clock,
            make_call=SessionCalls(self.admission, self.keys, self.records.keys).make,
            context_tokens=lambda model: self.nodes.context_tokens(
                self.admission.resolve(model)[0]
            ),
            wait_s_max=lambda: self.settings.queue.max_wait_seconds,
            rank_of=lambda priority: _rank(priority, self.settings.queue.priorities),
            new_id=new_id,
            owners=lambda: self.keys.owners,
        )

    def _dashboard_deps(self) -> DashboardDeps:
        clock = self.clock
        jobs = JobsView(self.jobs, clock)
        sessions = self.sessions.figures
        gpus = RateLimit(GPUS_S, clock)

        def watched() -> None:
            jobs.refresh()
            if gpus.due():
                self.nodes.read_gpus()

        def status() -> LifecycleStatus:
            queue = self.settings.queue
            return LifecycleStatus(
                draining=self.readiness.draining,
                ready=self.readiness.problem() is None,
                queue_enabled=queue.enabled,
                wait_s_max=queue.max_wait_seconds,
                priorities=queue.priorities,
                retries=self.relay.retries.total + int(self._others().get(RETRIES, 0)),
                lost_files=["jobs.database"] * self.records.has_lost_file()
                + ["sessions.database"] * self.sessions.has_lost_file(),
                unreadable_keys=len(self.records.keys.unreadable),
            )

        return DashboardDeps(
            observe=self.queue_observer.observe,
            nodes=self.nodes,
            clock=clock,
            waits=lambda: with_waits(self.request_times.waits(), self._others()),
            first_tokens=lambda: with_first_tokens(
                self.request_times.first_tokens(), self._others()
            ),
            output_tokens=lambda: (
                self.accounting.output_tokens + int(self._others().get(OUTPUT_TOKENS, 0))
            ),
            bounds_s=FINE_BOUNDS_S,
            outcomes=lambda: with_ends(bad_ends(self.accounting), self._others()),
            remedy_of=remedy_of,
            status=status,
            jobs=jobs.picture,
            sessions=lambda: SessionsSnapshot(sessions.held(), sessions.pending()),
            fleet=lambda: self.membership.shown,
            refresh=watched,
            epoch=random.SystemRandom().randbytes(4).hex(),
            gateway=__version__,
        )

    # -- several workers

    def _join_workers(self, clock: Timers) -> WorkerChannels | None:
        if self.seat is None:
            return None
        store = self.seat.store
        workers = WorkerChannels(store, self.nodes, self.guarded, self.records, self._count, clock)
        workers.on_reload(self.reload)
        return workers

    @property
    def leads(self) -> bool:
        """Whether this process does what one of several workers does for all."""
        return self.seat is None or self.seat.store.leads

    def _others(self) -> dict[str, float]:
        return {} if self.workers is None else self.workers.figures.counters()

    def _count(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return what this worker has counted, and what it holds."""
        retries = self.relay.retries.total
        counters, gauges = self.metrics.samples(retries, self.holdings.count())
        return counters | page_figures(self.accounting, self.request_times, retries), gauges

    def _probe(self, node: str) -> None:
        if self.leads:
            self.nodes.refresh(node)

    def _body_bytes(self, settings: Settings) -> int:
        """Return the budget for bodies here: a part of all, but room for one of the largest."""
        whole = settings.queue.max_bytes
        if self.seat is None:
            return whole
        return max(self.seat.part(whole), min(whole, settings.server.body_max_bytes))

    # -- reloaded settings

    def reload(self) -> None:
        """Begin to reload the settings; what is wrong with them is logged."""
        self._reloading = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        try:
            changed = await self.live.reload()
            logger.info("settings reloaded", extra={"changed": changed})
        except SettingsError as error:
            logger.error("settings NOT reloaded, the old ones stay: %s", error)

    def _apply(self, plan: ReloadPlan, keys: Sequence[ResolvedKey]) -> None:
        new = plan.settings
        self.error_renderer.change(new.queue)
        self.relay.change(new.queue, new.retry)
        self.bodies.change(self._body_bytes(new))
        self.nodes.offline_wait_s = new.queue.offline_wait_seconds
        self.admission.change(new.models)
        if self.leads:  # else the leader tells of them
            self._change_nodes(plan)
        self.records.settings = new.usage
        self._set_keys = tuple(keys)
        self._change_keys(self._all_keys())
        self.sessions.bounds_changed()
        self.membership.change(new)
        if self.workers is not None and self.leads:
            self.workers.tell_reload()

    def _change_nodes(self, plan: ReloadPlan) -> None:
        for node in plan.nodes.removed:
            self.nodes.remove(node.name)
        for node in (*plan.nodes.changed, *plan.nodes.added):
            self.nodes.replace(node)  # one added by hand under that name gives way
        for node in (*plan.nodes.removed, *plan.nodes.changed, *plan.nodes.added):
            self.node_commands.settle(node.name)

    async def start_records(self) -> None:
        """Read the keys that were made at run time, before anybody is let in.

        Where that fails, only keys of the settings are served: a caller without one may need one.
        """
        await self.records.start()
        if self.keys.sealed:
            logger.error(UNREAD_KEYS, without_password(self.settings.jobs.database))

    def _all_keys(self) -> tuple[ResolvedKey, ...]:
        priorities = self.settings.queue.priorities
        return self.records.keys.resolved(self._set_keys, priorities)

    def _change_keys(self, keys: Sequence[ResolvedKey]) -> None:
        """Invalidate cached heads, and reject waiting requests of keys that are gone."""
        made = self.records.keys  # where not one of them can be used, there is a key all the same
        self.keys.sealed = not made.is_known or (bool(made.table.keys) and not keys)
        revoked = self.keys.change(keys, made.names)
        self.key_rates.change(self.settings.queue, keys)
        self.callers.generation += 1
        self.sessions.revoke(revoked, self.records.keys.revoked())
        self.jobs.keys_changed()
        for exchange in list(self.relay.exchanges.values()):
            arrival = exchange.call.arrival
            if arrival.key in revoked:
                exchange.revoked = "unauthorized"  # what runs may finish, but not start again
                if not exchange.node:
                    self.relay.revoke(exchange.id, "unauthorized")
            elif arrival.patient and not exchange.node:
                cap = self.key_rates.paced().get(arrival.key, 0)
                if cap != arrival.key_running_max:  # its session submits it again, with the new one
                    self.relay.revoke(exchange.id, "unauthorized")
        self.sessions.bounds_changed()  # prompts wait for keys that may be back

    # -- callbacks

    def _node_changed(self, event: Event) -> None:
        """Tell the core, and the prompts that wait for capacity: there may be more now."""
        self.coordinator.post(event)
        self.sessions.bounds_changed()

    def _may_use(self, owner: str, model: str) -> bool:
        """Say whether the owner of a batch may use a model."""
        if not self.keys or not owner:
            return True
        key = self.keys.of_owner(owner)
        return key is not None and self.admission.may_use(key, model)


def _rank(priority: str, priorities: Sequence[str]) -> int:
    return priorities.index(priority) if priority in priorities else len(priorities)
