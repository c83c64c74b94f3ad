"""The unit, the image and the compose file agree with the program that they run."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import DEVNULL
from configparser import ConfigParser
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml  # type: ignore[import-untyped]

from forebay.cli.main import app
from forebay.gateway.gateway import Gateway
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode
from forebay.settings import NodeSettings, Settings, load_settings
from forebay.settings.model import advertised
from forebay.settings.places import default_database

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "forebay.service"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "forebay"}
GATEWAYS = {name: service for name, service in OURS.items() if service["command"] == ["serve"]}
SIM_NODES = {name: one for name, one in OURS.items() if one["command"][0] == "sim-node"}
STATE = "/var/lib/forebay"
PORT = Settings().server.port
VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]*)?\}")


def parsed(words: list[str]) -> dict[str, Any]:
    """Parse a command line of `forebay` as the program would, and return what it was given."""
    command: Any = typer.main.get_command(app)
    name, *rest = words
    given: dict[str, Any] = command.commands[name].make_context(name, rest).params
    return given


# -- systemd


def unit() -> dict[str, str]:
    text = ConfigParser(interpolation=None, strict=False)
    text.optionxform = str  # type: ignore[assignment,method-assign]
    text.read(UNIT)
    return dict(text["Service"])


def test_the_unit_starts_reloads_and_stops_the_gateway_as_it_wants_to_be() -> None:
    service, settings = unit(), Settings()
    program, *words = shlex.split(service["ExecStart"])
    assert program == "/opt/forebay/bin/forebay"
    assert str(parsed(words)["config"]) == "/etc/forebay/forebay.toml"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > settings.server.shutdown_seconds
    assert int(service["LimitNOFILE"]) > settings.server.connections_max


def test_the_unit_keeps_what_must_last_in_its_state_directory() -> None:
    service = unit()
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}" == STATE
    assert service["Environment"] == f"HOME={STATE}"
    assert default_database({"STATE_DIRECTORY": STATE}) == f"sqlite:///{STATE}/forebay.db"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit_and_little_exposed(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/forebay/bin/forebay", sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", copy],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-300:]


# -- the image


def instructions(name: str) -> list[str]:
    whole = CONTAINERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} +(.*)$", whole, re.MULTILINE)


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    sources = [word for line in instructions("COPY") for word in line.split()[:-1]]
    copied = {word for word in sources if not word.startswith(("--from", "/"))}
    assert copied == let_in
    assert {name for name in copied if not (ROOT / name).exists()} == set()
    assert any(fnmatch("a/__pycache__", pattern.replace("**", "*")) for pattern in ignored)


def test_the_image_runs_the_gateway_as_nobody_in_particular_with_its_state_in_a_volume() -> None:
    assert instructions("USER") == ["forebay"]
    assert instructions("VOLUME") == [STATE]
    assert instructions("WORKDIR")[-1] == STATE
    assert instructions("EXPOSE") == [str(PORT)]
    (entry,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    assert entry == '["/opt/forebay/bin/forebay"]'
    parsed(yaml.safe_load(command))
    assert load_settings(None, (), image_variables()).server.host == "0.0.0.0"


def image_variables() -> dict[str, str]:
    """Return the settings that the image brings."""
    (environment,) = instructions("ENV")
    variables = dict(word.split("=", 1) for word in environment.split())
    return {name: value for name, value in variables.items() if name.startswith("FOREBAY_")}


def health_checks() -> list[tuple[str, str]]:
    """Return the programs that say whether a container is well, and the port each asks."""
    (image,) = re.findall(r"CMD (\[.*\])", instructions("HEALTHCHECK")[0])
    nodes = [service["healthcheck"]["test"][1:] for service in SIM_NODES.values()]
    programs = [words[-1] for words in (yaml.safe_load(image), *nodes)]
    return [(program, re.findall(r", (\d+), ", program)[0]) for program in programs]


async def test_a_health_check_is_content_with_what_it_is_for_and_with_nothing_else(
    tmp_path: Path,
) -> None:
    (gateway_check, port), *node_checks = health_checks()
    assert port == str(PORT)
    assert {port for _, port in node_checks} == {"8080"}
    node = SimNode(SimOptions(models=("small",)), "127.0.0.1", 0)
    await node.start()
    given: dict[str, Any] = {
        "server": {"port": 0},
        "nodes": (NodeSettings(name="small", url=node.url),),
        "jobs": {"database": f"sqlite:///{tmp_path}/jobs.db"},
    }
    try:
        async with Gateway(Settings(**given), environ={}) as gateway:
            here = gateway_check.replace(port, str(gateway.port))
            there = node_checks[0][0].replace("8080", str(urlsplit(node.url).port))
            assert [await status_of(here), await status_of(there)] == [0, 0]
            wrong = here.replace("/health", "/nowhere")
            assert await status_of(wrong) == 1
    finally:
        await node.stop()
    assert await status_of(here) == 1


async def status_of(program: str) -> int:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=DEVNULL)
    return await child.wait()


# -- compose


@pytest.mark.parametrize("name", OURS)
def test_a_command_of_the_compose_file_is_one_that_there_is(name: str) -> None:
    parsed(OURS[name]["command"])


@pytest.mark.parametrize("name", GATEWAYS)
def test_a_gateway_of_the_compose_file_has_the_settings_that_it_seems_to_have(name: str) -> None:
    given = {key: VARIABLE.sub("secret", value) for key, value in environment_of(name).items()}
    ours = {key: value for key, value in given.items() if key.startswith("FOREBAY_")}
    settings = load_settings(None, (), {**image_variables(), **ours})
    assert urlsplit(settings.jobs.database).hostname == "postgres"
    assert settings.jobs.files_folder == ""  # in PostgreSQL, where all gateways find them
    address = advertised(settings.server, settings.coordination, PORT, OURS[name]["hostname"])
    assert address == f"http://{name}:{PORT}"
    store = urlsplit(settings.coordination.url)
    assert (store.hostname, store.port) == ("valkey", 6379)
    assert settings.guard.token_env in given
    assert settings.server.trusted_proxies  # else every client would be HAProxy
    grace = float(GATEWAYS[name]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.server.shutdown_seconds


def environment_of(name: str) -> dict[str, str]:
    given: dict[str, str] = SERVICES[name]["environment"]
    return given


def test_every_gateway_of_the_compose_file_is_the_same() -> None:
    assert sorted(GATEWAYS) == ["gateway-1", "gateway-2"]
    but_for_names = [{**service, "hostname": ""} for service in GATEWAYS.values()]
    assert but_for_names[0] == but_for_names[1]


def test_metrics_are_read_where_they_are_and_shown_where_they_are_read() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    ours, balancer = prometheus["scrape_configs"]
    assert ours["static_configs"] == [{"targets": [f"{name}:{PORT}" for name in GATEWAYS]}]
    assert balancer["static_configs"] == [{"targets": ["haproxy:8404"]}]
    sources = DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    (source,) = yaml.safe_load(sources.read_text())["datasources"]
    address = urlsplit(source["url"])
    assert address.hostname in SERVICES
    assert f"127.0.0.1:{address.port}:{address.port}" in SERVICES["prometheus"]["ports"]
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


def test_only_this_machine_reaches_what_the_compose_file_starts() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert f"127.0.0.1:{PORT}:{PORT}" in ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_everything_that_is_mounted_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source, *_ = volume.split(":")
            if source.startswith("."):
                assert (DEPLOY / source).exists(), volume
            else:
                assert source in COMPOSE["volumes"], volume
    dashboards = DEPLOY / "grafana" / "provisioning" / "dashboards" / "forebay.yml"
    (provider,) = yaml.safe_load(dashboards.read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert f"{provider['options']['path']}/forebay.json" in mounted
    assert (
        SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
    )


def test_no_secret_is_in_the_compose_file_and_each_is_in_the_example() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    wanted = set(re.findall(r"\$\{(\w+):\?", text))
    assert set(VARIABLE.findall(text)) == wanted, "each must be insisted on"
    example = re.findall(r"^(\w+)=(.*)$", (DEPLOY / "compose.env.example").read_text(), re.M)
    assert dict(example) == dict.fromkeys(wanted, "")
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            secret = "PASSWORD" in name or name == "GUARD_TOKEN"
            assert not secret or VARIABLE.fullmatch(value), name
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().splitlines()


def test_every_service_says_when_it_is_well_and_from_which_version_it_is() -> None:
    assert instructions("HEALTHCHECK")  # the gateway's own
    for name, service in SERVICES.items():
        assert "healthcheck" in service or name in GATEWAYS, name
        assert service["restart"] == "unless-stopped", name
        assert "build" in service or re.search(r":v?\d", service["image"]), name
