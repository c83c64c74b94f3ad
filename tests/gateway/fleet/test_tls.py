"""Gateways with certificates pass calls on over TLS, and only to those whom they can trust."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from forebay.testing import RawClient

from ..sessions.session_steps import answer, follow, new_session, prompt
from .fleet_rig import A, B

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import Rig
    from .fleet_rig import FleetRig


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Two that sign themselves, as settings."""
    return [made(tmp_path_factory.mktemp("tls")) for _ in range(2)]


def made(folder: Path) -> dict[str, str]:
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    kind = ["-x509", "-nodes", "-days", "2", "-keyout", key, "-out", cert]
    secret = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(["openssl", "req", *kind, *secret, *names], check=True, capture_output=True)
    return {"tls_cert": cert, "tls_key": key}


async def start(fleet: FleetRig, name: str, node: Any, tls: dict[str, str]) -> Rig:
    rig = await fleet.start(name, node, server=tls)
    fleet.directory.addresses[name] = f"https://127.0.0.1:{rig.gateway.port}"
    trusted = ssl.create_default_context(cafile=tls["tls_cert"])

    async def client(**options: Any) -> RawClient:
        made = await RawClient.connect("127.0.0.1", rig.gateway.port, ssl=trusted, **options)
        return await fleet.stack.enter_async_context(made)

    rig.client = client  # type: ignore[method-assign]
    return rig


async def test_gateways_of_one_certificate_trust_each_other(
    fleet: FleetRig, certificates: list[dict[str, str]]
) -> None:
    node = await fleet.node()
    wrong = await start(fleet, A, node, certificates[0])
    owner = await start(fleet, B, node, certificates[0])
    session = await new_session(owner)
    reader = await follow(wrong, session)
    asked = await prompt(wrong, session)
    await answer(await node.next_call(), "over TLS")
    assert (await reader.end_of(asked))["text"] == "over TLS"


async def test_nothing_is_told_to_one_whose_certificate_is_not_trusted(
    fleet: FleetRig, certificates: list[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    node = await fleet.node()
    wrong = await start(fleet, A, node, certificates[0])
    owner = await start(fleet, B, node, certificates[1])
    session = await new_session(owner)
    reply = await wrong.get(f"/session/{session}")
    assert (reply.status, reply.json["error"]["code"]) == (503, "replica_unavailable")
    assert "certificate" in caplog.text.lower()
