"""The Python client of a Forebay gateway: chats with their queue position, sessions, jobs, batches.

`Client` and `SessionClient` for plain programs, `AsyncClient` and `AsyncSessionClient` for those
with an event loop: one implementation, of which the first two wait for the others in a thread of
their own. Imports nothing of the server.
"""

from forebay.api.batches import Batch
from forebay.api.queue import EstimatedWait, ListedRequest
from forebay.api.queue import Queue as QueueState
from forebay.api.queue import RequestList as RequestPage
from forebay.api.queue import Ticket as Place
from forebay.api.sessions import PendingPrompt, PendingPrompts, SessionLine, SessionList
from forebay.api.sessions import Session as SessionState
from forebay.api.status import Capabilities, Health, Limits
from forebay.sdk.client import AsyncClient
from forebay.sdk.errors import (
    BadAnswer,
    BatchFailed,
    Busy,
    ClientClosed,
    GatewayAway,
    GatewayError,
    NodeFailed,
    NotAllowed,
    NotFound,
    PendingPromptLimitError,
    PromptQueueFullError,
    Refused,
    SdkError,
    SessionEnded,
    TurnFailed,
    WaitTooLong,
)
from forebay.sdk.prompts import AsyncSentPrompt
from forebay.sdk.session_client import AsyncSessionClient
from forebay.sdk.sync_client import Client, SentPrompt, SessionClient
from forebay.sdk.values import (
    Answer,
    BatchResult,
    Delta,
    Done,
    Job,
    Queued,
    SessionEvent,
    Started,
    Turn,
    Usage,
)

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncSentPrompt",
    "AsyncSessionClient",
    "BadAnswer",
    "Batch",
    "BatchFailed",
    "BatchResult",
    "Busy",
    "Capabilities",
    "Client",
    "ClientClosed",
    "Delta",
    "Done",
    "EstimatedWait",
    "GatewayAway",
    "GatewayError",
    "Health",
    "Job",
    "Limits",
    "ListedRequest",
    "NodeFailed",
    "NotAllowed",
    "NotFound",
    "PendingPrompt",
    "PendingPromptLimitError",
    "PendingPrompts",
    "Place",
    "PromptQueueFullError",
    "QueueState",
    "Queued",
    "Refused",
    "RequestPage",
    "SdkError",
    "SentPrompt",
    "SessionClient",
    "SessionEnded",
    "SessionEvent",
    "SessionLine",
    "SessionList",
    "SessionState",
    "Started",
    "Turn",
    "TurnFailed",
    "Usage",
    "WaitTooLong",
]
