"""Find out what kind of server answers at an address, with at most three requests.

The order is from the surest sign to the weakest:

1. `GET /v1/models`, which almost everything has. The simulated node, llama.cpp and vLLM sign it
   (`owned_by`, and llama.cpp the `Server` header on every answer, also while it loads). They come
   first because others imitate: llama.cpp has answered Ollama's routes in the past.
2. `GET /api/version` with a `version` text: Ollama. Its `/v1/models` is signed by whoever
   published each model, so it cannot tell.
3. `GET /api/v0/models` with models that have a `state`: LM Studio. Last, because it answers 200
   to every route, and only this content is its own.

What has none of these signs but lists models, or asks for a key, is `openai-compatible`. What
does not even do that is no node: `BackendFailed`, and the next probe asks again.
"""

from collections.abc import Mapping

from forebay.errors import BackendFailed
from forebay.nodes.adapters import lm_studio, ollama
from forebay.nodes.adapters.answers import json_object_if_there, version_text
from forebay.nodes.adapters.llama_cpp import LlamaCpp
from forebay.nodes.adapters.lm_studio import LmStudio
from forebay.nodes.adapters.ollama import Ollama
from forebay.nodes.adapters.openai_compatible import MODELS_PATH, OpenAiCompatible
from forebay.nodes.adapters.report import Adapter, Fetch, ProbeReply
from forebay.nodes.adapters.simulated import OWNER, Simulated
from forebay.nodes.adapters.vllm import Vllm

_ALL: tuple[Adapter, ...] = (
    Simulated(),
    LlamaCpp(),
    Vllm(),
    Ollama(),
    LmStudio(),
    OpenAiCompatible(),
)

ADAPTERS: Mapping[str, Adapter] = {adapter.kind: adapter for adapter in _ALL}
"""Every adapter by its kind, which is the word for it in the settings."""

_SIGNATURES = {OWNER: Simulated.kind, "llamacpp": LlamaCpp.kind, "vllm": Vllm.kind}


async def detect(fetch: Fetch) -> Adapter:
    """Return the adapter for whatever answers; raises `BackendFailed` when nothing usable does."""
    reply = await fetch("GET", MODELS_PATH)
    listed = json_object_if_there(reply, MODELS_PATH)
    signed = _signature(reply, listed)
    if signed is not None:
        return ADAPTERS[signed]
    about = json_object_if_there(await fetch("GET", ollama.VERSION_PATH), ollama.VERSION_PATH)
    if version_text(about.get("version")):
        return ADAPTERS[Ollama.kind]
    path = lm_studio.MODELS_PATH
    if _has_states(json_object_if_there(await fetch("GET", path), path)):
        return ADAPTERS[LmStudio.kind]
    if isinstance(listed.get("data"), list) or reply.status in {401, 403}:
        return ADAPTERS[OpenAiCompatible.kind]
    raise BackendFailed("the server there lists its models in no known format")


def _signature(reply: ProbeReply, listed: dict[str, object]) -> str | None:
    if reply.headers.get("server", "").lower().startswith("llama.cpp"):
        return LlamaCpp.kind
    models = listed.get("data")
    first = models[0] if isinstance(models, list) and models else None
    owner = first.get("owned_by") if isinstance(first, dict) else None
    return _SIGNATURES.get(owner) if isinstance(owner, str) else None


def _has_states(listed: dict[str, object]) -> bool:
    """Say whether this is LM Studio's list; an empty one counts, nothing being downloaded yet."""
    models = listed.get("data")
    if not isinstance(models, list):
        return False
    return all(isinstance(model, dict) and "state" in model for model in models[:1])
