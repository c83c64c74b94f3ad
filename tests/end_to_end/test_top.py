"""`forebay top` in a real terminal: tmux, 80 by 24, in front of a gateway of its own process."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from forebay.nodes.sim.engine import SimOptions
from harness.polling import pause
from harness.preloaded import COMMAND

from .conftest import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from .conftest import Shell

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
LOOK_S = 0.1  # a look at the screen is a program of its own
RARER = ("xterm", "screen")
SLOW = SimOptions(models=("m",), slots=2, ttft_s=0.0, tokens_per_second=1.0)


class Terminal:
    """A tmux server of this test's own, with one window."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "tmux")
        self._folder = folder

    async def tmux(self, *words: str) -> str:
        """Say something to tmux and return its answer; a server it starts has no pipe of ours."""
        out = self._folder / "answer"
        with out.open("wb") as file:
            child = await asyncio.create_subprocess_exec(
                "tmux", "-S", self._socket, "-f", "/dev/null", *words,
                stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
            async with asyncio.timeout(LIMIT_S):
                await child.wait()
        return out.read_text()

    async def run(self, *words: str, **environment: str) -> None:
        """Run `forebay` with these words; what it leaves behind is noted."""
        given = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        command = f"env {given} {COMMAND} {shlex.join(words)}"
        before, after = self._folder / "before", self._folder / "after"
        script = f"stty -g >{before}; {command}; s=$?; stty -g >{after}; echo left with $s; read x"
        await self.tmux("new-session", "-d", "-x", "80", "-y", "24", script)

    async def shows(self, what: str) -> str:
        """Wait until the screen shows something, and return the screen."""
        screen = ""
        try:
            async with asyncio.timeout(LIMIT_S):
                while what not in (screen := await self.tmux("capture-pane", "-p")):
                    await pause(LOOK_S)
        except TimeoutError:
            raise AssertionError(f"{what!r} is not shown:\n{screen}") from None
        return screen

    async def press(self, *keys: str) -> None:
        await self.tmux("send-keys", *keys)

    async def check_clean(self) -> None:
        """Check that the terminal is as it was before the command."""
        before, after = ((self._folder / name).read_text() for name in ("before", "after"))
        assert before == after
        assert await self.modes() == "0 0 1"

    async def modes(self) -> str:
        """Return whether the other screen, the mouse and the cursor are on."""
        names = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}"
        return (await self.tmux("display-message", "-p", names)).strip()


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    await terminal.tmux("kill-server")  # this one only: the socket is the test's own


UTF8 = {"LC_ALL": "C.UTF-8"}


async def test_it_shows_the_gateway_drains_a_node_and_leaves_the_terminal_clean(
    shell: Shell, terminal: Terminal
) -> None:
    _, port = await shell.serve("--node", await shell.sim_node(SLOW))
    for _ in range(5):
        await shell.ask(port, model="m", max_tokens=1000, ignore_eos=True)
    await shell.until_waiting(port, 3)
    await terminal.run("top", "--url", f"http://127.0.0.1:{port}", **UTF8)
    screen = await terminal.shows("3 of 100")
    assert "▰▰     2/2" in screen
    screen = await terminal.shows("q quit")
    assert "q quit" in screen.splitlines()[23]
    assert await terminal.modes() == "1 1 0"
    await terminal.press("d")
    await terminal.shows("2 requests may finish.")
    await terminal.press("y")
    await terminal.shows("◒ draining")
    nodes = (await shell.get(port, "/admin/nodes"))["data"]
    assert [node["state"] for node in nodes] == ["draining"]
    await terminal.press("/", "x", "y", "z", "Enter")
    await terminal.shows("no node matches /xyz")
    await terminal.press("q")
    await terminal.shows("left with 0")
    await terminal.check_clean()


async def test_ctrl_z_gives_the_terminal_back_and_fg_draws_everything_anew(
    shell: Shell, terminal: Terminal
) -> None:
    _, port = await shell.serve("--node", await shell.sim_node(SLOW))
    await terminal.tmux("new-session", "-d", "-x", "80", "-y", "24", "env PS1=ready: sh -i")
    await terminal.shows("ready:")
    await terminal.press(f"LC_ALL=C.UTF-8 {COMMAND} top --url http://127.0.0.1:{port}", "Enter")
    await terminal.shows("● online")
    await terminal.press("C-z")
    await terminal.shows("ready:")
    assert await terminal.modes() == "0 0 1"
    await terminal.press("fg", "Enter")
    screen = await terminal.shows("● online")
    assert "Queue by priority" in screen
    await terminal.press("q")
    await terminal.shows("ready:")


@pytest.mark.parametrize(
    "term",
    ["tmux-256color", "vt100", *(pytest.param(one, marks=pytest.mark.long) for one in RARER)],
)
async def test_it_draws_on_any_common_terminal_and_ctrl_c_leaves(
    shell: Shell, terminal: Terminal, term: str
) -> None:
    _, port = await shell.serve("--node", await shell.sim_node(SLOW))
    url = f"http://127.0.0.1:{port}"
    await terminal.run("top", "--url", url, TERM=term, NO_COLOR="1", **UTF8)
    await terminal.shows("● online")
    await terminal.press("C-c")
    await terminal.shows("left with 130")
    await terminal.check_clean()


async def test_without_utf_8_it_draws_with_ascii(shell: Shell, terminal: Terminal) -> None:
    _, port = await shell.serve("--node", await shell.sim_node(SLOW))
    await terminal.run("top", "--url", f"http://127.0.0.1:{port}", LC_ALL="C")
    screen = await terminal.shows("* online")
    assert screen.isascii()
    await terminal.press("q")
    await terminal.shows("left with 0")


async def test_a_refusal_is_printed_where_the_screen_was(terminal: Terminal) -> None:
    await terminal.run("top", "--url", "http://127.0.0.1:9", **UTF8)
    screen = await terminal.shows("left with 3")
    assert "no gateway answers" in screen
    await terminal.check_clean()
