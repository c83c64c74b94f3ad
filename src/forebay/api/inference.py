"""What is read of the bodies of inference requests; other members pass through untouched."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from forebay.api.fields import RequestBody, unchecked

_Model: TypeAlias = Annotated[str, unchecked(minLength=1, maxLength=1024)]


class OpenAIRequest(RequestBody):
    """A request of OpenAI's API."""

    model: _Model
    """A model or an alias."""
    stream: bool | None = None
    """Whether to answer with server-sent events; default false."""
    user: str | None = None
    """Whom fairness counts it for, unless a key says so."""
    service_tier: str | None = None
    """`priority` reads as high, `flex` as low, anything else as normal; a header comes first."""
    max_tokens: float | None = None
    """Most tokens to answer with."""
    max_completion_tokens: float | None = None
    """Most tokens to answer with."""
    max_output_tokens: float | None = None
    """Most tokens to answer with."""


class AnthropicMetadata(RequestBody):
    """What an Anthropic request says of itself."""

    user_id: str | None = None
    """Whom fairness counts it for, unless a key says so."""


class AnthropicRequest(RequestBody):
    """A request of Anthropic's API."""

    model: _Model
    """A model or an alias."""
    stream: bool | None = None
    """Whether to answer with server-sent events; default false."""
    max_tokens: float | None = None
    """Most tokens to answer with."""
    metadata: AnthropicMetadata | None = None


class OllamaOptions(RequestBody):
    """The options of an Ollama request."""

    num_predict: float | None = None
    """Most tokens to answer with."""


class OllamaRequest(RequestBody):
    """A request of Ollama's API."""

    model: _Model
    """A model or an alias."""
    stream: bool | None = None
    """Whether to answer line by line; default true."""
    user: str | None = None
    """Whom fairness counts it for, unless a key says so."""
    options: OllamaOptions | None = None


class Question(RequestBody):
    """A question about a model that does not run it."""

    model: _Model = ""
    """A model or an alias."""
