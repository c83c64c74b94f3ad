"""TLS on both sides: a gateway that has a certificate, and a node that has one."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from forebay.gateway.gateway import Gateway
from forebay.settings import NodeSettings, Settings
from forebay.testing import RawClient

from .conftest import PROMPT

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.testing.fake_node import Call

    from .conftest import Stage


class Certificate(NamedTuple):
    """A certificate that signs itself, and its key."""

    cert: Path
    key: Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("tls")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    kind = ["-x509", "-nodes", "-days", "2"]
    secret = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(
        ["openssl", "req", *kind, *secret, *names, *files], check=True, capture_output=True
    )
    return made


async def answer_at_once(call: Call) -> None:
    await call.answer({"choices": []})


async def start_tls(stage: Stage, certificate: Certificate) -> str:
    """Start a gateway with a certificate in front of a node; return its address."""
    node = await stage.fake_node()
    node.automatic = answer_at_once
    tls = {"tls_cert": str(certificate.cert), "tls_key": str(certificate.key)}
    gateway = await stage.start(node.url, server=tls)
    return f"https://127.0.0.1:{gateway.port}"


async def test_a_gateway_with_a_certificate_answers_hot_and_other_routes_over_tls(
    stage: Stage, certificate: Certificate
) -> None:
    await start_tls(stage, certificate)
    trusted = ssl.create_default_context(cafile=certificate.cert)
    client = await stage.connect(ssl=trusted)
    for _ in range(2):  # the connection is kept, and handed back and forth
        await client.post("/v1/chat/completions", {"model": "m", "messages": PROMPT})
        assert (await client.reply()).status == 200
        await client.get("/v1/queue")
        assert (await client.reply()).json["served_total"] >= 1


async def test_a_client_that_does_not_trust_the_certificate_is_not_talked_into_it(
    stage: Stage, certificate: Certificate
) -> None:
    await start_tls(stage, certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        await stage.connect(ssl=ssl.create_default_context())


async def second_gateway(stage: Stage, url: str) -> Gateway:
    """Start a gateway whose node is at that address."""
    nodes = (NodeSettings(name="far", url=url),)
    server: dict[str, Any] = {"port": 0}
    gateway = Gateway(Settings(nodes=nodes, server=server), environ={})  # type: ignore[arg-type] # pydantic reads dicts
    return await stage.stack.enter_async_context(gateway)


async def test_a_node_is_reached_over_tls_where_its_certificate_is_trusted(
    stage: Stage, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.cert))
    front = await second_gateway(stage, await start_tls(stage, certificate))
    async with await RawClient.connect("127.0.0.1", front.port) as client:
        for _ in range(2):
            await client.post("/v1/chat/completions", {"model": "m", "messages": PROMPT})
            reply = await client.reply()
            assert reply.status == 200
            assert reply.headers["x-forebay-node"] == "far"


async def test_a_node_whose_certificate_is_not_trusted_is_not_used_and_it_says_why(
    stage: Stage, certificate: Certificate
) -> None:
    front = await second_gateway(stage, await start_tls(stage, certificate))
    async with await RawClient.connect("127.0.0.1", front.port) as client:
        await client.get("/admin/nodes")
        (node,) = (await client.reply()).json["data"]
    assert node["state"] != "online"
    assert "certificate" in node["last_error"].lower()
