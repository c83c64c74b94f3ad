"""Where guards register: `forebay node` on other machines, with the token that both know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from forebay.errors import NotAllowed
from forebay.gateway.errors.http_error import HttpError, invalid_settings, shutting_down
from forebay.gateway.http.json_body import decode_body, read_body
from forebay.gateway.routes.status import json_answer
from forebay.guard.beat import HEARTBEAT_S, LOST_S, NODES_PATH, Beat
from forebay.guard.token import TOKEN_HEADER, same
from forebay.settings import SettingsError

if TYPE_CHECKING:
    from starlette.requests import Request

    from forebay.gateway.parts import Parts

BODY_BYTES_MAX = 65_536
"""What a heartbeat may weigh; they are below 1 kB."""


class GuardRoutes:
    """The routes under `/guard`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.routes = [
            Route(NODES_PATH, self.hear, methods=["POST"]),
            Route(f"{NODES_PATH}/{{name}}", self.leave, methods=["DELETE"]),
        ]

    async def hear(self, request: Request) -> Response:
        """Take a heartbeat; the first one registers the node."""
        parts = self._parts
        self._let_in(request)
        if parts.draining:
            raise shutting_down()
        body = await read_body(request, BODY_BYTES_MAX, parts.settings.server.body_seconds)
        beat = await decode_body(body, Beat)
        try:
            is_new = parts.guarded.hear(beat)
        except SettingsError as error:
            raise invalid_settings(error) from None
        except NotAllowed as error:
            raise HttpError("conflict", str(error), "name") from None
        backend = parts.nodes.get(beat.name)
        state = backend.told.state if backend is not None else "offline"
        told = {"heartbeat_seconds": HEARTBEAT_S, "lost_after_seconds": LOST_S}
        return json_answer({"name": beat.name, "state": state, **told}, 201 if is_new else 200)

    async def leave(self, request: Request) -> Response:
        """Forget a node whose guard goes."""
        self._let_in(request)
        name = request.path_params["name"]
        if not self._parts.guarded.leave(name, request.query_params.get("instance", "")):
            raise HttpError("not_found", "no guard of that name is registered", "name")
        return Response(status_code=204)

    def _let_in(self, request: Request) -> None:
        """Refuse whoever does not know the token; a key is of no use here."""
        self._parts.authorizer.anyone(request)
        token = self._parts.guarded.token
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
