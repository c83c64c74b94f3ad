"""vLLM's server.

It listens only once its model is loaded, so it is never `loading`; `/health` answers 503 when the
engine is dead. `/v1/models` lists the model and its LoRA adapters, all in memory. How many
requests it batches is `max_num_seqs`: neither `/metrics` (its `cache_config_info` describes blocks
only) nor any public route tells it, but a server in development mode answers
`/server_info?config_format=json` with its whole configuration. Else it is found by trying, and
`vllm:num_requests_waiting` in `/metrics` tells when it was too much. `/v1/messages` came with
0.11.1.
"""

from forebay.nodes.adapters.answers import (
    contexts,
    count,
    descriptions,
    entries,
    expect_ok,
    json_object,
    json_object_if_there,
    metric,
    names,
    version_at_least,
    version_text,
)
from forebay.nodes.adapters.openai_compatible import MODELS_PATH
from forebay.nodes.adapters.report import Fetch, NodeReport

HEALTH_PATH = "/health"
VERSION_PATH = "/version"
CONFIGURATION_PATH = "/server_info?config_format=json"
METRICS_PATH = "/metrics"
WAITING = b"vllm:num_requests_waiting"
MESSAGES_SINCE = (0, 11, 1)


class Vllm:
    """A vLLM server."""

    kind = "vllm"
    families = ("openai", "anthropic")

    async def probe(self, fetch: Fetch) -> NodeReport:
        """Ask for health, models, version and load; raises `BackendFailed` when not well."""
        expect_ok(await fetch("GET", HEALTH_PATH), HEALTH_PATH)
        listed = json_object(await fetch("GET", MODELS_PATH), MODELS_PATH)
        about = json_object_if_there(await fetch("GET", VERSION_PATH), VERSION_PATH)
        version = version_text(about.get("version"))
        configuration = json_object_if_there(
            await fetch("GET", CONFIGURATION_PATH), CONFIGURATION_PATH
        )
        listing = entries(listed, "data", MODELS_PATH)
        speaks_messages = version_at_least(version, MESSAGES_SINCE)
        return NodeReport(
            models=names(entry.get("id") for entry in listing),
            families=self.families if speaks_messages else ("openai",),
            kind=self.kind,
            slots=_sequences(configuration),
            waiting=metric(await fetch("GET", METRICS_PATH), WAITING),
            contexts=contexts(listing, "id"),
            about=descriptions(listing, "id"),
            version=version,
        )


def _sequences(configuration: dict[str, object]) -> int | None:
    """Find `vllm_config.scheduler_config.max_num_seqs`; older servers send text instead."""
    value: object = configuration
    for field in ("vllm_config", "scheduler_config", "max_num_seqs"):
        if not isinstance(value, dict):
            return None
        value = value.get(field)
    return count(value)
