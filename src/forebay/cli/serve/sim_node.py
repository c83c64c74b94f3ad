"""`forebay sim-node`: run the simulated node."""

import asyncio
from typing import Annotated

import typer

from forebay.cli.output.console import counted, fail, tell
from forebay.cli.serve.event_loop import on_stop_signals
from forebay.cli.serve.start_failures import explain_listen_error
from forebay.nodes.sim.engine import SimOptions
from forebay.nodes.sim.sim_node import SimNode


def sim_node(  # noqa: PLR0913 - Typer reads the options from the signature
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    model: Annotated[
        list[str] | None, typer.Option(help="Model to offer, as NAME or NAME@GB; repeatable.")
    ] = None,
    slots: Annotated[
        int, typer.Option(min=1, help="Concurrent requests; further ones get 503.")
    ] = 1,
    ttft_ms: Annotated[float, typer.Option(min=0, help="Time to first token, in ms.")] = 200.0,
    tokens_per_second: Annotated[
        float, typer.Option(min=0, help="Speed of one answer; 0 is as fast as possible.")
    ] = 50.0,
    load_seconds: Annotated[
        float, typer.Option(min=0, help="Time to load a model; 0 keeps all of them in memory.")
    ] = 0.0,
    start_seconds: Annotated[
        float, typer.Option(min=0, help="Answer 503 'loading model' for this long after the start.")
    ] = 0.0,
    vram_gb: Annotated[
        float, typer.Option(min=0, help="Memory for models; 0 holds one at a time.")
    ] = 0.0,
    fail_rate: Annotated[
        float, typer.Option(min=0, max=1, help="Share of requests answered with 500.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the failures.")] = 0,
) -> None:
    """Run a simulated node: the timing of a model without a model, for tests and demos."""
    options = SimOptions(
        models=tuple(model or ["sim-model"]),
        slots=slots,
        ttft_s=ttft_ms / 1000.0,
        tokens_per_second=tokens_per_second,
        load_s=load_seconds,
        start_s=start_seconds,
        vram_gb=vram_gb,
        fail_rate=fail_rate,
        seed=seed,
    )
    try:
        asyncio.run(_serve(SimNode(options, host, port)))
    except OSError as error:
        fail(explain_listen_error(error, host, port, "sim-node"))


async def _serve(node: SimNode) -> None:
    """Serve until told to stop (Ctrl-C, SIGTERM)."""
    stopping = asyncio.Event()
    on_stop_signals(lambda _: stopping.set())
    await node.start()
    names = ", ".join(node.engine.sizes_gb)
    slots = counted(node.engine.options.slots, "slot")
    tell(f"simulated node on {node.url} with {slots}: {names}")
    try:
        await stopping.wait()
    finally:
        await node.stop()
