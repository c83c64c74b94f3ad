"""`[[nodes]]`: the servers that run the models."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from forebay.settings.addresses import HttpRoot, name_of_url
from forebay.settings.errors import refusal
from forebay.settings.section import AmountAboveZero, Names, PlainName, Section, Text, Variable

KINDS = ("auto", "ollama", "llama-cpp", "vllm", "lm-studio", "openai-compatible", "sim")
OTHER_SPELLINGS = {
    "openai": "openai-compatible",
    "llama.cpp": "llama-cpp",
    "llamacpp": "llama-cpp",
    "llama_cpp": "llama-cpp",
    "lmstudio": "lm-studio",
    "lm_studio": "lm-studio",
    "simulated": "sim",
}
"""What people write for the same thing."""

SLOTS_MAX = 10_000
PATTERNS_MAX = 16


def _known_kind(kind: str) -> str:
    kind = OTHER_SPELLINGS.get(kind.lower(), kind.lower())
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, 1)
        hint = f'write "{near[0]}"' if near else f"write one of {', '.join(KINDS)}"
        raise refusal("is not a known kind of server", hint)
    return kind


def _slots(given: object) -> object:
    if given == "auto" or (type(given) is int and given == 0):
        return "auto"
    if type(given) is int and 1 <= given <= SLOTS_MAX:
        return given
    raise refusal(
        'is neither a number of requests nor "auto"',
        f'write a whole number from 1 to {SLOTS_MAX}, or "auto" to find the number',
    )


ModelSlots = Annotated[
    Mapping[Text, Annotated[int, Field(strict=True, ge=1, le=SLOTS_MAX)]],
    Field(max_length=PATTERNS_MAX),
]
"""Slots by the pattern of the models that have them for themselves."""


class NodeSettings(Section):
    """One server that runs models."""

    name: PlainName = Field(default="", examples=["gpu1"])
    """Name of the node in headers, metrics and on the page; each once. Left out: made of the host
    and the port."""

    url: HttpRoot = Field(examples=["http://127.0.0.1:11434"])
    """Where it listens: http or https, a host and a port, no path (Forebay adds the route)."""

    kind: Annotated[PlainName, AfterValidator(_known_kind)] = "auto"
    """Which kind of server it is: "ollama", "llama-cpp", "vllm", "lm-studio", "sim" or
    "openai-compatible"; "auto" finds out."""

    slots: Annotated[int | Literal["auto"], BeforeValidator(_slots)] = "auto"
    """Requests that may run on it at once. "auto" (or 0) asks the node, and never sends more than
    it says; where it says nothing, it begins with what its kind usually runs well (Ollama 1, vLLM
    8, others 4) and finds out by how it answers."""

    model_slots: ModelSlots = Field(default={})
    """Slots that some models have for themselves, beside `slots`, so that an embedding never waits
    behind a chat: { "nomic-embed-*" = 8 }. A model takes the first pattern that it matches; * is
    any text."""

    models: Names = ()
    """Models it serves. Empty: the node is asked."""

    api_key_env: Variable = ""
    """Environment variable with the API key for the node. Empty: none."""

    connect_seconds: AmountAboveZero = 5.0
    """Longest time for a connection to the node to open, in seconds; above 0."""

    @model_validator(mode="before")
    @classmethod
    def _give_a_name(cls, given: object) -> object:
        if isinstance(given, Mapping) and "name" not in given and isinstance(given.get("url"), str):
            name = name_of_url(given["url"])
            return {**given, "name": name} if name else given
        return given
