"""Every flag of every verb: with a value that it takes, with one that it does not, and left out.

The tables name each flag there is; one that is added without a row here fails the first test. What
asks a gateway asks a real one; what would serve until it is stopped gets as far as serving.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from msgspec.structs import asdict
from typer.testing import CliRunner

from forebay.cli import exits
from forebay.cli.main import app
from forebay.sdk import AsyncClient
from forebay.settings import digest_of
from forebay.testing import RawClient

from .test_help import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from forebay.nodes.sim.sim_node import SimNode

    from .conftest import Desk

ANYTHING = None
"""Where every text is a value, only none at all is wrong."""
LONG = "x" * 300
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Flag(NamedTuple):
    """What a flag takes and does not take; `{names}` are filled in by the stage."""

    valid: str | None
    """None for a switch."""
    invalid: str | None
    instead: str | None = None
    """The command line to try it on, where the verb's own would not do."""
    status: int = 0
    """How the command ends with a valid value."""
    reaches: object = None
    """What the value has become where the verb uses it; for verbs that serve."""


def switch(instead: str | None = None, status: int = 0, reaches: object = None) -> Flag:
    return Flag(None, "maybe", instead, status, reaches)


JSON = {"--json": switch()}
GATEWAY = {
    "--url": Flag("{url}", "gopher://x"),
    "--key-env": Flag("A_KEY", "NO_SUCH_VARIABLE"),
    **JSON,
}
REQUESTS = {
    **GATEWAY,
    "--state": Flag("ended", "lost"),
    "--outcome": Flag("served", ANYTHING),
    "--user": Flag("alice", ANYTHING),
    "--model": Flag("m", ANYTHING),
    "--limit": Flag("3", "0"),
}
SET = {"--set": Flag("queue.max_size=7", "queue.max_sise=7")}
CONFIG = {"--config": Flag("{settings}", "no-such-file.toml")}

VERBS: dict[str, str] = {
    "": "",
    "serve": "serve",
    "status": "status",
    "init": "init new.toml",
    "doctor": "doctor",
    "logs": "logs {log}",
    "models": "models",
    "reload": "reload",
    "top": "top",
    "chat": "chat",
    "batch": "batch --help",
    "batch run": "batch run {lines}",
    "batch follow": "batch follow {ended}",
    "batch list": "batch list",
    "batch show": "batch show {batch}",
    "batch cancel": "batch cancel {batch}",
    "sessions": "sessions --help",
    "sessions list": "sessions list",
    "sessions show": "sessions show {session}",
    "sessions delete": "sessions delete {session}",
    "bench": "bench --limit 1 --rate 1000",
    "sim": "sim --from {trace} --nodes 2xgpu:2",
    "queue": "queue --help",
    "queue list": "queue list",
    "queue show": "queue show {request}",
    "queue cancel": "queue cancel {request}",
    "ps": "ps",
    "nodes": "nodes --help",
    "nodes list": "nodes list",
    "nodes add": "nodes add {spare}",
    "nodes remove": "nodes remove n1",
    "nodes drain": "nodes drain n1",
    "nodes resume": "nodes resume n1",
    "jobs": "jobs --help",
    "jobs submit": "jobs submit chat -",
    "jobs list": "jobs list",
    "jobs show": "jobs show {job}",
    "jobs cancel": "jobs cancel {waiting}",
    "jobs retry": "jobs retry {failed}",
    "jobs watch": "jobs watch {job}",
    "config": "config --help",
    "config init": "config init new.toml",
    "config check": "config check",
    "config show": "config show",
    "config schema": "config schema",
    "keys": "keys --help",
    "usage": "usage",
    "keys list": "keys list",
    "keys new": "keys new team-a --admin",
    "keys renew": "keys renew {made} --key-env A_KEY",
    "keys revoke": "keys revoke {made} --last --key-env A_KEY",
    "node": "node --backend http://127.0.0.1:9 --port 0",
    "sim-node": "sim-node",
    "demo": "demo",
    "completion": "completion --help",
    "completion bash": "completion bash",
    "completion zsh": "completion zsh",
    "completion fish": "completion fish",
}
"""How each verb is called to end well, with no flag but those that it cannot do without."""
NEEDED = {
    ("bench", "--limit"), ("bench", "--rate"), ("node", "--backend"), ("node", "--port"),
    ("sim", "--from"), ("sim", "--nodes"),
    ("keys new", "--admin"), ("keys revoke", "--last"), ("keys revoke", "--key-env"),
    ("keys renew", "--key-env"),
}  # fmt: skip
"""Flags of those lines: without a limit a run lasts 30 s, another may have the usual port, a trace
names no nodes, and the first key and the last must be an admin's."""

