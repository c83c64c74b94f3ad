"""Many requests in one file: OpenAI's `/v1/files` and `/v1/batches`.

What is sent is written to a temporary file first (in memory while it is small), so that it may be
large, and may be sent again.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import msgspec

from forebay.api.batches import Batch, BatchList, File
from forebay.sdk.errors import BadAnswer, BatchFailed, GatewayAway, WaitTooLong
from forebay.sdk.transport import ApiCall, FileUpload, Outage, decoded, query
from forebay.sdk.values import BatchResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from forebay.sdk.errors import SdkError
    from forebay.sdk.transport import Transport

CHAT_ROUTE = "/v1/chat/completions"
WINDOW = "24h"
FILE_BYTES_MAX = 200 * 1024 * 1024
"""What the gateway takes."""
LINE_BYTES_MAX = 64 * 1024 * 1024
IN_MEMORY_BYTES_MAX = 4 * 1024 * 1024
UPLOAD_S = 300.0
"""One wait for the network: uploads may stand in line at the gateway, and disks sync."""
POLL_S, POLL_S_MAX, POLL_GROWTH = 1.0, 5.0, 1.25
ASKED_S_MAX = 60.0

if TYPE_CHECKING:
    Requests: TypeAlias = Iterable[Mapping[str, Any]] | str | Path
"""Bodies, or whole lines with a `custom_id`, or the path of a file of lines."""


def batch_file(requests: Requests, endpoint: str) -> IO[bytes]:
    """Return the input of a batch, to be closed by whoever sends it; raises ValueError, OSError.

    Bodies are numbered: the first has the custom_id `request-0`.
    """
    if isinstance(requests, str | Path):
        return Path(requests).open("rb")
    file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES_MAX)  # noqa: SIM115 - handed on
    try:
        for number, request in enumerate(requests):
            line: Mapping[str, Any] = request
            if "custom_id" not in request:
                line = {
                    "custom_id": f"request-{number}",
                    "method": "POST",
                    "url": endpoint,
                    "body": request,
                }
            file.write(msgspec.json.encode(line) + b"\n")
            if file.tell() > FILE_BYTES_MAX:
                raise ValueError(f"requests: more than {FILE_BYTES_MAX:,} bytes; make two batches")
        if not file.tell():
            raise ValueError("requests: there are none")
    except BaseException:
        file.close()
        raise
    return file


class BatchMethods:
    """What a client can do with batches."""

    _transport: Transport

    async def batch(
        self,
        requests: Requests,
        *,
        endpoint: str = CHAT_ROUTE,
        window: str = WINDOW,
        on_progress: Callable[[Batch], object] | None = None,
    ) -> AsyncGenerator[BatchResult, None]:
        """Run many requests as one batch, and yield what became of each; raises BatchFailed.

        `requests` are bodies, or whole lines with a `custom_id`, or the path of such a file.
        Leaving early leaves the batch running.
        """
        begun = await self.start_batch(requests, endpoint=endpoint, window=window)
        ended = await self.wait_batch(begun.id, on_progress=on_progress)
        async with aclosing(self.batch_results(ended)) as results:
            async for result in results:
                yield result

    async def start_batch(
        self, requests: Requests, *, endpoint: str = CHAT_ROUTE, window: str = WINDOW
    ) -> Batch:
        """Start a batch and return at once."""
        return await self.send_batch(batch_file(requests, endpoint), endpoint, window)

    async def send_batch(self, file: IO[bytes], endpoint: str, window: str) -> Batch:
        """Start a batch of a file of lines, and close the file."""
        with file:
            file_id = await upload_file(self._transport, "requests.jsonl", file)
        return await create_batch(self._transport, file_id, endpoint, window)

    async def batch_state(self, batch_id: str) -> Batch:
        """Return a batch as it stands."""
        return await self._transport.get(f"/v1/batches/{quote(batch_id)}", Batch)

    async def batches(
        self,
        *,
        status: str | None = None,
        model: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Batch]:
        """Return batches, ended ones too, the newest first; `after` an id, for more."""
        asked = query(status=status, model=model, after=after, limit=limit)
        return (await self._transport.get(f"/v1/batches{asked}", BatchList)).data

    async def wait_batch(
        self,
        batch_id: str,
        *,
        timeout_s: float | None = None,
        on_progress: Callable[[Batch], object] | None = None,
    ) -> Batch:
        """Return a batch when it has ended; raises WaitTooLong, and BatchFailed for bad input."""
        try:
            async with asyncio.timeout(timeout_s):
                batch = await follow_batch(self._transport, batch_id, on_progress)
        except TimeoutError as error:
            raise WaitTooLong(f"batch {batch_id} has not ended within {timeout_s:g} s") from error
        if batch.status == "failed":
            raise BatchFailed(batch.id, () if batch.errors is None else tuple(batch.errors["data"]))
        return batch

    async def batch_results(self, batch: Batch) -> AsyncGenerator[BatchResult, None]:
        """Yield what became of each line of a batch that has ended: answers, then failures."""
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id is not None:
                async with aclosing(self._lines(file_id)) as lines:
                    async for line in lines:
                        yield decoded(line, BatchResult)

    async def cancel_batch(self, batch_id: str) -> Batch:
        """End a batch; what is done is kept."""
        call = ApiCall("POST", f"/v1/batches/{quote(batch_id)}/cancel")
        return await self._transport.ask(call, Batch)

    async def delete_file(self, file_id: str) -> None:
        """Delete an input or output of a batch; they stay until then."""
        await self._transport.fetch(ApiCall("DELETE", f"/v1/files/{quote(file_id)}"))

    # -- inside

    async def _lines(self, file_id: str) -> AsyncGenerator[bytes, None]:
        call = ApiCall("GET", f"/v1/files/{quote(file_id)}/content", is_repeatable=True)
        async with self._transport.opened(call) as response:
            rest, size = b"", 0
            async with aclosing(self._transport.pieces(response)) as coming:
                async for piece in coming:
                    size += len(piece)
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        if line.strip():
                            yield line
                    if len(rest) > LINE_BYTES_MAX:
                        raise BadAnswer(f"a result of more than {LINE_BYTES_MAX:,} bytes")
            length = response.headers.get("content-length", str(size))
            if length != str(size):  # a short read looks like an end
                raise GatewayAway(f"the file {file_id} was cut off", sent=True)
        if rest.strip():
            yield rest


async def upload_file(transport: Transport, name: str, file: IO[bytes]) -> str:
    """Send a file of lines and return its id; raises SdkError."""
    upload = FileUpload(name, file)
    call = ApiCall("POST", "/v1/files", upload=upload, read_s=UPLOAD_S)
    return (await transport.ask(call, File)).id


async def create_batch(
    transport: Transport, file_id: str, endpoint: str, window: str, **more: object
) -> Batch:
    """Start the batch of a file that was sent; raises SdkError."""
    body = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": window, **more}
    return await transport.ask(ApiCall("POST", "/v1/batches", body), Batch)


async def follow_batch(
    transport: Transport,
    batch_id: str,
    on_progress: Callable[[Batch], object] | None = None,
    on_outage: Callable[[SdkError | None], object] | None = None,
) -> Batch:
    """Return a batch when it has ended; raises SdkError, but waits for a gateway that is away."""
    call = ApiCall("GET", f"/v1/batches/{quote(batch_id, safe='')}", is_repeatable=True)
    outage, wait_s = Outage(transport, on_outage), POLL_S
    while True:
        _, headers, content = await outage.until_answered(lambda: transport.fetch(call))
        batch = decoded(content, Batch)
        if on_progress is not None:
            on_progress(batch)
        if batch.ended:
            return batch
        asked_s = poll_after_s(headers)
        await transport.pause(wait_s if asked_s is None else asked_s)
        wait_s = min(wait_s * POLL_GROWTH, POLL_S_MAX)


def poll_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the gateway asks to wait before the next look.

    >>> poll_after_s({"openai-poll-after-ms": "250"}), poll_after_s({})
    (0.25, None)
    >>> [poll_after_s({"openai-poll-after-ms": text}) for text in ("soon", "9999999")]
    [None, 60.0]
    """
    header = headers.get("openai-poll-after-ms")
    if header is None or not (header.isascii() and header.isdigit() and len(header) < 10):
        return None
    return min(int(header) / 1000, ASKED_S_MAX)
