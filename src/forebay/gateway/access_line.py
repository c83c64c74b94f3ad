"""One line of the access log: ids, sizes and times, never a prompt, a key or a user."""

import msgspec


class Line(msgspec.Struct, omit_defaults=True, gc=False):
    """What is said about one request."""

    time: str
    route: str
    outcome: str
    id: str = ""
    model: str = ""
    node: str = ""
    status: int = 0
    priority: str = ""
    stream: bool = False
    queued: bool = False
    attempt: int = 0
    waited_ms: int = 0
    first_byte_ms: int = 0
    run_ms: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    request_bytes: int = 0
    answer_bytes: int = 0
