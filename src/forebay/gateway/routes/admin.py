"""`/admin`, where operators change nodes and reload the settings, and `/guard`, for guards."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from forebay.api.nodes import GuardHeard, GuardHeartbeat, Node, NodeList, Reloaded
from forebay.errors import NotAllowed
from forebay.gateway.errors.http_error import HttpError, invalid, invalid_settings
from forebay.gateway.http.authorization import name_of
from forebay.gateway.routes.json_answer import json_answer
from forebay.gateway.routes.queue import rounded
from forebay.guard.heartbeat import HEARTBEAT_S, LOST_S, NODES_PATH
from forebay.guard.token import TOKEN_HEADER, same
from forebay.settings import NodeSettings, SettingsError, parse_node

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.core.snapshot import NodeView
    from forebay.dashboard.observer import QueueObserver
    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.gateway.fleet.node_commands import NodeCommandLog
    from forebay.gateway.hot.callers import Caller
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.live_settings import LiveSettings
    from forebay.gateway.readiness import Readiness
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes

logger = logging.getLogger("forebay.gateway")

BODY_BYTES_MAX = 65_536
"""What the description of a node, or a heartbeat, may weigh; they are below 1 kB."""
NAME_LENGTH_MAX = 64
NAMES_SHOWN = 10


@dataclass(frozen=True)
class AdminRoutes:
    """What operators do; every change of a node is shared with the fleet."""

    authorizer: Authorizer
    reader: RequestReader
    nodes: Nodes
    commands: NodeCommandLog
    observer: QueueObserver
    settings: LiveSettings

    def routes(self) -> list[Route]:
        return [
            Route("/admin/nodes", self.listed),
            Route("/admin/nodes", self.add, methods=["POST"]),
            Route("/admin/nodes/{name}", self.remove, methods=["DELETE"]),
            Route("/admin/nodes/{name}/drain", self.drain, methods=["POST"]),
            Route("/admin/nodes/{name}/resume", self.resume, methods=["POST"]),
            Route("/admin/reload", self.reload, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        self.authorizer.admin(request)
        views = await self._views()
        shown = [_shown(backend, views.get(backend.name)) for backend in self.nodes]
        return json_answer(NodeList(shown))

    async def add(self, request: Request) -> Response:
        caller = self.authorizer.admin(request)
        settings = await self._node_settings(request)
        try:
            backend = self.commands.add(settings)
        except NotAllowed as error:
            raise HttpError("conflict", str(error), "name") from None
        _log("node added", backend, caller, url=backend.settings.url)
        return json_answer(_shown(backend, None), 201)

    async def remove(self, request: Request) -> Response:
        """Remove a node; what runs there may finish."""
        caller, backend = self.authorizer.admin(request), self._find(request)
        self.commands.remove(backend)
        _log("node removed", backend, caller)
        return Response(status_code=204)

    async def drain(self, request: Request) -> Response:
        """Let nothing new start on a node."""
        caller, backend = self.authorizer.admin(request), self._find(request)
        self.commands.drain(backend)
        _log("node drained", backend, caller)
        return json_answer(_shown(backend, (await self._views()).get(backend.name)))

    async def resume(self, request: Request) -> Response:
        caller, backend = self.authorizer.admin(request), self._find(request)
        self.commands.resume(backend)
        _log("node resumed", backend, caller)
        return json_answer(_shown(backend, (await self._views()).get(backend.name)))

    async def reload(self, request: Request) -> Response:
        """Reload the settings; invalid ones change nothing."""
        caller = self.authorizer.admin(request)
        try:
            changed = await self.settings.reload()
        except SettingsError as error:
            logger.error("settings NOT reloaded, the old ones stay: %s", error)
            raise invalid(str(error), "settings") from None
        logger.info("settings reloaded", extra={"changed": changed, "by": name_of(caller)})
        return json_answer(Reloaded(changed))

    def _find(self, request: Request) -> Backend:
        backend = self.nodes.get(request.path_params["name"])
        if backend is None:
            raise HttpError("not_found", self._no_such_node(request), "name")
        return backend

    def _no_such_node(self, request: Request) -> str:
        names = [backend.name for backend in self.nodes]
        near = get_close_matches(request.path_params["name"][:NAME_LENGTH_MAX], names, 1)
        if near:
            return f"there is no node of that name; did you mean {near[0]}?"
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        known = ", ".join(names[:NAMES_SHOWN])
        return f"there is no node of that name; there are {known or 'none'}{more}"

    async def _views(self) -> dict[str, NodeView]:
        return {view.name: view for view in (await self.observer.snapshot()).nodes}

    async def _node_settings(self, request: Request) -> NodeSettings:
        given = await self.reader.decode(request, BODY_BYTES_MAX, dict[str, Any])
        if given.get("api_key_env"):
            # Anyone who may add nodes could otherwise send any variable of ours anywhere.
            raise invalid("secrets can be named only in the settings file", "api_key_env")
        try:
            return parse_node(given)
        except SettingsError as error:
            raise invalid_settings(error) from None


def _log(action: str, backend: Backend, caller: Caller, **more: str) -> None:
    logger.info(action, extra={"node": backend.name, **more, "by": name_of(caller)})


def _shown(backend: Backend, view: NodeView | None) -> Node:
    told = backend.told
    return Node(
        name=backend.name,
        url=backend.settings.url,
        kind=backend.kind or None,
        version=backend.version or None,
        guarded=backend.guarded,
        state=told.state,
        slots=view.slots if view is not None else told.slots,
        slots_reason=backend.slots_reason(view.slots_reason if view is not None else ""),
        in_flight=view.in_flight if view is not None else 0,
        families=list(told.families),
        models=list(told.models),
        loaded=None if told.loaded is None else list(told.loaded),
        failing=list(told.failing),
        gpu_load=told.gpu_load,
        speed=rounded(view.speed) if view is not None else None,
        speed_measured_seconds_ago=rounded(view.measured_s_ago) if view is not None else None,
        kv_free_tokens=backend.kv_free_tokens,
        failures=dict(backend.failures),
        last_error=backend.last_error or None,
    )


@dataclass(frozen=True)
class GuardRoutes:
    """Where guards (`forebay node` on other machines) register, with a shared token."""

    authorizer: Authorizer
    reader: RequestReader
    readiness: Readiness
    guarded: GuardedNodes
    nodes: Nodes

    def routes(self) -> list[Route]:
        return [
            Route(NODES_PATH, self.hear, methods=["POST"]),
            Route(f"{NODES_PATH}/{{name}}", self.leave, methods=["DELETE"]),
        ]

    async def hear(self, request: Request) -> Response:
        """Take a heartbeat; the first one registers the node."""
        self._authenticate(request)
        self.readiness.check_not_draining()
        beat = await self.reader.decode(request, BODY_BYTES_MAX, GuardHeartbeat)
        try:
            is_new = self.guarded.hear(beat)
        except SettingsError as error:
            raise invalid_settings(error) from None
        except NotAllowed as error:
            raise HttpError("conflict", str(error), "name") from None
        backend = self.nodes.get(beat.name)
        state = backend.told.state if backend is not None else "offline"
        heard = GuardHeard(beat.name, state, HEARTBEAT_S, LOST_S)
        return json_answer(heard, 201 if is_new else 200)

    async def leave(self, request: Request) -> Response:
        """Forget a node whose guard stops."""
        self._authenticate(request)
        name = request.path_params["name"]
        if not self.guarded.leave(name, request.query_params.get("instance", "")):
            raise HttpError("not_found", "no guard of that name is registered", "name")
        return Response(status_code=204)

    def _authenticate(self, request: Request) -> None:
        """Check the guards' token; an API key does not open these routes."""
        token = self.guarded.token
        given = request.headers.get(TOKEN_HEADER, "").encode("latin-1")
        is_guard = bool(token) and same(given, token)
        # The token is in the settings: guards are known also while the keys are not.
        (self.authorizer.probe if is_guard else self.authorizer.anyone)(request)
        if not token:
            raise HttpError(
                "guard_refused",
                "no guard may register here: guard.token_env is not set; name an environment "
                "variable there that holds the guards' token, and restart the gateway",
            )
        if not is_guard:
            raise HttpError(
                "guard_refused",
                "the guard's token is not the one of this gateway: the variable of --token-env "
                "there and that of guard.token_env here must hold the same",
            )
