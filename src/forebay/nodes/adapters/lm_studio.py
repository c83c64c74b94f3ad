"""LM Studio.

`/api/v0/models` lists every downloaded model with its `state`, `loaded` or `not-loaded`; a request
for one that is not loaded loads it. `/api/v1/models` came with 0.4.0 and lists the same models by
`key` with their `loaded_instances`; it tells us that the server is new enough for `/v1/messages`
(0.4.1), since no route tells the version. How many predictions run at once is set per loaded model
("Max Concurrent Predictions"); an instance that reports it as `config.parallel` is believed, the
smallest of them holding for the node.

Unknown routes are answered 200 with an `error` text, so a status proves nothing here.
"""

from forebay.nodes.adapters.answers import (
    contexts,
    count,
    descriptions,
    entries,
    json_object,
    json_object_if_there,
    names,
)
from forebay.nodes.adapters.report import Fetch, NodeReport

MODELS_PATH = "/api/v0/models"
NATIVE_PATH = "/api/v1/models"


class LmStudio:
    """An LM Studio server."""

    kind = "lm-studio"
    families = ("openai", "anthropic")

    async def probe(self, fetch: Fetch) -> NodeReport:
        """Ask for the models and which are loaded; raises `BackendFailed` when it cannot."""
        listed = json_object(await fetch("GET", MODELS_PATH), MODELS_PATH)
        models = entries(listed, "data", MODELS_PATH)
        native = json_object_if_there(await fetch("GET", NATIVE_PATH), NATIVE_PATH)
        is_new = isinstance(native.get("models"), list)
        loaded = names(model.get("id") for model in models if model.get("state") == "loaded")
        return NodeReport(
            models=names(model.get("id") for model in models),
            families=self.families if is_new else ("openai",),
            kind=self.kind,
            slots=_slots(entries(native, "models", NATIVE_PATH)) if is_new else None,
            loaded=loaded,
            loaded_max=max(1, len(loaded)),
            contexts=contexts(models, "id"),
            about=descriptions(models, "id"),
        )


def _slots(models: list[dict[str, object]]) -> int | None:
    """Return the smallest number of parallel predictions among what is loaded."""
    found = []
    for model in models:
        instances = model.get("loaded_instances")
        for instance in instances if isinstance(instances, list) else ():
            settings = instance.get("config") if isinstance(instance, dict) else None
            parallel = count(settings.get("parallel")) if isinstance(settings, dict) else None
            found += [] if parallel is None else [parallel]
    return min(found, default=None)
