"""`forebay sim-node` as people start it: a command, a port, a signal."""

import signal
import socket
import subprocess
import sys

import httpx

COMMAND = [sys.executable, "-c", "from forebay.cli.main import main; main()", "sim-node"]


def test_the_command_serves_until_it_is_told_to_stop() -> None:
    options = ["--port", "0", "--model", "one", "--model", "two@4", "--slots", "3"]
    with subprocess.Popen(
        [*COMMAND, *options, "--ttft-ms", "0", "--tokens-per-second", "0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://"))
        assert "3 slots: one, two" in line
        with httpx.Client(base_url=url, trust_env=False) as client:
            body = {"model": "two", "messages": [{"role": "user", "content": "hello"}]}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_a_port_that_is_taken_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*COMMAND, "--port", port], capture_output=True, text=True, timeout=30, check=False
        )
    assert done.returncode == 1
    assert "another program does. Use another port: " in done.stderr
    assert "forebay sim-node --port" in done.stderr
    assert "Traceback" not in done.stderr
