"""Lists of models, in the forms of the three API families."""

from __future__ import annotations

from typing import Literal

from forebay.api.fields import Count, ResponseBody, Sometimes


class ModelCard(ResponseBody, frozen=True):
    """A model as OpenAI shows it, with whatever else its nodes say of it."""

    id: str
    object: Literal["model"] = "model"
    created: Count = 0
    owned_by: str = ""
    """As a node says; `forebay-sim` where only simulated nodes have it."""
    max_model_len: Sometimes[Count] = None
    """Tokens that fit into its context, as vLLM says; other servers say it in other words, and more
    of what they say is here too."""


class AnthropicModelCard(ResponseBody, frozen=True):
    """A model as Anthropic shows it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str


class ModelList(ResponseBody, frozen=True):
    """The models, as OpenAI lists them."""

    object: Literal["list"] = "list"
    data: list[ModelCard] = []


class AnthropicModelList(ResponseBody, frozen=True):
    """The models, as Anthropic lists them."""

    data: list[AnthropicModelCard]
    has_more: Literal[False]
    first_id: str | None
    last_id: str | None


class Tag(ResponseBody, frozen=True):
    """A model as Ollama shows it, with whatever else its nodes say of it."""

    name: str
    model: str


class Tags(ResponseBody, frozen=True):
    """The models, as Ollama lists them."""

    models: list[Tag]


class OllamaVersion(ResponseBody, frozen=True):
    """What Ollama's clients ask for first."""

    version: str
    """The gateway's own."""
