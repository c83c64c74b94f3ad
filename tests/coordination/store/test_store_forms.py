"""The store behind sentinels, with a password, and over TLS: real ones."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from forebay.coordination.store.valkey import connect
from forebay.core import Arrived, Finished, NodeChanged
from forebay.settings import BadStoreUrl
from harness.valkey_server import ValkeyServer

from ..crew import PATIENCE_S, Crew, filled, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

NODE = NodeChanged("gpu1", slots=1, models=("llama",))


async def works(crew: Crew) -> None:
    """Let a slot pass from one replica to the other."""
    crew.everyone(NODE)
    await crew.settled()
    first, second = crew.hands
    first.post(Arrived("a", "llama"))
    await until(lambda: first.routed == ["a"])
    second.post(Arrived("b", "llama"))
    await until(lambda: bool(second.actions))
    first.post(Finished("a"))
    await until(lambda: second.routed == ["b"])


async def test_a_server_with_a_password() -> None:
    with ValkeyServer("--requirepass", "s3cret/@") as server:
        url = server.url.replace("redis://", "redis://:s3cret%2F%40@")
        async with Crew(url, 2) as crew:
            await works(crew)


async def test_a_server_by_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "valkey.sock"
    with ValkeyServer("--unixsocket", str(path)):
        async with Crew(f"unix://{path}", 2) as crew:
            await works(crew)


@pytest.mark.parametrize(
    "url",
    ["redis://cache?nosuch=1", "redis://cache?ssl_ca_certs=/ca.pem",
     "unix:///run/v.sock?socket_timeout=x", "redis+sentinel://a/main?nosuch=1"],
)  # fmt: skip
def test_an_option_that_redis_py_does_not_know_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(BadStoreUrl, match="redis-py does not know") as refused:
        connect(url)
    assert "nosuch" not in str(refused.value)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for this machine, signed by itself, and its key."""
    files = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-out", files[0], "-keyout", files[1]]
    subprocess.run(command, check=True, capture_output=True)
    return files


async def test_a_server_over_tls(certificate: tuple[str, str], valkey_server: ValkeyServer) -> None:
    """The server of the tests is built without TLS, so something that has it stands before it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    pumps: set[asyncio.Task[None]] = set()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", valkey_server.port)
        for source, target in ((reader, behind[1]), (behind[0], writer)):
            pumps.add(asyncio.ensure_future(_pump(source, target)))

    front = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    port = front.sockets[0].getsockname()[1]
    async with Crew(f"rediss://127.0.0.1:{port}/5?ssl_ca_certs={certificate[0]}", 2) as crew:
        await works(crew)
    front.close()
    await asyncio.gather(*pumps)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
    target.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[ValkeyServer, ValkeyServer, ValkeyServer]]:
    """A server, one that follows it, and a sentinel that watches both."""
    main = ValkeyServer()
    main.start()
    spare = ValkeyServer("--replicaof", "127.0.0.1", str(main.port))
    spare.start()
    settings = tmp_path / "sentinel.conf"
    settings.write_text(
        f"sentinel monitor main 127.0.0.1 {main.port} 1\n"
        "sentinel down-after-milliseconds main 500\n"
        "sentinel failover-timeout main 2000\n"
    )
    sentinel = ValkeyServer(settings=settings)
    sentinel.start()
    yield main, spare, sentinel
    for server in (sentinel, spare, main):
        server.stop()


async def test_sentinels_that_fail_over(
    watched: tuple[ValkeyServer, ValkeyServer, ValkeyServer],
) -> None:
    main, spare, sentinel = watched
    await _says(sentinel, lambda said: bool(said), "SENTINEL", "REPLICAS", "main")
    async with Crew(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", 2) as crew:
        await filled(crew)
        epoch = crew.leader.replica.epoch
        main.stop()
        await _says(spare, lambda said: said[0] == b"master", "ROLE")
        await until(lambda: all(hand.replica.epoch > epoch for hand in crew.hands))
        await crew.settled()
        first, second = crew.hands
        snapshot = await second.snapshot()
        # One that a busy machine lets announce too late is not waited for, and its slot given away.
        assert snapshot.running + snapshot.waiting == 4
        first.post(Finished("a"))
        second.post(Finished("b"))
        await until(lambda: (first.routed, second.routed) == (["a", "c"], ["b", "d"]))


async def _says(server: ValkeyServer, so: Callable[[Any], bool], *command: str) -> None:
    """Wait until a server answers as it should; while it changes its mind it does not at all."""
    client = AsyncRedis(port=server.port, retry=AsyncRetry(NoBackoff(), 0))
    async with asyncio.timeout(PATIENCE_S), client:
        while True:
            with contextlib.suppress(RedisError):
                if so(await client.execute_command(*command)):  # type: ignore[no-untyped-call]
                    return
            await asyncio.sleep(0.05)
