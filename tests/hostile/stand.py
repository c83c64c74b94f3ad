"""The real commands in subprocesses: nodes, and the gateway or the guard in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.preloaded import COMMAND, LINE_BYTES_MAX, HeardCommand

from .answers import take_answer
from .odd_plays import BODY_BYTES_MAX
from .wire import Wire

if TYPE_CHECKING:
    from .answers import Answer

ROOT = Path(__file__).parent.parent.parent
LISTENING = re.compile(r" on http://127\.0\.0\.1:(\d+)")
GOOD_NODES, BAD_NODES = 3, 8
GOOD_SLOTS, BAD_SLOTS = 4, 2
PLACE = re.compile(r'.*/forebay/(.*)", line (\d+), in .*')
SAMPLE = re.compile(r'(?m)^forebay_([a-z_]+)(?:\{[a-z]+="([^",]*)"\})? (\S+)$')
"""A metric with one label at most; there is no need for the others."""
START_S = 30.0
LOOK_S = 10.0
"""How long the gateway may take to show its metrics or its health."""

SETTINGS = f"""
[server]
body_max_bytes = {BODY_BYTES_MAX}
header_seconds = 1.0
body_seconds = 1.0
idle_seconds = 5.0
write_seconds = 1.0
connections_max = 400
access_log = false
shutdown_seconds = 5