FLAGS: dict[str, dict[str, Flag]] = {
    "": {"--version": switch("")},
    "serve": {
        **CONFIG,
        **SET,
        "--host": Flag("127.0.0.2", " ", reaches=("server.host", "127.0.0.2")),
        "--port": Flag("7", "65536", reaches=("server.port", 7)),
        "--node": Flag("http://127.0.0.1:9", "ftp://x", reaches=("nodes", 1)),
        "--gguf": Flag("{settings}", "no-such-file.gguf"),
        "--prompt-deadline-ms": Flag("5", "-1", reaches=("sessions.prompt_deadline_ms", 5)),
        "--max-pending-prompts": Flag("7", "1.5", reaches=("sessions.max_pending_prompts", 7)),
        "--self-check": switch(),
        "--simulate": switch(),
    },
    "status": {**GATEWAY, "--all": switch()},
    "init": {**JSON, "--force": switch("init {settings}")},
    "doctor": {**CONFIG, "--set": Flag("queue.max_size=7", ANYTHING), **JSON},
    "logs": {
        "--follow": switch("logs -"),
        **JSON,
    },
    "models": GATEWAY,
    "reload": GATEWAY,
    "top": {**GATEWAY, "--once": switch(), "--ascii": switch()},
    "chat": {
        "--url": GATEWAY["--url"],
        "--key-env": GATEWAY["--key-env"],
        "--session": Flag("{session}", ANYTHING),
        "--model": Flag("m", ANYTHING),
        "--system": Flag("Be brief.", ANYTHING),
    },
    "batch": {},
    "batch list": {
        **GATEWAY,
        "--status": Flag("completed", "done"),
        "--model": Flag("m", ANYTHING),
        "--limit": Flag("1", "0"),
    },
    **dict.fromkeys(("batch show", "batch cancel"), GATEWAY),
    "sessions": {},
    "sessions list": {
        **GATEWAY,
        "--limit": Flag("1", "0"),
        "--before": Flag("1.5_ses_x", ANYTHING),
    },
    **dict.fromkeys(("sessions show", "sessions delete"), GATEWAY),
    "batch run": {
        **GATEWAY,
        "--out": Flag("there.jsonl", "no/such/folder.jsonl"),
        "--errors": Flag("there.jsonl", "no/such/folder.jsonl"),
        "--endpoint": Flag("/v1/chat/completions", "/v1/embeddings"),
        "--window": Flag("48h", "soon"),
    },
    "batch follow": {
        **GATEWAY,
        "--out": Flag("there.jsonl", "no/such/folder.jsonl"),
        "--errors": Flag("there.jsonl", "no/such/folder.jsonl"),
    },
    "bench": {
        **GATEWAY,
        "--model": Flag("m", ANYTHING),
        "--rate": Flag("1000", "0", "bench --limit 1"),
        "--duration": Flag("1s", "soon"),
        "--warmup": Flag("0s", "soon"),
        "--arrivals": Flag("constant", "often"),
        "--trace": Flag("{trace}", "no-such-file.csv", "bench"),
        "--speed": Flag("2", "0"),
        "--limit": Flag("1", "0", "bench --rate 1000"),
        "--stream": switch(),
        "--no-stream": switch(),
        "--max-tokens": Flag("3", "0"),
        "--prompt-tokens": Flag("3", "0"),
        "--ignore-eos": switch(),
        "--usage": switch(),
        "--no-usage": switch(),
        "--seed": Flag("3", "x"),
        "--salt": Flag("x", LONG),
        "--users": Flag("alice:1,bob:3", "a b"),
        "--priorities": Flag("high:1,low:2", "a b"),
        "--max-in-flight": Flag("3", "0"),
        "--timeout": Flag("9s", "0"),
        "--retries": Flag("1", "-1"),
        "--slo-ttft": Flag("1s", "soon"),
        "--slo-total": Flag("1s", "soon"),
        "--fail-if": Flag("errors>9", "errors"),
        "--html": Flag("there.html", "no/such/folder.html"),
        "--save": Flag("there.json", "no/such/folder.json"),
    },
    "sim": {
        **CONFIG,
        **SET,
        **JSON,
        "--from": Flag("{trace}", "no-such-file.csv", "sim --nodes 2xgpu:2"),
        "--nodes": Flag("3xgpu:8,big:1", "3xgpu", "sim --from {trace}"),
        "--scale": Flag("2", "0"),
        "--speed": Flag("2", "0"),
        "--load-seconds": Flag("5", "-1"),
        "--users": Flag("alice:1,bob:3", "a b"),
        "--seed": Flag("3", "x"),
        "--variant": Flag("scale=2", "scale"),
        "--fail-if": Flag("refused>9", "refused"),
    },
    "nodes list": GATEWAY,
    "queue list": {
        **REQUESTS,
        "--before": Flag("{request}", ANYTHING, "queue list --state waiting"),
    },
    "ps": {**REQUESTS, "--before": Flag("{request}", ANYTHING, "ps --state waiting")},
    **dict.fromkeys(("queue show", "queue cancel"), GATEWAY),
    "nodes add": {
        **GATEWAY,
        "--name": Flag("gpu7", "a b"),
        "--kind": Flag("llama-cpp", "abacus"),
        "--slots": Flag("2", "-1"),
    },
    **dict.fromkeys(("nodes remove", "nodes drain", "nodes resume"), GATEWAY),
    "jobs submit": {
        **GATEWAY,
        "--params": Flag('{{"model":"m","messages":[]}}', "{{", "jobs submit chat"),
        "--params-file": Flag("{params}", "no-such-file", "jobs submit chat"),
        "--prompt": Flag("Why?", ANYTHING, "jobs submit chat --model m"),
        "--model": Flag("m", ANYTHING),
        "--job-id": Flag("7", "seven"),
        "--priority": Flag("high", "urgent"),
        "--key": Flag("k", ANYTHING),
        "--wait": switch(),
    },
    "jobs list": {
        **GATEWAY,
        "--status": Flag("failed", "lost"),
        "--type": Flag("chat", ANYTHING),
        "--model": Flag("m", ANYTHING),
        "--before": Flag("5", "0"),
        "--limit": Flag("3", "0"),
    },
    **dict.fromkeys(("jobs show", "jobs cancel", "jobs retry", "jobs watch"), GATEWAY),
    "config init": {**JSON, "--force": switch("config init {settings}")},
    "config check": {
        **CONFIG, **SET, **JSON, "--strict": switch(), "--probe": switch(),
    },
    "config show": {**CONFIG, **SET, **JSON},
    "usage": {
        **GATEWAY,
        "--by": Flag("key", "weather"),
        "--from": Flag("2026-01-31", ANYTHING),
        "--to": Flag("2026-01-31T12:00Z", ANYTHING),
        "--hourly": switch(),
        "--csv": switch(),
    },
    "keys list": GATEWAY,
    "keys new": {
        **GATEWAY,
        "--admin": switch("keys new team-b"),
        "--user": Flag("ann", "a\tb"),
        "--set": Flag("max_running=4", "max_runing=4"),
        "--offline": switch("keys new team-b"),
    },
    "keys renew": {
        **GATEWAY,
        "--key-env": Flag("A_KEY", "NO_SUCH_VARIABLE", "keys renew {made}"),
    },
    "keys revoke": {
        **GATEWAY,
        "--key-env": Flag("A_KEY", "NO_SUCH_VARIABLE", "keys revoke {made} --last"),
        "--last": switch("keys revoke {made} --key-env A_KEY"),
    },
    "node": {
        "--backend": Flag("http://127.0.0.1:9", "ftp://x", "node --port 0",
                          reaches=("backend", "http://127.0.0.1:9")),
        "--gateway": Flag("http://127.0.0.1:8", "ftp://x",
                          "node --backend http://127.0.0.1:9 --token-env A_KEY",
                          reaches=("gateways", ("http://127.0.0.1:8",))),
        "--advertise": Flag("http://127.0.0.1:8", "ftp://x",
                            reaches=("advertise", "http://127.0.0.1:8")),
        "--name": Flag("gpu7", "a b", reaches=("name", "gpu7")),
        "--token-env": Flag("A_KEY", "NO_SUCH_VARIABLE", reaches=("token", "sk-a-0123456789")),
        "--slots": Flag("2", "-1", reaches=("slots", 2)),
        "--model-slots": Flag("bge-*=2", "bge-*", reaches=("model_slots", {"bge-*": 2})),
        "--host": Flag("127.0.0.2", ANYTHING, reaches=("host", "127.0.0.2")),
        "--port": Flag("7", "65536", "node --backend http://127.0.0.1:9", reaches=("port", 7)),
        "--api-key-env": Flag("A_KEY", "NO_SUCH_VARIABLE", reaches=("api_key", "sk-a-0123456789")),
        "--run-seconds": Flag("5", "-1", reaches=("run_s", 5.0)),
        "--shutdown-seconds": Flag("5", "-1", reaches=("shutdown_s", 5.0)),
    },
    "sim-node": {
        "--port": Flag("7", "65536", reaches=("port", 7)),
        "--host": Flag("127.0.0.2", ANYTHING, reaches=("host", "127.0.0.2")),
        "--model": Flag("big@4", ANYTHING, reaches=("models", ("big@4",))),
        "--slots": Flag("2", "0", reaches=("slots", 2)),
        "--ttft-ms": Flag("5", "-1", reaches=("ttft_s", 0.005)),
        "--tokens-per-second": Flag("5", "-1", reaches=("tokens_per_second", 5.0)),
        "--load-seconds": Flag("5", "-1", reaches=("load_s", 5.0)),
        "--start-seconds": Flag("5", "-1", reaches=("start_s", 5.0)),
        "--vram-gb": Flag("5", "-1", reaches=("vram_gb", 5.0)),
        "--fail-rate": Flag("0.5", "2", reaches=("fail_rate", 0.5)),
        "--seed": Flag("3", "x", reaches=("seed", 3)),
    },
    "demo": {
        "--port": Flag("7", "65536", reaches=("port", 7)),
        "--once": switch(reaches=("once", True)),
        "--no-once": switch(reaches=("once", False)),
        "--seed": Flag("3", "x"),
        "--pace": Flag("0.5", "0", reaches=("pace", 0.5)),
    },
}  # fmt: skip
ONCE = {
    "init", "config init", "batch run", "batch follow", "batch cancel", "sessions delete",
    "nodes add", "nodes remove", "queue cancel", "jobs cancel", "jobs retry", "keys new",
    "keys renew", "keys revoke",
}  # fmt: skip
"""Verbs whose line does something else the second time: each of their flags has its own stage."""
TRIED = [
    (verb, names)
    for verb, flags in FLAGS.items()
    for names in ([(name,) for name in flags] if verb in ONCE else [tuple(flags)])
    if names
]


