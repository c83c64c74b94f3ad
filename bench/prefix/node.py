"""A llama.cpp node of the benchmark: its own server, until standard input is closed.

Run as `python -m bench.prefix.node GGUF SLOTS CONTEXT_TOKENS CACHE_MIB THREADS`; it prints
`ready URL`.
Unlike the embedded node it is told how large its cache of prompts is that no slot holds any more
(`--cache-ram` of llama-server).
"""

from __future__ import annotations

import importlib
import os
import sys

from forebay.nodes.embedded.llama_child import check_health, die_with_parent


def main() -> None:
    """Serve a model."""
    gguf, slots, context, cache_mib, thread_count = sys.argv[1:]
    die_with_parent()
    xllamacpp = importlib.import_module("xllamacpp")  # by name: it has no types
    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.model_alias = {"m"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = int(slots)
    params.n_ctx = int(slots) * int(context)
    params.kv_unified = False
    params.cache_ram_mib = int(cache_mib)
    params.endpoint_slots = True
    params.endpoint_metrics = True
    params.ui = False
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = int(thread_count)
        threads.poll = 0
    server = xllamacpp.Server(params)
    check_health(server.listening_address)
    sys.stdout.write(f"ready {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # the destructor would wait for answers that nobody reads


if __name__ == "__main__":
    main()
