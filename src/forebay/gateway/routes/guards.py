"""`/guard`: where guards (`forebay node` on other machines) register, with a shared token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from forebay.errors import NotAllowed
from forebay.gateway.errors.http_error import HttpError, invalid_settings
from forebay.gateway.routes.json_answer import json_answer
from forebay.guard.heartbeat import HEARTBEAT_S, LOST_S, NODES_PATH, GuardHeartbeat
from forebay.guard.token import TOKEN_HEADER, same
from forebay.settings import SettingsError

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.fleet.guarded_nodes import GuardedNodes
    from forebay.gateway.http.authorization import Authorizer
    from forebay.gateway.http.json_body import RequestReader
    from forebay.gateway.readiness import Readiness
    from forebay.nodes.registry import Nodes

BODY_BYTES_MAX = 65_536
"""What a heartbeat may weigh; they are below 1 kB."""


@dataclass(frozen=True)
class GuardRoutes:
    """Heartbeats and goodbyes of guards."""

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
        told = {"heartbeat_seconds": HEARTBEAT_S, "lost_after_seconds": LOST_S}
        return json_answer({"name": beat.name, "state": state, **told}, 201 if is_new else 200)

    async def leave(self, request: Request) -> Response:
        """Forget a node whose guard stops."""
        self._authenticate(request)
        name = request.path_params["name"]
        if not self.guarded.leave(name, request.query_params.get("instance", "")):
            raise HttpError("not_found", "no guard of that name is registered", "name")
        return Response(status_code=204)

    def _authenticate(self, request: Request) -> None:
        """Check the guards' token; an API key does not open these routes."""
        self.authorizer.anyone(request)
        token = self.guarded.token
        if not token:
            raise HttpError(
                "guard_refused",
                "no guard may register here: guard.token_env is not set; name an environment "
                "variable there that holds the guards' token, and restart the gateway",
            )
        if not same(request.headers.get(TOKEN_HEADER, "").encode("latin-1"), token):
            raise HttpError(
                "guard_refused",
                "the guard's token is not the one of this gateway: the variable of --token-env "
                "there and that of guard.token_env here must hold the same",
            )
