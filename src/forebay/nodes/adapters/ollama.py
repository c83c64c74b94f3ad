"""Ollama.

`/api/tags` lists what is on disk, `/api/ps` what is in memory, `/api/version` the version.

It reports neither how many requests a model runs at once (`OLLAMA_NUM_PARALLEL`, 1 by default)
nor how many models it keeps (`OLLAMA_MAX_LOADED_MODELS`, and only as far as memory allows). So
`slots` is unknown, and `loaded_max` is what is proven: as many as are in memory together right
now, at least one. That errs towards serving model by model, which is what a small GPU needs; a
node with room shows it as soon as a second model is loaded.

OpenAI's routes have always been there for the versions in use; `/v1/messages` came with 0.14.
"""

from forebay.nodes.adapters.answers import (
    contexts,
    descriptions,
    entries,
    json_object,
    json_object_if_there,
    names,
    version_at_least,
    version_text,
    whole_bytes,
)
from forebay.nodes.adapters.report import Fetch, NodeReport

TAGS_PATH = "/api/tags"
RUNNING_PATH = "/api/ps"
VERSION_PATH = "/api/version"
MESSAGES_SINCE = (0, 14)


class Ollama:
    """An Ollama server."""

    kind = "ollama"
    families = ("ollama", "openai", "anthropic")

    async def probe(self, fetch: Fetch) -> NodeReport:
        """Ask what it has, what is loaded and who it is; raises `BackendFailed` when it cannot."""
        listed = json_object(await fetch("GET", TAGS_PATH), TAGS_PATH)
        running = json_object(await fetch("GET", RUNNING_PATH), RUNNING_PATH)
        about = json_object_if_there(await fetch("GET", VERSION_PATH), VERSION_PATH)
        version = version_text(about.get("version"))
        in_memory = entries(running, "models", RUNNING_PATH)
        loaded = _names(in_memory)
        speaks_messages = version_at_least(version, MESSAGES_SINCE)
        return NodeReport(
            models=_names(entries(listed, "models", TAGS_PATH)),
            families=self.families if speaks_messages else ("ollama", "openai"),
            kind=self.kind,
            loaded=loaded,
            loaded_max=max(1, len(loaded)),
            vram_used_bytes=sum(whole_bytes(one.get("size_vram")) or 0 for one in in_memory),
            contexts=contexts(in_memory, "model", "name"),
            about=descriptions(entries(listed, "models", TAGS_PATH), "model", "name"),
            version=version,
        )


def _names(models: list[dict[str, object]]) -> tuple[str, ...]:
    """Take `model`, the full name; versions before it existed have only `name`."""
    return names(model.get("model") or model.get("name") for model in models)
