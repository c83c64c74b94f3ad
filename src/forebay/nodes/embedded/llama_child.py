"""The child process of the embedded node: llama.cpp's own server, until the parent goes.

Run as `python -m forebay.nodes.embedded.llama_child --gguf FILE`. It prints one line,
`ready URL`, when `/health` answers 200, and ends when its standard input is closed. While
llama.cpp reads a model no Python runs here, so on Linux the kernel is also asked to end it
together with its parent.
"""

import argparse
import ctypes
import http.client
import importlib
import os
import signal
import sys
from urllib.parse import urlsplit

HEALTH_LIMIT_S = 30.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: list[str] | None = None) -> None:
    """Serve one GGUF file until standard input is closed."""
    options = _parser().parse_args(arguments)
    die_with_parent()
    try:
        url, _server = serve(options)
    except ImportError:
        sys.exit("the embedded model needs xllamacpp: pip install 'forebay[embedded]'")
    except RuntimeError as error:  # all that xllamacpp raises; the reason is in its log
        sys.exit(f"llama.cpp cannot serve {options.gguf}: {error}")
    check_health(url)
    sys.stdout.write(f"ready {url}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    # `_server` lives to this point. Not by its destructor: that waits for answers nobody will read.
    os._exit(0)


def serve(options: argparse.Namespace) -> tuple[str, object]:
    """Start the server; return where it listens, and what must be kept for it to live."""
    # Here and by name, because the extra `embedded` need not be installed.
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = options.gguf
    params.model_alias = {options.alias} if options.alias else set()
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.context
    params.kv_unified = False  # each slot has its own context: one long prompt starves nobody
    params.endpoint_slots = True
    params.endpoint_metrics = True
    params.ui = False
    params.embedding = options.embedding
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = options.threads or threads_default()
        threads.poll = 0  # spinning threads would take the CPU from the gateway beside them
    server = xllamacpp.Server(params)
    return server.listening_address, server


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="forebay.nodes.embedded.llama_child", description=__doc__)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--alias", default="", help="the name that requests use")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=2048, help="tokens per slot")
    parser.add_argument("--threads", type=int, default=0, help="0 chooses")
    parser.add_argument("--embedding", action="store_true", help="serve /v1/embeddings only")
    return parser


def check_health(url: str) -> None:
    """Exit unless `/health` answers 200."""
    # Not by `urllib.request`, which would ask a proxy if the environment names one.
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=HEALTH_LIMIT_S)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        sys.exit(f"/health answered {status}")


def threads_default() -> int:
    """Return half of the CPUs, one to four.

    llama.cpp's threads wait for each other at every layer. With as many threads as CPUs any other
    work on the machine (the gateway itself) stalls all of them: on two busy CPUs two threads were
    a hundred times slower than one. Beyond four a small model gains nothing.
    """
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(4, max(1, cpus // 2))


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere the closed pipe must do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
