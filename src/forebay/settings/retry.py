"""`[retry]`: how often a request is tried again on another node."""

from typing import Annotated, Literal

from pydantic import Field

from forebay.settings.section import Section


class RetrySettings(Section):
    """How often a request is tried again when its node fails before the first answer byte."""

    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 3
    """Times one request may reach a node in all, the first included; 1 never sends it again. A kept
    connection that its node closes once the request is on it counts, though it is no failure."""

    budget: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.1
    """Share of the requests of the last 10 seconds that may be retries, from 0 to 1; ten are always
    allowed, even at 0, unless `attempts` is 1."""

    stream: Literal["error", "buffer"] = "error"
    """What happens to a stream whose node dies midway: "error" ends it with an error, "buffer"
    collects each answer first, so that it can be made anew elsewhere unseen."""
