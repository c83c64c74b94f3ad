"""The store behind sentinels, as a cluster, with a password, and over TLS: real ones."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, RedisError

from forebay.coordination.store import keys
from forebay.core import Arrived, Finished, NodeChanged
from harness.valkey_server import ValkeyServer, free_port

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


async def test_a_cluster(tmp_path: Path) -> None:
    options = ["--cluster-enabled", "yes", "--cluster-config-file", str(tmp_path / "nodes.conf")]
    with ValkeyServer(*options, "--cluster-port", str(free_port())) as server:
        with Redis.from_url(server.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            await until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        url = server.url.replace("redis://", "redis+cluster://").removesuffix("/0")
        async with Crew(url, 2) as crew:
            await works(crew)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    """Two servers of one cluster; the first has every slot."""
    servers = []
    for name in ("first", "second"):
        options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
        options += ["--cluster-config-file", str(tmp_path / f"{name}.conf")]
        servers.append(ValkeyServer(*options))
        servers[-1].start()
    first, second = servers
    yield first, second
    for server in servers:
        server.stop()


async def _joined(first: ValkeyServer, second: ValkeyServer) -> None:
    """Make one cluster of them."""
    with Redis.from_url(first.url) as one, Redis.from_url(second.url) as two:
        one.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        bus = two.execute_command("CONFIG", "GET", "cluster-port")[b"cluster-port"].decode()
        one.execute_command("CLUSTER", "MEET", "127.0.0.1", second.port, bus)
        for word in (b"cluster_known_nodes:2", b"cluster_state:ok"):
            for client in (one, two):
                await until(lambda c=client, w=word: w in c.execute_command("CLUSTER", "INFO"))  # type: ignore[misc]


async def test_fault_43_a_cluster_that_moves_the_keys_elsewhere_is_followed(
    cluster: tuple[ValkeyServer, ValkeyServer],
) -> None:
    first, second = cluster
    await _joined(first, second)
    url = first.url.replace("redis://", "redis+cluster://").removesuffix("/0")
    with Redis.from_url(first.url) as one, Redis.from_url(second.url) as two:
        async with Crew(url, 2) as crew:
            await filled(crew)
            slot = one.execute_command("CLUSTER", "KEYSLOT", keys.LEASE)
            ids = [client.execute_command("CLUSTER", "MYID") for client in (one, two)]
            two.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            one.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
            while names := one.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                one.execute_command(
                    "MIGRATE", "127.0.0.1", second.port, "", 0, 5000, "KEYS", *names
                )
            for client in (two, one):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
            with pytest.raises(MovedError):
                one.get(keys.LEASE)
            signed = dict(two.zrange(keys.MEMBERS, 0, -1, withscores=True))
            await until(
                lambda: all(
                    when > signed[member]
                    for member, when in two.zrange(keys.MEMBERS, 0, -1, withscores=True)
                )
            )
            await crew.settled()
            hands = crew.hands
            hands[0].post(Finished("a"))
            hands[1].post(Finished("b"))
            await until(lambda: (hands[0].routed, hands[1].routed) == (["a", "c"], ["b", "d"]))


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
