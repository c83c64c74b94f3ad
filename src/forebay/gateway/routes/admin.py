"""What operators do: nodes come, go, drain and resume; settings are read anew."""

from __future__ import annotations

import logging
from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from forebay.errors import NotAllowed
from forebay.gateway.errors.http_error import HttpError, invalid, invalid_settings
from forebay.gateway.http.json_body import read_body
from forebay.gateway.routes.status import json_answer
from forebay.settings import NodeSettings, SettingsError, parse_node

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.core.snapshot import NodeView
    from forebay.gateway.parts import Parts
    from forebay.nodes.backend import Backend

logger = logging.getLogger("forebay.gateway")

BODY_BYTES_MAX = 65_536
"""What the description of a node may weigh."""
NAME_LENGTH_MAX = 64
NAMES_SHOWN = 10


class AdminRoutes:
    """The routes under `/admin`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.routes = [
            Route("/admin/nodes", self.listed),
            Route("/admin/nodes", self.add, methods=["POST"]),
            Route("/admin/nodes/{name}", self.remove, methods=["DELETE"]),
            Route("/admin/nodes/{name}/drain", self.drain, methods=["POST"]),
            Route("/admin/nodes/{name}/resume", self.resume, methods=["POST"]),
            Route("/admin/reload", self.reload, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        """List the nodes, with all that is known of them."""
        self._parts.authorizer.admin(request)
        views = await self._views()
        return json_answer(
            {"data": [_shown(backend, views.get(backend.name)) for backend in self._parts.nodes]}
        )

    async def add(self, request: Request) -> Response:
        """Take in a node."""
        self._parts.authorizer.admin(request)
        settings = await self._node_settings(request)
        try:
            backend = self._parts.node_commands.add(settings)
        except NotAllowed as error:
            raise HttpError("conflict", str(error), "name") from None
        return json_answer(_shown(backend, None), 201)

    async def remove(self, request: Request) -> Response:
        """Take a node out; what runs there may finish."""
        self._parts.authorizer.admin(request)
        self._parts.node_commands.remove(self._find(request))
        return Response(status_code=204)

    async def drain(self, request: Request) -> Response:
        """Let nothing new start on a node."""
        self._parts.authorizer.admin(request)
        backend = self._find(request)
        self._parts.node_commands.drain(backend)
        return json_answer(_shown(backend, (await self._views()).get(backend.name)))

    async def resume(self, request: Request) -> Response:
        """Use a drained node again."""
        self._parts.authorizer.admin(request)
        backend = self._find(request)
        self._parts.node_commands.resume(backend)
        return json_answer(_shown(backend, (await self._views()).get(backend.name)))

    async def reload(self, request: Request) -> Response:
        """Read the settings anew and apply what has changed."""
        self._parts.authorizer.admin(request)
        try:
            changed = self._parts.reload()
        except SettingsError as error:
            logger.error("settings NOT reloaded, the old ones stay: %s", error)
            raise invalid(str(error), "settings") from None
        return json_answer({"changed": changed})

    def _find(self, request: Request) -> Backend:
        backend = self._parts.nodes.get(request.path_params["name"])
        if backend is None:
            raise HttpError("not_found", self._no_such_node(request), "name")
        return backend

    def _no_such_node(self, request: Request) -> str:
        names = [backend.name for backend in self._parts.nodes]
        near = get_close_matches(request.path_params["name"][:NAME_LENGTH_MAX], names, 1)
        if near:
            return f"there is no node of that name; did you mean {near[0]}?"
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        known = ", ".join(names[:NAMES_SHOWN])
        return f"there is no node of that name; there are {known or 'none'}{more}"

    async def _views(self) -> dict[str, NodeView]:
        return {view.name: view for view in (await self._parts.snapshot()).nodes}

    async def _node_settings(self, request: Request) -> NodeSettings:
        body = await read_body(request, BODY_BYTES_MAX, self._parts.settings.server.body_seconds)
        try:
            given = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            raise invalid("the body is not valid JSON", "body") from None
        if not isinstance(given, dict):
            raise invalid("the body must be a JSON object", "body")
        if given.get("api_key_env"):
            # Anyone who may add nodes could otherwise send any variable of ours anywhere.
            raise invalid("name secrets in the settings file", "api_key_env")
        try:
            return parse_node(given)
        except SettingsError as error:
            raise invalid_settings(error) from None


def _shown(backend: Backend, view: NodeView | None) -> dict[str, object]:
    told = backend.told
    return {
        "name": backend.name,
        "url": backend.settings.url,
        "kind": backend.kind or None,
        "version": backend.version or None,
        "guarded": backend.guarded,
        "state": told.state,
        "slots": view.slots if view is not None else told.slots,
        "in_flight": view.in_flight if view is not None else 0,
        "families": list(told.families),
        "models": list(told.models),
        "loaded": None if told.loaded is None else list(told.loaded),
        "failing": list(told.failing),
        "gpu_load": told.gpu_load,
        "failures": dict(backend.failures),
        "last_error": backend.last_error or None,
    }