def flags_of(command: Any) -> set[str]:
    names = {
        name
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    }
    return names - {"--help"}


def test_every_flag_of_every_verb_is_in_the_tables() -> None:
    found = {" ".join(words): flags_of(command) for words, command in COMMANDS}
    assert set(VERBS) == set(found)
    assert {verb: set(FLAGS.get(verb, {})) for verb in found} == found


class Stage:
    """A gateway, what it has, and the files that commands are given."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self._desk = desk
        self.folder = folder
        self.names: dict[str, Any] = {}
        self.reached: list[Any] = []
        """What verbs would serve with."""

    async def build(self) -> None:
        """Write the files: the settings say where the gateway is, so that no flag has to."""
        port = self._desk.gateway.port
        (self.folder / "forebay.toml").write_text(f"[server]\nport = {port}\n")
        (self.folder / "other.toml").write_text(f"[server]\nport = {port}\n")
        line = {
            "custom_id": "1",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": BODY,
        }
        (self.folder / "lines.jsonl").write_text(json.dumps(line) + "\n")
        (self.folder / "trace.csv").write_text("at_s,prompt_tokens,output_tokens\n0,3,3\n")
        record = {"time": "2026-01-02T03:04:05+00:00", "route": "/v1/models", "outcome": "served"}
        (self.folder / "access.log").write_text(json.dumps(record) + "\n")
        (self.folder / "params.json").write_text(json.dumps(BODY))
        self.names |= {
            "url": f"http://127.0.0.1:{port}",
            "settings": "other.toml",
            "lines": "lines.jsonl",
            "trace": "trace.csv",
            "log": "access.log",
            "params": "params.json",
        }

    async def fill(self, line: str) -> str:
        """Return a command line with its names filled in, each made where it is asked for."""
        for name in re.findall(r"(?<!\{)\{(\w+)\}", line):
            if name not in self.names:
                self.names[name] = await getattr(self, f"_{name}")()
        return line.format(**self.names)

    async def run(self, words: list[str]) -> Result:
        """Run a command as somebody types it here."""
        given = CliRunner(env={"A_KEY": "sk-a-0123456789", "COLUMNS": "200"})
        typed = json.dumps(BODY) if words[:1] == ["jobs"] else "hello\n"
        return await asyncio.to_thread(lambda: given.invoke(app, words, input=typed))

    async def _job(self) -> int:
        done = await self.run(["jobs", "submit", "chat", "-", "--wait", "--json"])
        assert done.exit_code == 0, done.output
        return int(json.loads(done.stdout)["id"])

    async def _failed(self) -> int:
        params = '{"model": "m", "messages": []}'  # which the node refuses
        done = await self.run(["jobs", "submit", "chat", "--params", params, "--wait", "--json"])
        assert done.exit_code == exits.FAILED, done.output
        return int(json.loads(done.stdout)["id"])

    async def _waiting(self) -> int:
        await self.run(["nodes", "drain", "n1"])
        done = await self.run(["jobs", "submit", "chat", "-", "--json"])
        return int(json.loads(done.stdout)["id"])

    async def _request(self) -> str:
        await self.run(["nodes", "drain", "n1"])
        await self._desk.ask("a-request", {"model": "m", "messages": []})
        return "a-request"

    async def _ended(self) -> str:
        done = await self.run(["batch", "lines.jsonl", "--json"])
        assert done.exit_code == 0, done.output
        return str(json.loads(done.stdout)["batch_id"])

    async def _batch(self) -> str:
        await self.run(["nodes", "drain", "n1"])
        async with AsyncClient(self.names["url"]) as client:
            return (await client.start_batch([BODY])).id

    async def _session(self) -> str:
        done = await self.run(["chat"])
        found = re.search(r"in session (\S+)\.", done.stderr)
        assert found is not None, done.output
        return found[1]

    async def _made(self) -> str:
        body = {"name": "made", "admin": True, "key_sha256": digest_of("sk-a-0123456789")}
        async with await RawClient.connect("127.0.0.1", self._desk.gateway.port) as client:
            await client.post("/admin/keys", body)
            assert (await client.reply()).status == 201
        return "made"

    async def _spare(self) -> str:
        return (await self._desk.node()).url


@pytest.fixture
async def stage(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Start a gateway in front of a simulated node, and stop short of serving anything else."""
    node = await desk.simulated(models=("m",), slots=4, ttft_s=0.0, tokens_per_second=0.0)
    await desk.start(node, jobs={"database": f"sqlite:///{tmp_path}/jobs.db"})
    made = Stage(desk, tmp_path)
    monkeypatch.chdir(tmp_path)
    await made.build()

    def note(served: object, *_: object, **__: object) -> None:
        made.reached.append(served)

    async def note_node(node: SimNode) -> None:
        host, port = node._address
        made.reached.append({**asdict(node.engine.options), "host": host, "port": port})

    async def note_demo(port: int, _: object, **named: object) -> None:
        made.reached.append({"port": port, **named})

    monkeypatch.setattr("forebay.nodes.discovery.LOOPBACK_URLS", ())
    monkeypatch.setattr("forebay.cli.serve.server.run_gateway", note)
    monkeypatch.setattr("forebay.cli.serve.guard.run_guard", note)
    monkeypatch.setattr("forebay.cli.serve.sim_node._serve", note_node)
    monkeypatch.setattr("forebay.cli.serve.demo._demo", note_demo)
    monkeypatch.setattr("forebay.cli.serve.demo._until_told", lambda play: play)
    monkeypatch.setattr(logging.root.manager, "disable", logging.NOTSET)  # `demo` is quiet
    return made


