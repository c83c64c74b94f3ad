"""The built-in task types: a job whose params are the body of a request to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from forebay.core import Arrived
from forebay.relay.call import InferenceCall
from forebay.relay.fields import find_model, prompt_tokens
from forebay.relay.openai import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.jobs.job import StoredJob

    Resolve: TypeAlias = Callable[[str], tuple[str, tuple[str, ...]]]
    """From a model as callers name it to the model, and what may run instead."""

ROUTES: Final = {
    "chat": "/v1/chat/completions",
    "completion": "/v1/completions",
    "embedding": "/v1/embeddings",
    "response": "/v1/responses",
}
"""Which route of a node a type asks."""
TYPES: Final = {route: name for name, route in ROUTES.items()}
"""The endpoints of a batch, and the type of the jobs that its lines become."""
FAMILY: Final = OPENAI
_PREFIX: Final = "model:"


def queue_of(model: str) -> str:
    """Return the queue of a model's jobs.

    >>> queue_of("llama"), model_of("model:llama"), model_of("cover_letter")
    ('model:llama', 'llama', None)
    """
    return _PREFIX + model


def model_of(queue: str) -> str | None:
    """Return the model of a queue; None for one of an app's own type."""
    return queue[len(_PREFIX) :] if queue.startswith(_PREFIX) else None


def make_call(
    job: StoredJob, ticket_id: str, model: str, fallbacks: tuple[str, ...]
) -> InferenceCall:
    """Return a job as a request; raises InvalidBody where its model cannot be replaced."""
    body = job.params.encode()
    route = ROUTES[job.task_type]
    rewritten = model != job.model or fallbacks
    arrival = Arrived(
        id=ticket_id,
        model=model,
        family=FAMILY.name,
        priority="low",
        prompt_tokens=prompt_tokens(body),
        size_bytes=len(body),
        job=True,
        key=job.owner,
        fallbacks=fallbacks,
    )
    return InferenceCall(
        arrival,
        FAMILY,
        route="/jobs",
        target=route.encode(),
        body=body,
        asked_model=job.model,
        header_block=b"content-type: application/json\r\nx-request-id: %b\r\n" % ticket_id.encode(),
        model_span=find_model(body) if rewritten else (0, 0),
    )
