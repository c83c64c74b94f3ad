"""What a node says it does not have: the model, or the route.

Both are 404 to most servers, and mean different things: a node without the model has changed, and
is asked anew; one without the route is well, and another node of the model may have it. Real
servers tell them apart in words. A missing model is named, or called one: vLLM "The model `x` does
not exist.", Ollama "model 'x' not found", LM Studio and OpenAI `model_not_found`. A missing route
is not: llama.cpp "File Not Found", FastAPI (vLLM, SGLang) "Not Found", Ollama "404 page not found".
405 and 501 are about the route wherever not every server has it: llama.cpp says 501 of embeddings
and ranking unless it was started for them. Of routes that generate text, 501 is about a field.
LM Studio says 200 and "Unexpected endpoint or method".
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from forebay.relay.answer import said
from forebay.relay.problem import Problem

Absent: TypeAlias = Literal["", "model", "route"]

LOOKED_AT: Final = 4096
"""Bytes of an answer: whoever says more says something else."""
_NO_ROUTE = re.compile(
    rb"not found|not_found|cannot post|no route|nothing at|method not allowed"
    rb"|(?:unknown|invalid|unexpected|unsupported) (?:endpoint|route|path|url)"
)
_UNEXPECTED: Final = b"unexpected endpoint or method"


def what_is_absent(status: int, body: bytes, model: str, *, is_rare: bool) -> Absent:
    """Say what a node does not have, as far as its answer says so.

    `is_rare` says that not every server has the route.
    """
    text = body[:LOOKED_AT].lower()
    if status == 404:
        return _of_404(text, model)
    if status == 405 or (status == 501 and is_rare):
        return "route"
    return "route" if status == 200 and is_rare and _UNEXPECTED in text else ""


def route_missing(route: str, node: str, status: int, body: bytes) -> Problem:
    """Return the problem of a request for whose route there is no node; one has said this."""
    details: dict[str, object] = {"cause": said(status, body[:LOOKED_AT]), "node": node}
    return Problem("route_not_supported", words(route), "model", None, details)


def words(route: str) -> str:
    """Say that a route is missing."""
    return f"no node of this model has {route}"


def _names(text: bytes, model: str) -> bool:
    """Say whether a text names a model, and not a word that has its letters."""
    name = re.escape(model.lower().encode())
    return bool(name) and re.search(rb"(?<![\w.:/-])" + name + rb"(?![\w.:/-])", text) is not None


def _of_404(text: bytes, model: str) -> Absent:
    if b"route_not_supported" in text:  # another gateway
        return "route"
    if b"model" in text or _names(text, model):
        return "model"
    return "route" if not text.strip() or _NO_ROUTE.search(text) is not None else "model"
