"""Someone who reads a page and types what it says, in a folder of their own."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from harness.preloaded import ForkedCommand

if TYPE_CHECKING:
    from .shell_blocks import Line

LIMIT_S = 60.0  # only turns a hang into a failure
PATH = {"PATH": "/usr/bin:/bin"}
SHOWN_ADDRESS = "127.0.0.1:7800"
SHOWN_BATCH = "batch_0123456789abcdef01234567"
BATCH = re.compile(r"\bbatch_[0-9a-f]{24}\b")
TYPE_COMMANDS = Path(__file__).with_name("type_commands.py")
"""One program for all commands of a page, forked: starting one takes longer than most of them."""


class Reader:
    """Types the commands of one page, with what the answers before have told filled in."""

    def __init__(self, port: int, node: str, folder: Path) -> None:
        self._address = f"127.0.0.1:{port}"
        self._folder = folder
        self._environment = {"FOREBAY_SERVER__PORT": str(port), "HOME": str(folder)}
        self._known = {
            SHOWN_ADDRESS: self._address,
            "http://10.0.0.8:8000": node,
            "/etc/forebay": str(folder / "etc"),
        }
        (folder / "etc").mkdir()

    def set_variables(self, line: Line) -> None:
        """Remember what a line assigns."""
        for name, value in line.variables:
            self._known[f"${name}"] = self.filled(value)

    async def curl(self, line: Line) -> tuple[int, Any]:
        """Run a curl line; return the status and the answer, of a stream the status only."""
        words = [self.filled(word) for word in line.words]
        if "-N" in words:
            return await self._status_of_stream(words), None
        more = ["--silent", "--noproxy", "*", "--write-out", "\n%{http_code}"]
        output = await self._output(*words, *more)
        body, _, status = output.rpartition("\n")
        try:
            answer = json.loads(body)
        except ValueError:
            answer = body
        self._learn(answer)
        return int(status), answer

    async def forebay(self, lines: list[list[str]]) -> tuple[list[int], str]:
        """Run commands of ours one after the other; return their exit statuses and their words."""
        filled = [[self.filled(word) for word in words] for words in lines]
        with TemporaryFile() as file:
            program = ForkedCommand(
                [json.dumps(filled)],
                [file.fileno()] * 2,
                folder=self._folder,
                variables=self._environment | PATH,
                script=TYPE_COMMANDS,
            )
            try:
                await asyncio.to_thread(program.ends)
            finally:
                program.kill()
            file.seek(0)
            output = file.read().decode()
        said, _, codes = output.strip().rpartition("\n")
        if batch := BATCH.search(said):
            self._known[SHOWN_BATCH] = batch[0]
        return json.loads(codes), said

    async def script(self, text: str, command: str) -> str:
        """Run a small program as it is, but for its pauses; return what it said."""
        text = text.replace(".venv/bin/forebay", command).replace("sleep 1; ", "")
        return await self._output("bash", "-c", self.filled(text))

    def filled(self, text: str) -> str:
        """Return a text with this gateway's address, and with what has been learnt."""
        for shown in sorted(self._known, key=len, reverse=True):  # OUTPUT_FILE_ID before FILE_ID
            text = text.replace(shown, self._known[shown])
        return text

    def _learn(self, answer: Any) -> None:
        """Remember what the page's placeholders stand for."""
        if not isinstance(answer, dict):
            return
        if "sessionId" in answer:
            self._known["ses_..."] = answer["sessionId"]
        if answer.get("object") == "batch":
            self._known["BATCH_ID"] = answer["id"]
            self._known["OUTPUT_FILE_ID"] = answer.get("output_file_id") or ""
        if answer.get("object") == "file":
            self._known["FILE_ID"] = answer["id"]

    async def _output(self, *words: str) -> str:
        child = await asyncio.create_subprocess_exec(
            *words, cwd=self._folder, env=self._environment | PATH,
            stdin=DEVNULL, stdout=PIPE, stderr=STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(LIMIT_S):
            said, _ = await child.communicate()
        return said.decode()

    async def _status_of_stream(self, words: list[str]) -> int:
        """Listen to a stream until it has begun."""
        child = await asyncio.create_subprocess_exec(
            *words, "--silent", "--include", "--noproxy", "*", stdout=PIPE
        )
        assert child.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            first = await child.stdout.readline()
        if child.returncode is None:
            child.kill()
        await child.communicate()
        return int(first.split()[1])
