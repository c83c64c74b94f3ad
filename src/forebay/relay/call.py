"""One request as the relay takes it: parsed, authorised, and independent of any socket."""

from msgspec import Struct

from forebay.relay.family import Family


class Call(Struct, gc=False):
    """What is asked, for whom, and the exact bytes to pass on."""

    id: str
    family: Family
    target: bytes
    """The path and query that a node is asked for."""
    route: str
    """The path without its query, for whoever counts."""
    model: str
    """As the caller named it, its alias resolved."""
    body: bytes
    model_span: tuple[int, int] = (0, 0)
    """Where the body says it; known where it may have to be rewritten."""
    asked_model: str = ""
    """What the body says; where it differs from `model`, the body is rewritten when it is sent."""
    fallbacks: tuple[str, ...] = ()
    """Models to run instead where that one cannot run now; tried in order before any waiting."""
    header_block: bytes = b""
    """Headers for the node, as they are written on the wire; no credentials."""
    credentials: bytes = b""
    """The caller's own credentials, for a node that has none configured; likewise written out."""
    stream: bool = False
    user: str = ""
    priority: str = "normal"
    affinity: str = ""
    max_wait_s: float | None = None
    prompt_tokens: int = 0
    output_limit: int = 0
    key: str = ""
    key_running_max: int = 0
    weight: float = 1.0
    """The share of the user against others."""
