"""What a path leads to, also where it is not written as it should be.

Clients put a base URL and a path together, and people write base URLs: with a slash at the end,
with `/v1` twice or not at all. Azure's clients name the model in the path, as a deployment. What a
node is asked for is always the path as it should be.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from forebay.gateway.hot.admission import FAMILIES, HOT_ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.relay.family import Family

PATH_BYTES_MAX: Final = 4096
"""A longer path is no slip of the finger."""
_SLASHES = re.compile(rb"/{2,}")
_VERSIONS = re.compile(rb"(?:/v1){2,}(?=/)")
_BELOW = re.compile(rb"[A-Za-z0-9_/-]{1,64}")
"""What may follow a prefix: a node is asked for it as it is."""
_AZURE = b"/openai/"
_DEPLOYMENTS = b"/openai/deployments/"


class InferenceRoute:
    """One inference route, as a path asks for it."""

    __slots__ = ("family", "model", "path", "route")

    def __init__(self, family: Family, route: str, path: bytes, model: str = "") -> None:
        self.family = family
        self.route = route
        """As the metrics call it."""
        self.path = path
        """As nodes know it."""
        self.model = model
        """As the path names it; "" where the body does."""


INFERENCE_ROUTES: Final = {
    path: InferenceRoute(family, route, path) for path, (family, route) in HOT_ROUTES.items()
}
_PREFIXES: Final = [
    (prefix.encode(), family, f"{prefix}*") for family in FAMILIES for prefix in family.prefixes
]
_ENDINGS: Final = sorted(
    (path.removeprefix(b"/v1") for path in HOT_ROUTES if path.startswith(b"/v1/")),
    key=len,
    reverse=True,
)


def find_route(path: bytes) -> InferenceRoute | None:
    """Return what a path asks for; None where that is no inference."""
    way = INFERENCE_ROUTES.get(path)
    if way is not None or len(path) > PATH_BYTES_MAX:
        return way
    model = ""
    if path.startswith(_DEPLOYMENTS):
        model, path = _split_deployment(path.rstrip(b"/"))
        if not model:
            return None
    for spelling in spellings(path):
        way = INFERENCE_ROUTES.get(spelling) or _below_a_prefix(spelling)
        if way is not None:
            return InferenceRoute(way.family, way.route, way.path, model)
    return None


def spellings(path: bytes) -> Iterator[bytes]:
    """Yield what a path may have been meant to be, the likeliest first."""
    plain = _VERSIONS.sub(b"/v1", _SLASHES.sub(b"/", path)).rstrip(b"/")
    if plain.startswith(_AZURE):
        plain = plain.removeprefix(_AZURE[:-1])
    yield plain
    if plain.startswith(b"/v1/"):
        yield plain.removeprefix(b"/v1")
    else:
        yield b"/v1" + plain


def _below_a_prefix(path: bytes) -> InferenceRoute | None:
    for prefix, family, route in _PREFIXES:
        if path.startswith(prefix) and _BELOW.fullmatch(path, len(prefix)) is not None:
            return InferenceRoute(family, route, path)
    return None


def _split_deployment(path: bytes) -> tuple[str, bytes]:
    """Return the model and the route of Azure's path; names of models may have slashes.

    >>> _split_deployment(b"/openai/deployments/meta/llama%203/chat/completions")
    ('meta/llama 3', b'/v1/chat/completions')
    """
    rest = path.removeprefix(_DEPLOYMENTS)
    for ending in _ENDINGS:
        if rest.endswith(ending):
            name = unquote(rest.removesuffix(ending).decode("latin-1"), errors="replace")
            return (name if name.isprintable() else ""), b"/v1" + ending
    return "", path
