"""llama.cpp's own server, `llama-server`.

`/health` answers 503 while the model loads. `/props` tells `total_slots` and `build_info`.
`/v1/models` lists one model with an `id` and its `aliases` (`--alias a,b`); requests may name any
of them, and all are the same weights, so nothing ever swaps. As a router over several models it
gives each a `status.value` (`loaded`, `loading`, `unloaded`) and has no slots of its own.
Then `/metrics`, where it is turned on, tells how many requests wait inside (`requests_deferred`); a
server that names its slots is never sent more, and need not be asked.
"""

from forebay.nodes.adapters.answers import (
    context_tokens,
    count,
    descriptions,
    entries,
    expect_ok,
    json_object,
    json_object_if_there,
    metric,
    names,
    version_text,
)
from forebay.nodes.adapters.openai_compatible import MODELS_PATH
from forebay.nodes.adapters.report import Fetch, NodeReport

HEALTH_PATH = "/health"
PROPS_PATH = "/props"
METRICS_PATH = "/metrics"
WAITING = b"llamacpp:requests_deferred"


class LlamaCpp:
    """A llama-server with one model, or a router over several."""

    kind = "llama-cpp"
    families = ("openai", "anthropic")

    async def probe(self, fetch: Fetch) -> NodeReport:
        """Ask for health, slots and models; raises `BackendFailed` when it is not well."""
        health = await fetch("GET", HEALTH_PATH)
        if health.status == 503:
            return await self._while_loading(fetch)
        expect_ok(health, HEALTH_PATH)
        props = json_object_if_there(await fetch("GET", PROPS_PATH), PROPS_PATH)
        listed = json_object(await fetch("GET", MODELS_PATH), MODELS_PATH)
        models = entries(listed, "data", MODELS_PATH)
        loaded, slots = _loaded(models), count(props.get("total_slots"))
        waiting = 0 if slots else metric(await fetch("GET", METRICS_PATH), WAITING)
        return NodeReport(
            models=_names(models),
            families=self.families,
            kind=self.kind,
            slots=slots,
            waiting=waiting,
            loaded=loaded,
            loaded_max=max(1, len(loaded or ())),
            contexts=_contexts(props, _names(models)),
            about=descriptions(models, "id"),
            version=version_text(props.get("build_info")),
        )

    async def _while_loading(self, fetch: Fetch) -> NodeReport:
        """Report the models if it already names them: most builds answer this route early."""
        listed = json_object_if_there(await fetch("GET", MODELS_PATH), MODELS_PATH)
        models = _names(entries(listed, "data", MODELS_PATH)) if "data" in listed else ()
        return NodeReport(models=models, families=self.families, kind=self.kind, state="loading")


def _names(models: list[dict[str, object]]) -> tuple[str, ...]:
    found: list[object] = []
    for model in models:
        found.append(model.get("id"))
        aliases = model.get("aliases")
        found += aliases if isinstance(aliases, list) else []
    return names(found)


def _contexts(props: dict[str, object], models: tuple[str, ...]) -> dict[str, int]:
    """Return what fits into one slot; a router has no context of its own."""
    defaults = props.get("default_generation_settings")
    tokens = context_tokens(defaults.get("n_ctx")) if isinstance(defaults, dict) else None
    return dict.fromkeys(models, tokens) if tokens is not None else {}


def _loaded(models: list[dict[str, object]]) -> tuple[str, ...] | None:
    """Return what a router has in memory; None for a server that holds its one model."""
    states = [(model, said) for model in models if isinstance(said := model.get("status"), dict)]
    if not states:
        return None
    return _names([model for model, said in states if said.get("value") in {"loaded", "sleeping"}])
