"""The Python client of a Forebay gateway: chats that know their place, sessions, jobs, batches.

`Client` and `SessionClient` for plain programs, `AsyncClient` and `AsyncSessionClient` for those
with an event loop: one implementation, of which the first two wait for the others in a thread of
their own. Imports nothing of the server.
"""

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
from forebay.sdk.sent_prompt import AsyncSentPrompt
from forebay.sdk.session_client import AsyncSessionClient
from forebay.sdk.sync_client import Client
from forebay.sdk.sync_session import SentPrompt, SessionClient
from forebay.sdk.values import (
    Answer,
    Batch,
    BatchResult,
    Capabilities,
    Delta,
    Done,
    EstimatedWait,
    Health,
    Job,
    Limits,
    PendingPrompt,
    PendingPrompts,
    Place,
    Queued,
    QueueState,
    SessionEvent,
    SessionState,
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
    "SdkError",
    "SentPrompt",
    "SessionClient",
    "SessionEnded",
    "SessionEvent",
    "SessionState",
    "Started",
    "Turn",
    "TurnFailed",
    "Usage",
    "WaitTooLong",
]
