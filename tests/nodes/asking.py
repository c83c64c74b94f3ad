"""The port `Fetch` on httpx: over a socket to a real server, or straight into a double."""

from types import TracebackType
from typing import Self

import httpx
from starlette.types import ASGIApp

from forebay.errors import BackendFailed
from forebay.nodes.adapters.report import Fetch, ProbeReply

LIMIT_S = 30.0


class HttpxFetch:
    """Asks one address; counts the requests that it took."""

    def __init__(self, url: str = "http://double", app: ASGIApp | None = None) -> None:
        transport = httpx.ASGITransport(app) if app is not None else None
        self._client = httpx.AsyncClient(
            base_url=url, transport=transport, timeout=LIMIT_S, trust_env=False
        )
        self.asked: list[str] = []

    async def __call__(self, method: str, path: str, body: bytes = b"") -> ProbeReply:
        self.asked.append(path)
        try:
            reply = await self._client.request(method, path, content=body)
        except httpx.HTTPError as error:
            raise BackendFailed(str(error)) from error
        headers = {name.lower(): value for name, value in reply.headers.items()}
        return ProbeReply(reply.status_code, headers, reply.content)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()


def port(fetch: HttpxFetch) -> Fetch:
    """Show the type checker that the double is the port."""
    return fetch
