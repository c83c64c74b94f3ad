"""What the operator decides about jobs in idle slots."""

from msgspec import Struct


class FillOptions(Struct, frozen=True):
    """What the operator decides."""

    lease_s: float = 30.0
    attempts: int = 3
    retry: bool = False
    """Whether interrupted jobs are tried again."""
    never_again: tuple[str, ...] = ()
    """Types that are not."""
    known: tuple[str, ...] | None = None
    """Types whose interrupted jobs are ours to deal with; None: all."""
