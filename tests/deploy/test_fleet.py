"""The fleet of the compose file: its guards, and HAProxy in front."""

from __future__ import annotations

import re
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest

from forebay.guard.guard import Guard, GuardOptions
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import Settings
from harness.fleet.balancer import haproxy_binary, settings_for
from harness.fleet.program import ProgramFailed

from .test_running import DEPLOY, GATEWAYS, OURS, PORT, SERVICES, SIM_NODES, parsed, status_of

HAPROXY = (DEPLOY / "haproxy.cfg").read_text()
GUARDS = {name: parsed(one["command"]) for name, one in OURS.items() if one["command"][0] == "node"}
SECONDS = re.compile(r"^\s*timeout ([\w-]+) (\d+)s", re.MULTILINE)


def host_and_port(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port


def test_each_simulated_node_has_a_guard_with_its_slots() -> None:
    nodes = {name: parsed(service["command"]) for name, service in SIM_NODES.items()}
    guarded = {host_and_port(guard["backend"]): guard["slots"] for guard in GUARDS.values()}
    assert guarded == {(name, node["port"]): node["slots"] for name, node in nodes.items()}
    assert len(nodes) == 3


def test_each_guard_says_where_it_is_and_registers_with_every_gateway() -> None:
    for name, guard in GUARDS.items():
        assert host_and_port(guard["advertise"]) == (name, guard["port"])
        assert {host_and_port(url) for url in guard["gateway"]} == {
            (gateway, PORT) for gateway in GATEWAYS
        }
        assert guard["token_env"] in SERVICES[name]["environment"]
        assert guard["name"] == name.removeprefix("guard-")


def test_a_guard_may_finish_what_runs_when_it_is_stopped() -> None:
    for name, guard in GUARDS.items():
        grace = float(OURS[name]["stop_grace_period"].removesuffix("s"))
        assert grace > guard["shutdown_seconds"]


async def test_the_health_check_of_a_guard_is_content_with_a_guard_and_with_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (check,) = {OURS[name]["healthcheck"]["test"][-1] for name in GUARDS}
    (port,) = {str(guard["port"]) for guard in GUARDS.values()}
    assert f", {port}, " in check
    monkeypatch.setenv("GUARD_TOKEN", "secret")
    node = SimNode(SimOptions(models=("small",)), "127.0.0.1", 0)
    await node.start()
    try:
        given: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "token": "secret"}
        async with Guard(GuardOptions(backend=node.url, **given)) as guard:
            here = check.replace(f", {port}, ", f", {guard.port}, ")
            assert await status_of(here) == 0
            monkeypatch.setenv("GUARD_TOKEN", "another")
            assert await status_of(here) == 1
    finally:
        await node.stop()
    assert await status_of(here) == 1


# -- HAProxy


def test_haproxy_leads_to_every_gateway_and_is_where_clients_go() -> None:
    servers = re.findall(r"^\s*server (\S+) (\S+):(\d+)$", HAPROXY, re.MULTILINE)
    assert servers == [(name, name, str(PORT)) for name in GATEWAYS]
    assert SERVICES["haproxy"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert f"bind :{PORT}" in HAPROXY
    assert not any("ports" in service for service in GATEWAYS.values())


def test_haproxy_asks_whether_a_gateway_is_ready_not_only_alive() -> None:
    assert "http-check send meth GET uri /ready " in HAPROXY


def test_haproxy_waits_longer_than_a_gateway_may_take() -> None:
    timeouts = {name: int(seconds) for name, seconds in SECONDS.findall(HAPROXY)}
    settings = Settings()
    longest = settings.queue.max_wait_seconds + settings.queue.run_seconds
    assert timeouts["client"] == timeouts["server"] > longest
    assert timeouts["http-keep-alive"] < settings.server.idle_seconds


def test_haproxy_finds_nothing_wrong_with_its_settings(tmp_path: Any) -> None:
    try:
        binary = haproxy_binary()
    except ProgramFailed:
        pytest.skip("HAProxy is not installed")
    file = tmp_path / "haproxy.cfg"
    file.write_text(settings_for(HAPROXY, {"7800": 7800, "8404": 8404}, [7801, 7802, 7803]))
    assert file.read_text().count("\n  server ") == 3
    checked = subprocess.run([binary, "-c", "-f", file], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr
