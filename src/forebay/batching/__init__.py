"""RequestQueue: the waiting line of a continuous-batching engine, as a library.

An engine that runs `batch` at once, and has `free` bytes for key-value caches, fills up like
this between two steps; an idle one would wait for its first request with `queue.dequeue()`.

>>> shape = ModelShape(layers=32, kv_heads=8, head_dim=128, bytes=2)
>>> queue = RequestQueue(estimator=MemoryEstimator(shape, tokenizer=str.split))
>>> token = CancelToken()
>>> queue.enqueue(Request("r1", "tell me a long story", max_tokens=2000, cancel=token))
>>> queue.enqueue(Request("r2", "is it raining", max_tokens=10), Priority.HIGH)
>>> free = 1 << 30
>>> batch = queue.get_requests(max_count=8, memory_budget=free)
>>> [request.id for request in batch]
['r2', 'r1']
>>> free - sum(request.memory_bytes for request in batch)
809238528
"""

from forebay.batching.cancel import CancelToken
from forebay.batching.errors import (
    Cancelled,
    DuplicateRequest,
    NotTaken,
    QueueClosed,
    QueueFull,
    RequestTooLarge,
)
from forebay.batching.memory import MemoryEstimator, ModelShape
from forebay.batching.queue import RequestQueue
from forebay.batching.request import DEFAULT_MAX_TOKENS, Priority, Request

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "CancelToken",
    "Cancelled",
    "DuplicateRequest",
    "MemoryEstimator",
    "ModelShape",
    "NotTaken",
    "Priority",
    "QueueClosed",
    "QueueFull",
    "Request",
    "RequestQueue",
    "RequestTooLarge",
]
