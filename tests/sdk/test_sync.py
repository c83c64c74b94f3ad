"""The synchronous client is the asynchronous one, waited for; and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from forebay.sdk import (
    AsyncClient,
    AsyncSentPrompt,
    AsyncSessionClient,
    Client,
    ClientClosed,
    Delta,
    Done,
    NotFound,
    PendingPromptLimitError,
    SentPrompt,
    SessionClient,
)

from .conftest import HighestChance, QuickPace, say
from .scripted_server import SESSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.testing import Call

    from .conftest import Place
    from .scripted_server import Exchange, ScriptedServer

PROMPT = f"/session/{SESSION}/prompt"


def threads() -> list[threading.Thread]:
    """Return the threads that are the SDK's: its loop's, and those that look up names for it."""
    names = ("forebay-sdk", "asyncio_")
    return [thread for thread in threading.enumerate() if thread.name.startswith(names)]


async def beside(work: Callable[[], Any]) -> Any:
    """Run it in a thread, as a program without a loop would; no thread may be left afterwards."""
    found = await asyncio.to_thread(work)
    assert threads() == []
    return found


def quick(url: str, **options: Any) -> Client:
    given: dict[str, Any] = {"pace": QuickPace(), "random": HighestChance(), **options}
    return Client(url, **given)


@pytest.mark.parametrize(
    ("plain", "asynchronous"),
    [(Client, AsyncClient), (SessionClient, AsyncSessionClient), (SentPrompt, AsyncSentPrompt)],
)
def test_both_colours_offer_the_same(plain: type, asynchronous: type) -> None:
    inside = {"finish_with", "take_event", "take_state", "settle", "give_up", "send_batch"}
    names = {name for name in dir(asynchronous) if not name.startswith("_")} - inside
    assert names - set(dir(plain)) == set()
    for name in names:
        ours, theirs = getattr(plain, name), getattr(asynchronous, name)
        if inspect.isfunction(ours):
            mine = list(inspect.signature(ours).parameters.values())
            their = list(inspect.signature(theirs).parameters.values())
            assert [(one.name, one.kind, one.default) for one in mine] == [
                (one.name, one.kind, one.default) for one in their
            ]


async def test_a_chat_a_stream_a_job_and_a_batch(place: Place) -> None:
    node = await place.node()
    await place.start(node)

    async def obey(call: Call) -> None:
        if call.json.get("stream"):
            await say(call, "one ", "two")
        else:
            await call.answer({"choices": []})

    node.automatic = obey
    body = {"model": "m", "messages": []}

    def work() -> None:
        with quick(place.url.replace("127.0.0.1", "localhost")) as client:
            assert client.chat("m", "hello").text == "one two"
            pieces = list(client.stream("m", "hello"))
            assert [piece.text for piece in pieces if isinstance(piece, Delta)] == ["one ", "two"]
            assert isinstance(pieces[-1], Done)
            job = client.wait_job(client.submit("chat", body).id)
            assert client.job(job.id) == job
            assert [one.id for one in client.jobs()] == [job.id]
            with pytest.raises(NotFound):
                client.cancel_job(999)
            assert [one.custom_id for one in client.batch([body])] == ["request-0"]
            assert client.models() == ["m"]
            assert client.queue().waiting == 0
            assert client.health().status == "ok"
            assert client.capabilities().version
        with pytest.raises(ClientClosed):
            client.health()
        client.close()

    await beside(work)


async def test_callbacks_run_in_the_thread_that_waits_and_may_use_the_client(
    place: Place,
) -> None:
    node = await place.node()
    await place.start(node)
    running = asyncio.ensure_future((await place.client()).chat("m", "first"))
    call = await node.next_call()
    loop = asyncio.get_running_loop()
    told: list[tuple[int, int, str]] = []

    def work() -> str:
        with quick(place.url) as client:

            def note(queued: Any) -> None:
                if not told:
                    told.append(
                        (queued.position, client.queue().waiting, threading.current_thread().name)
                    )
                    asyncio.run_coroutine_threadsafe(say(call, "first"), loop).result()

            name = threading.current_thread().name
            text = client.chat("m", "second", on_queue=note).text
            assert told == [(1, 1, name)]
            return text

    working = asyncio.ensure_future(beside(work))
    await running
    await say(await node.next_call(), "second")
    assert await working == "second"


async def test_an_exception_of_a_callback_ends_the_request(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = await place.client()
    running = asyncio.ensure_future(client.chat("m", "first"))
    call = await node.next_call()

    def work() -> None:
        def fail(_: object) -> None:
            raise ZeroDivisionError

        with quick(place.url) as other, pytest.raises(ZeroDivisionError):
            other.chat("m", "second", on_queue=fail)

    await beside(work)
    while (await client.queue()).waiting:
        pass
    await say(call, "first")
    assert (await running).text == "first"


async def test_closing_from_another_thread_ends_a_wait(place: Place) -> None:
    node = await place.node()
    await place.start(node)
    client = quick(place.url)

    def wait() -> None:
        with pytest.raises(ClientClosed):
            client.chat("m", "hello")

    waiting = asyncio.ensure_future(asyncio.to_thread(wait))
    call = await node.next_call()
    await asyncio.to_thread(client.close)
    await waiting
    await call.gone()
    assert threads() == []


async def test_leaving_a_stream_early_ends_the_request(place: Place) -> None:
    node = await place.node()
    await place.start(node)

    gone = threading.Event()

    def work() -> None:
        with quick(place.url) as client:
            for _ in client.stream("m", "hello"):
                break
            assert gone.wait(10)

    working = asyncio.ensure_future(beside(work))
    call = await node.next_call()
    await call.start_stream()
    await call.chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    await call.gone()
    gone.set()
    await working


async def test_a_session_is_held_and_closed(server: ScriptedServer) -> None:
    async def obey(exchange: Exchange) -> None:
        prompt_id = await server.accept(exchange)
        if exchange.asked.json.get("prompt") != "wait":
            server.emit("text_delta", prompt_id, text="h")
            server.complete(prompt_id, "hi")

    server.on_prompt = obey

    def work() -> None:
        with quick(server.url) as client:
            heard: list[str] = []
            with SessionClient.create_or_attach(client, model="m", max_pending=1) as session:
                assert (session.session_id, session.is_new) == (SESSION, True)
                turn = session.prompt("hello", on_event=lambda event: heard.append(event.type))
                assert turn.text == "hi"
                assert heard == ["text_delta", "turn_complete"]
                sent = session.send("hello")
                assert [event.type for event in sent.events()] == ["text_delta", "turn_complete"]
                assert sent.result().text == "hi"
                assert sent.done
                assert session.pending_here == 0
                session.send("wait")
                with pytest.raises(PendingPromptLimitError):
                    session.send("hello")
            assert client.prompt(SESSION, "hello").text == "hi"

    await beside(work)
    await server.until(lambda: not server.streams)
    assert server.count("POST", PROMPT) == 4


async def test_closing_in_the_middle_of_a_turn_leaves_nothing(server: ScriptedServer) -> None:
    client = quick(server.url)

    def work() -> None:
        session = SessionClient.create_or_attach(client, model="m")
        with pytest.raises(ClientClosed):
            session.prompt("hello")

    working = asyncio.ensure_future(asyncio.to_thread(work))
    await server.until(lambda: server.count("POST", PROMPT) and server.streams)
    await asyncio.to_thread(client.close)
    await working
    assert threads() == []
    await server.until(lambda: not server.streams)


async def test_an_async_client_leaves_no_task_and_no_connection(
    place: Place, server: ScriptedServer
) -> None:
    before = asyncio.all_tasks()
    for closes_session in (True, False):
        client = AsyncClient(server.url, pace=place.pace)
        session = await AsyncSessionClient.create_or_attach(client, model="m")
        await server.until(lambda: server.streams)
        await session.send("hello")
        following = session.events()
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        if closes_session:
            await session.close()
        await client.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        await server.until(lambda: not server.streams)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    left = {task for task in asyncio.all_tasks() - before if "_serve" not in repr(task)}
    assert left == set()


def test_ctrl_c_ends_what_is_waited_for_and_the_client_lives_on() -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    arrived, left = threading.Event(), threading.Event()

    class Hold(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.set()
            self.rfile.read(int(self.headers["content-length"]))
            assert self.rfile.read() == b""  # until the client leaves
            left.set()

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", "16")
            self.end_headers()
            self.wfile.write(b'{"status": "ok"}')

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hold)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()

    def interrupt() -> None:
        arrived.wait(10)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with quick(f"http://127.0.0.1:{server.server_port}") as client:
            with pytest.raises(KeyboardInterrupt):
                client.submit("chat", {})
            assert left.wait(10)
            assert client.health().status == "ok"
        assert threads() == []
    finally:
        interrupting.join()
        server.shutdown()
        serving.join()
        server.server_close()
