"""What the routes work with: the parts of one running gateway, made in one place."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from forebay.core import OptionsChanged
from forebay.dashboard.lookout import Lookout
from forebay.gateway.dashboard import make_watch
from forebay.gateway.errors.http_error import HttpError
from forebay.gateway.errors.rendering import ErrorRenderer
from forebay.gateway.fleet.guarded_nodes import GuardedNodes
from forebay.gateway.fleet.membership import Membership, make_coordinator
from forebay.gateway.fleet.node_commands import NodeCommandLog
from forebay.gateway.fleet.peers import Peers
from forebay.gateway.hot.accounting import Accounting
from forebay.gateway.hot.admission import Admission
from forebay.gateway.hot.callers import Callers
from forebay.gateway.hot.inflation import Inflations
from forebay.gateway.hot.keys import KeyRing
from forebay.gateway.hot.model_names import ModelNames
from forebay.gateway.hot.proxies import TrustedProxies
from forebay.gateway.http.authorization import Authorizer
from forebay.gateway.jobs.admission import JobAdmission
from forebay.gateway.jobs.service import Jobs, Surroundings
from forebay.gateway.metrics import Metrics
from forebay.gateway.sessions.calls import SessionCalls
from forebay.gateway.sessions.host import SessionHost
from forebay.nodes.registry import Nodes
from forebay.relay.problem import Problem
from forebay.relay.relay import Relay
from forebay.relay.watchdog import Watchdog
from forebay.sessions.deps import SessionDeps
from forebay.sessions.record import session_id
from forebay.settings import (
    SettingsError,
    node_api_key,
    plan_reload,
    read_secret,
    resolve_keys,
)
from forebay.wire.budget import Budget
from forebay.wire.hosts import HostGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from forebay.clock import Timers
    from forebay.core import Describe, Event, Snapshot
    from forebay.gateway.holdings import HoldingsAudit
    from forebay.gateway.hot.access_log import AccessLog
    from forebay.settings import NodeSettings, ReloadPlan, Settings

CUT_OFF = (
    "this gateway cannot reach the shared store, and others may: nothing new starts here until it "
    "can; send requests to another gateway"
)
DESCRIBE_S = 1.0
"""How long the gateway that leads may take to say how a request stands."""


class Parts:
    """One gateway without its sockets."""

    def __init__(
        self,
        settings: Settings,
        clock: Timers,
        *,
        environ: Mapping[str, str] | None = None,
        log: AccessLog | None = None,
        read_settings: Callable[[], Settings] | None = None,
    ) -> None:
        server, queue = settings.server, settings.queue
        self.settings = settings
        self.draining = False
        self._environ = environ
        self._read_settings = read_settings
        self.keys = KeyRing(resolve_keys(settings, environ))
        self.hosts = HostGuard(server.host, server.allowed_hosts, server.cors_origins)
        self.callers = Callers(
            self.keys, self.hosts, TrustedProxies(server.trusted_proxies), queue.priorities
        )
        chance = random.Random()  # jitter, and ids that need not be secret
        self.error_renderer = ErrorRenderer(queue, chance)
        self.accounting = Accounting(clock.monotonic_s, log)
        self.nodes = Nodes(self._api_key_of, clock)
        self.nodes.offline_wait_s = queue.offline_wait_seconds
        token = read_secret("guard.token_env", settings.guard.token_env, environ)
        self.guarded = GuardedNodes(self.nodes, token or "", clock)
        self.node_commands = NodeCommandLog(self.nodes, clock)
        self.relay = Relay(self.nodes, queue, settings.retry, clock, self.accounting)
        self.coordinator = make_coordinator(
            settings, self.relay.perform, clock, chance, self.nodes.refresh
        )
        self.membership = Membership(
            self.coordinator, self.node_commands, is_shared=bool(settings.coordination.url)
        )
        self.watchdog = Watchdog(self.relay, clock)
        self.peers = Peers(self)
        self.relay.connect(self.coordinator)
        self.nodes.connect(self._node_changed)
        self.admission = Admission(self.callers, settings.models, self.relay, random.SystemRandom())
        self.models = ModelNames(self.nodes, self.admission, self.keys)
        self.error_renderer.explain_model = self.models.explained
        self.job_admission = JobAdmission(self.admission, self.nodes, self.models)
        secret = read_secret("jobs.webhook_secret_env", settings.jobs.webhook_secret_env, environ)
        resolve = self.admission.resolve
        self.jobs = Jobs(
            Surroundings(settings.jobs, self.relay, resolve, clock, self._may_use, secret)
        )
        self.authorizer = Authorizer(
            self.callers, self.keys, self.error_renderer, public_status=server.public_status
        )
        self.sessions = self._make_sessions(clock)
        self.metrics = Metrics(
            self.accounting, self.nodes, self.jobs.figures, self.sessions.figures
        )
        self.lookout = Lookout(self.relay.observe, lambda: self.settings.queue.options(), clock)
        self.watch = make_watch(self, clock)
        self.bodies = Budget(queue.max_bytes)
        """What bodies of requests take of the memory."""
        self.inflations = Inflations(self.bodies, server.body_max_bytes, server.body_seconds, clock)
        self.holdings: HoldingsAudit | None = None
        """Counts what this gateway holds, once it has a server."""

    def _make_sessions(self, clock: Timers) -> SessionHost:
        entropy = random.SystemRandom()
        around = SessionDeps(
            self.relay,
            clock,
            SessionCalls(self.admission, self.keys).make,
            lambda model: self.nodes.context_tokens(self.admission.resolve(model)[0]),
            lambda: self.settings.queue.max_wait_seconds,
            lambda priority: _rank(priority, self.settings.queue.priorities),
            lambda prefix: self._new_id(prefix, entropy.randbytes(16).hex()),
        )
        settings = self.settings
        return SessionHost(
            settings.sessions, settings.jobs.database, around, lambda: self.membership.name
        )

    def _new_id(self, prefix: str, secret: str) -> str:
        if prefix == "ses":
            return session_id(self.membership.name, secret)
        return f"{prefix}_{secret}"

    def is_ready(self) -> bool:
        """Say whether requests should be sent here, as `/ready` does."""
        return self.why_not_ready() is None

    def why_not_ready(self) -> Problem | None:
        """Say why no requests should be sent here, or None: they should."""
        if self.draining:
            return Problem("shutting_down", "the gateway is shutting down")
        if self.nodes.expecting:
            return Problem("model_loading", "a node is still being looked for or started")
        if unasked := self.nodes.unasked():
            return Problem("no_node", f"not asked yet: {', '.join(unasked)}")
        if not self.nodes.any_up():
            states = {backend.told.state for backend in self.nodes}
            words = "every node is draining" if states == {"draining"} else "no node is up"
            return Problem("no_node", words)
        fleet = self.membership.fleet
        if fleet is not None and fleet.picture().mode == "cut_off":
            return Problem("coordination_lost", CUT_OFF)
        return None

    async def snapshot(self) -> Snapshot:
        """Return the whole picture, or the last one where nobody answers in a second."""
        return (await self.lookout.taken()).snapshot

    async def describe(self, ticket_id: str) -> Describe | None:
        """Return what the core knows of a ticket; None when it has ended.

        A core in this process has answered before `inspect` returns; one elsewhere takes a moment.
        Raises HttpError where it takes too long.
        """
        future: asyncio.Future[Describe] = asyncio.get_running_loop().create_future()

        def told(seen: Describe) -> None:
            if not future.done():
                future.set_result(seen)

        self.relay.inspect(ticket_id, told)
        if self.membership.fleet is None or future.done():
            return future.result() if future.done() else None
        try:
            done, _ = await asyncio.wait({future}, timeout=DESCRIBE_S)
        finally:
            self.relay.forget_inspection(ticket_id, told)
        if not done and ticket_id in self.relay.exchanges:
            words = "the leading gateway does not say how this request stands"
            raise HttpError("replica_unavailable", words)
        return future.result() if done else None

    def reload(self) -> list[str]:
        """Read the settings anew and apply them whole; raises SettingsError and changes nothing."""
        if self._read_settings is None:
            raise SettingsError([])
        new = self._read_settings()
        plan = plan_reload(self.settings, new)
        plan.raise_if_refused()
        keys = resolve_keys(new, self._environ)
        for node in (*plan.nodes.added, *plan.nodes.changed):
            self._api_key_of(node)  # a secret that is missing is found before anything changes
        self.settings = new
        self.error_renderer.change(new.queue)
        self.relay.change(new.queue, new.retry)
        self.bodies.change(new.queue.max_bytes)
        self.nodes.offline_wait_s = new.queue.offline_wait_seconds
        if plan.queue:
            self.coordinator.post(OptionsChanged(new.queue.options()))
        self.admission.change(new.models)
        self._change_nodes(plan)
        self._change_keys(self.keys.change(keys))
        self.sessions.bounds_changed()
        self.membership.change(new)
        return _named(plan)

    def _node_changed(self, event: Event) -> None:
        """Tell the core, and whoever waits for room: there may be more of it now."""
        self.coordinator.post(event)
        self.sessions.bounds_changed()

    def _change_nodes(self, plan: ReloadPlan) -> None:
        for node in plan.nodes.removed:
            self.nodes.remove(node.name)
        for node in (*plan.nodes.changed, *plan.nodes.added):
            self.nodes.replace(node)  # one added by hand under that name gives way
        for node in (*plan.nodes.removed, *plan.nodes.changed, *plan.nodes.added):
            self.node_commands.settle(node.name)

    def _change_keys(self, revoked: set[str]) -> None:
        """Forget what connections remember, and turn away the waiters of keys that are gone."""
        self.callers.generation += 1
        self.sessions.revoke(revoked)
        for exchange in list(self.relay.exchanges.values()):
            if exchange.call.key in revoked:
                exchange.revoked = "unauthorized"  # what runs may finish, but not start again
                if not exchange.node:
                    self.relay.revoke(exchange.call.id, "unauthorized")

    def _may_use(self, owner: str, model: str) -> bool:
        """Say whether the owner of a batch may use a model: a key by its name, or anyone."""
        if not self.keys:
            return True
        key = self.keys.named(owner)
        return key is not None and self.admission.may_use(key, model)

    def _api_key_of(self, node: NodeSettings) -> str | None:
        return node_api_key(node, self._environ)


def _rank(priority: str, priorities: Sequence[str]) -> int:
    return priorities.index(priority) if priority in priorities else len(priorities)


def _named(plan: ReloadPlan) -> list[str]:
    """Return what a plan changes, in dotted names."""
    names = [*plan.queue, *plan.retry, *plan.models]
    for kind, difference in (("nodes", plan.nodes), ("keys", plan.keys)):
        blocks = (*difference.added, *difference.removed, *difference.changed)
        names += [f"{kind}.{block.name}" for block in blocks]
    return names
