"""The stage: compiled tools, a node on one core, the gateways under test on the other."""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.gateway import payload
from bench.gateway.gateways import Gateway, Place
from bench.gateway.programs import (
    GATEWAY_CORE,
    LOAD_CORE,
    Program,
    WillNotStart,
    ask,
    free_port,
    wait_for_answer,
)
from bench.gateway.venvs import installed

HERE = Path(__file__).parent


@dataclass
class Bench:
    """What every measure needs: tools, request files, how long, and who cannot take part."""

    folder: Path
    venvs: Path
    quick: bool
    gateways: Sequence[Gateway]
    refused: dict[str, str] = field(default_factory=dict)
    """Gateways that did not install or start, or ended under load, with the reason."""
    commands: dict[str, str] = field(default_factory=dict)
    """How each was started, for the raw results."""

    @property
    def load(self) -> Path:
        return self.folder / "load"

    def seconds(self, full: float, quick: float) -> float:
        return quick if self.quick else full

    def request(self, name: str, content: bytes) -> Path:
        """Write a request into a file."""
        path = self.folder / name
        path.write_bytes(content)
        return path


@dataclass(frozen=True)
class Setup:
    """What is configured otherwise than usual."""

    kind: str = "openai"
    """What server the node is, to a gateway that tells them apart."""
    keys: bool = True
    more_node_ports: tuple[int, ...] = ()


AS_USUAL = Setup()


@dataclass(frozen=True)
class Target:
    """Something to send load to; `program` is None for the node itself."""

    name: str
    port: int
    program: Program | None = None
    probe_path: str = "/health"


def compile_tools(folder: Path) -> None:
    """Compile the load and the node into `folder`."""
    for name in ("load", "stream_node"):
        command = ["gcc", "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")]
        subprocess.run(command, check=True)
    (folder / "answer.json").write_text(payload.ANSWER)
    (folder / "models.json").write_text(payload.MODELS)
    payload.write_answers(folder / "answers")


@contextmanager
def unary_node(bench: Bench) -> Iterator[Target]:
    """Run a HAProxy that answers every chat call by itself, from memory."""
    port = free_port()
    answer, models = bench.folder / "answer.json", bench.folder / "models.json"
    found = "http-request return status 200 content-type application/json"
    text = f"""global
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout http-keep-alive 60s
frontend node
  bind 127.0.0.1:{port}
  option http-buffer-request
  {found} file {answer} if METH_POST
  {found} file {models} if {{ path /v1/models }}
  {found} string {{}} if {{ path /health }}
  http-request return status 404 content-type application/json string {{}}
"""
    config = bench.folder / "unary_node.cfg"
    config.write_text(text)
    yield from _node(bench, port, ["haproxy", "-db", "-f", str(config)])


@contextmanager
def stream_node(
    bench: Bench,
    *,
    chunks: int = 1,
    per_second: int = 50,
    phases: int = 500,
    hold_s: float = 0.0,
) -> Iterator[Target]:
    """Run the compiled node: streams at a steady beat, plain answers after `hold_s`.

    Its streams take turns in `phases` steps; with one, they all write at the same time.
    """
    port = free_port()
    numbers = (port, chunks, 1_000_000 // per_second, phases, int(hold_s * 1e6))
    command = [str(bench.folder / "stream_node"), *map(str, numbers)]
    command.append(str(bench.folder / "answers"))
    yield from _node(bench, port, command)


def _node(bench: Bench, port: int, command: list[str]) -> Iterator[Target]:
    program = Program(LOAD_CORE, command, bench.folder / f"node-{port}.log")
    try:
        wait_for_answer(program, port, payload.get("/v1/models"), 5.0)
        yield Target("direct", port, program=None)
    finally:
        program.stop()


def node_stats(node: Target) -> dict[str, float]:
    """Return what the compiled node has counted since it was last asked."""
    stats: dict[str, float] = json.loads(ask(node.port, payload.get("/stats"))[1])
    return stats


@contextmanager
def running(
    bench: Bench,
    gateways: Sequence[Gateway],
    node: Target,
    slots: int,
    setup: Setup = AS_USUAL,
) -> Iterator[list[Target]]:
    """Start what starts of `gateways` before `node`; note the others in `bench.refused`."""
    with ExitStack() as stack:
        targets = []
        for gateway in gateways:
            if gateway.name in bench.refused:
                continue
            try:
                target = _start(bench, gateway, node, slots, setup, stack)
            except WillNotStart as error:
                bench.refused[gateway.name] = f"will not start: {error}"
            else:
                targets.append(target)
        yield targets
        for target in targets:
            if target.program and target.program.ended() is not None:
                bench.refused[target.name] = f"ended under load: {target.program.last_words()}"


def _start(
    bench: Bench, gateway: Gateway, node: Target, slots: int, setup: Setup, stack: ExitStack
) -> Target:
    binaries = installed(bench.venvs, gateway.package) if gateway.package else Path()
    folder = Path(tempfile.mkdtemp(prefix=f"{gateway.name}-", dir=bench.folder))
    port = free_port()
    ports = (node.port, *setup.more_node_ports)
    place = Place(folder, binaries, port, free_port(), ports, slots, setup.kind, setup.keys)
    command = gateway.command(place)
    words = [Path(word).name if word.startswith("/") else word for word in command]
    bench.commands[gateway.name] = " ".join(words)
    try:
        variables = {**gateway.variables, "XDG_STATE_HOME": str(folder)}  # not into one's own
        program = Program(GATEWAY_CORE, command, folder / "output.log", variables)
    except OSError as error:
        raise WillNotStart(str(error)) from error
    stack.callback(program.stop)
    target = Target(gateway.name, port, program, gateway.probe_path)
    request = payload.post(payload.chat_body())
    wait_for_answer(program, port, request, gateway.start_s_max)
    return target