def found_in(reached: Any, path: str) -> Any:
    """Return a value by its dotted name; of a list, how much is in it."""
    for name in path.split("."):
        reached = reached[name] if isinstance(reached, dict) else getattr(reached, name)
    return len(reached) if path == "nodes" else reached


async def words_for(stage: Stage, verb: str, name: str) -> list[str]:
    """Return the command line that a flag is tried on, without it."""
    flag = FLAGS[verb][name]
    line = VERBS[verb] if flag.instead is None else flag.instead
    return shlex.split(await stage.fill(line))


def with_flag(verb: str, words: list[str], given: list[str]) -> list[str]:
    """Put a flag behind the verb: what follows a `--` is no flag."""
    at = len(verb.split())
    return [*words[:at], *given, *words[at:]]


@pytest.mark.parametrize("verb", list(VERBS))
async def test_a_verb_does_its_work_without_its_flags(stage: Stage, verb: str) -> None:
    words = shlex.split(await stage.fill(VERBS[verb]))
    done = await stage.run(words)
    assert done.exit_code == (exits.USAGE if not verb else 0), done.output
    given = {(verb, word) for word in words if word.startswith("--")}
    assert given - {(verb, "--help"), (verb, "--")} <= NEEDED


@pytest.mark.parametrize(("verb", "names"), TRIED, ids=[" ".join((v, *n[:1])) for v, n in TRIED])
async def test_flags_take_values_that_they_should(
    stage: Stage, verb: str, names: tuple[str, ...]
) -> None:
    for name in names:
        flag = FLAGS[verb][name]
        words = await words_for(stage, verb, name)
        stage.reached.clear()
        given = [name] if flag.valid is None else [name, await stage.fill(flag.valid)]
        done = await stage.run(with_flag(verb, words, given))
        assert done.exit_code == flag.status, (name, done.output)
        if isinstance(flag.reaches, tuple):
            path, value = flag.reaches
            assert found_in(stage.reached[-1], path) == value, name