[queue]
max_size = 30
max_bytes = 8000000
max_wait_seconds = 1.0
keepalive_seconds = 0.2
first_byte_seconds = 0.5
run_seconds = 2.0
chunk_gap_seconds = 1.0
answer_max_bytes = 2000000
"""
"""Small limits, so that they are reached."""


class Program:
    """One command that runs, and the last of what it has said."""

    def __init__(self, child: Process | HeardCommand) -> None:
        self._child = child
        self.said: list[str] = []
        self.complaints: Counter[str] = Counter()
        """Tracebacks in its log, by what they end with."""
        self.port = 0
        self._started = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read(stream))
            for stream in (child.stdout, child.stderr)
            if stream is not None
        ]

    @classmethod
    async def start(cls, *words: str, folder: Path, compiled: Path | None = None) -> Program:
        """Start `forebay` with these words, or another build of it."""
        env = {"PATH": "/usr/bin:/bin"}
        child: Process | HeardCommand
        if compiled is None:
            child = await HeardCommand.start(*words, cwd=folder, env=env)
        else:
            env["PYTHONPATH"] = str(compiled)
            child = await asyncio.create_subprocess_exec(
                COMMAND, *words, stdout=PIPE, stderr=PIPE, cwd=folder, env=env, limit=LINE_BYTES_MAX
            )
        program = cls(child)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    await program._started.wait()
        finally:
            if not program.port:
                await program.stop()
        assert program.port, "it did not start: " + "".join(program.said)
        return program

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := (await stream.readline()).decode(errors="replace"):
            self.said.append(line)
            del self.said[:-400]
            if "Traceback" in line or "never retrieved" in line:
                self.complaints[_gist(line)] += 1
            matched = LISTENING.search(line)
            if matched is not None and not self.port:
                self.port = int(matched[1])
                self._started.set()
        self._started.set()

    @property
    def ended(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.returncode

    async def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(15.0):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        assert self._child.returncode is not None
        return self._child.returncode


def _gist(line: str) -> str:
    """Return what a line of the log complains of, without what differs each time."""
    try:
        told = json.loads(line)
    except ValueError:
        return line.strip()[:200]
    frames = [at.strip() for at in told.get("traceback", "").strip().split("\n")]
    ours = [at for at in frames if "forebay" in at]
    places = [PLACE.sub(r"\1:\2", at) for at in ours[-3:]]
    text = f"{told.get('message', '')[:60]}: {frames[-1][:120]} ({' < '.join(reversed(places))})"
    return re.sub(r"0x[0-9a-f]+|\n.*", "", text)


class Nodes:
    """The process of all nodes."""

    def __init__(self, child: Process, ports: list[int]) -> None:
        self._child = child
        self.good, self.bad = ports[:GOOD_NODES], ports[GOOD_NODES:]

    @classmethod
    async def start(cls) -> Nodes:
        command = (sys.executable, "-m", "tests.hostile.node", str(GOOD_NODES), str(BAD_NODES))
        child = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        assert child.stdout is not None
        async with asyncio.timeout(START_S):
            ports = json.loads(await child.stdout.readline())
        return cls(child, ports)

    async def report(self) -> dict[str, object]:
        told: dict[str, object] = json.loads((await fetch(self.good[0], "/report")).body)
        return told

    async def stop(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            async with asyncio.timeout(5.0):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()


async def fetch(port: int, path: str, method: str = "GET", body: bytes = b"") -> Answer:
    """Ask for one page on a connection of its own."""
    async with asyncio.timeout(LOOK_S):
        wire = await Wire.connect(port)
        try:
            head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
            wire.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            while (answer := take_answer(wire.received, ended=wire.ended)) is None:
                if wire.ended:
                    raise ConnectionError(f"no answer from {path}")
                await wire.more()
            return answer
        finally:
            wire.close()


def node_json(name: str, port: int, *, slots: int) -> dict[str, object]:
    url = f"http://127.0.0.1:{port}"
    return {"name": name, "url": url, "kind": "openai-compatible", "slots": slots}


class Stand:
    """A gateway under test, with its nodes."""

    def __init__(self, nodes: Nodes, program: Program, *, is_guard: bool) -> None:
        self.nodes = nodes
        self.program = program
        self.is_guard = is_guard

    @property
    def port(self) -> int:
        return self.program.port

    @classmethod
    async def gateway(
        cls, folder: Path, compiled: Path | None = None, *, self_check: bool = True
    ) -> Stand:
        nodes = await Nodes.start()
        listed = [node_json(f"good{i}", p, slots=GOOD_SLOTS) for i, p in enumerate(nodes.good)]
        listed += [node_json(f"bad{i}", p, slots=BAD_SLOTS) for i, p in enumerate(nodes.bad)]
        tables = "".join(
            "\n[[nodes]]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in one.items())
            for one in listed
        )
        settings = folder / "hostile.toml"
        settings.write_text(SETTINGS + tables)
        try:
            program = await Program.start(
                "serve", "--config", str(settings), "--port", "0",
                *(("--self-check",) if self_check else ()),
                "--set", f"jobs.database=sqlite:///{folder}/jobs.db",
                folder=folder, compiled=compiled,
            )  # fmt: skip
        except BaseException:
            await nodes.stop()
            raise
        return cls(nodes, program, is_guard=False)

    @classmethod
    async def guard(cls, folder: Path) -> Stand:
        nodes = await Nodes.start()
        try:
            program = await Program.start(
                "node", "--backend", f"http://127.0.0.1:{nodes.bad[0]}", "--port", "0",
                "--slots", "32", "--run-seconds", "2", folder=folder,
            )  # fmt: skip
        except BaseException:
            await nodes.stop()
            raise
        return cls(nodes, program, is_guard=True)

    async def stop(self) -> int:
        try:
            return await self.program.stop()
        finally:
            await self.nodes.stop()

    # -- looking in

    async def health(self) -> int:
        return (await fetch(self.port, "/guard/status" if self.is_guard else "/health")).status

    async def figures(self) -> dict[str, float]:
        """Return what is held now, by metric and label."""
        if self.is_guard:
            told = json.loads((await fetch(self.port, "/guard/status")).body)
            return {"node_in_flight": float(told["in_flight"])}
        text = (await fetch(self.port, "/metrics")).body.decode()
        if "forebay_leases" not in text:
            raise ConnectionError(f"no metrics: {text[:200]}")
        return {
            " ".join(filter(None, (name, label))): float(value)
            for name, label, value in SAMPLE.findall(text)
        }

    async def renew_bad_node(self, number: int) -> None:
        """Take a bad node out and in again: what was held against it is forgotten."""
        name = f"bad{number}"
        node = node_json(name, self.nodes.bad[number], slots=BAD_SLOTS)
        await fetch(self.port, f"/admin/nodes/{name}", "DELETE")
        await fetch(self.port, "/admin/nodes", "POST", json.dumps(node).encode())
