"""What a node says of itself, and the two narrow ports around asking it."""

import re
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from forebay.core.events import Family

ReportedState: TypeAlias = Literal["online", "loading"]
"""What a node can say by itself; `offline` and `draining` are ours to conclude."""

SLOTS_AT_FIRST: Final[Mapping[str, int]] = {"ollama": 1, "vllm": 8}
SLOTS_ELSE: Final = 4
"""How many slots an engine of a kind begins with, where it does not say: Ollama runs one request at
once as it comes, vLLM batches."""


class NodeReport(Struct, frozen=True):
    """The result of one good probe."""

    models: tuple[str, ...]
    """What requests may name: cleaned, without duplicates, at most `answers.MODELS_MAX`."""
    families: tuple[Family, ...]
    """The dialects that this version of the node serves."""
    kind: str
    """The adapter that asked."""
    state: ReportedState = "online"
    slots: int | None = None
    """How many requests it runs at once; None when it does not say."""
    waiting: int = 0
    """Requests that wait inside the engine, by its own account; 0 when it does not say."""
    loaded: tuple[str, ...] | None = None
    """Models in memory now; None when it holds all its models and nothing ever swaps."""
    loaded_max: int = 1
    """How many models fit in memory together, as far as is known."""
    gpu_load: float | None = None
    """0 to 1; None when unknown."""
    vram_used_bytes: int | None = None
    """GPU memory in use; None when unknown, as is the next."""
    vram_total_bytes: int | None = None
    contexts: Mapping[str, int] = {}
    """Tokens that fit into the context of a request, by model; those it does not say are absent."""
    about: Mapping[str, Mapping[str, object]] = {}
    """What it says of each model in its list, by model: for whoever lists them here."""
    version: str = ""
    """The engine's own version, for people to read; "" when it does not say."""


class ProbeReply(Struct, frozen=True):
    """One whole HTTP answer of a node."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


_LOADING = re.compile(rb"\bloading\b", re.IGNORECASE)
_WORDS_BYTES = 2048


def says_loading(body: bytes) -> bool:
    """Say whether a 503 means that a model is being loaded: so say llama.cpp, TGI and others.

    >>> says_loading(b'{"error": {"code": 503, "message": "Loading model"}}')
    True
    >>> says_loading(b"overloaded, come again")
    False
    """
    return _LOADING.search(body, 0, _WORDS_BYTES) is not None


class Fetch(Protocol):
    """One request to one node, bounded in time and size by whoever implements it."""

    async def __call__(self, method: str, path: str, body: bytes = b"") -> ProbeReply:
        """Ask and return the whole answer, whatever its status.

        Raises `BackendFailed` when the node cannot be reached, or answers rubbish, too much or
        too late. Cancelling it closes the connection.
        """
        ...


class Adapter(Protocol):
    """One kind of backend: how to ask it what it is and has."""

    @property
    def kind(self) -> str: ...

    @property
    def families(self) -> tuple[Family, ...]:
        """Return every dialect that some version of this kind serves."""
        ...

    async def probe(self, fetch: Fetch) -> NodeReport:
        """Ask the node; raises `BackendFailed` when it is not well or makes no sense."""
        ...