@pytest.mark.parametrize("verb", [verb for verb in FLAGS if FLAGS[verb]])
async def test_flags_refuse_values_that_they_should_not_take(stage: Stage, verb: str) -> None:
    for name, flag in FLAGS[verb].items():
        words = await words_for(stage, verb, name)
        stage.reached.clear()
        wrong = []
        if flag.valid is not None:
            wrong.append([*words, name])  # and nothing behind it
        if flag.invalid is not None:
            value = await stage.fill(flag.invalid)
            wrong.append(with_flag(verb, words, [f"{name}={value}"]))
        for line in wrong:
            done = await stage.run(line)
            assert done.exit_code == exits.USAGE, (name, done.output)
            assert name in done.stderr, done.stderr
            assert stage.reached == []


@pytest.mark.parametrize("given", ["0", "5", "1000000", "inf", "infinity"])
async def test_every_cap_that_is_a_whole_number_or_none_is_taken(stage: Stage, given: str) -> None:
    assert (await stage.run(["serve", "--max-pending-prompts", given])).exit_code == 0
    wanted = 0 if given.startswith("inf") else int(given)
    assert found_in(stage.reached[-1], "sessions.max_pending_prompts") == wanted


@pytest.mark.parametrize("given", ["-1", "1.5", "nan", "five", "", "true", "[5]"])
async def test_no_other_cap_is_taken(stage: Stage, given: str) -> None:
    done = await stage.run(["serve", f"--max-pending-prompts={given}"])
    assert done.exit_code == exits.USAGE
    assert "--max-pending-prompts" in done.stderr
    assert stage.reached == []
