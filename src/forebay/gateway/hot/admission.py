"""From a request's bytes to a call: the body read and bounded, the model resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from forebay.core import Arrived
from forebay.gateway.hot.callers import conversation_of
from forebay.relay.answer import missing_route_message
from forebay.relay.anthropic import ANTHROPIC
from forebay.relay.call import InferenceCall
from forebay.relay.fields import bounded_limit, find_model, place_for_model, prompt_tokens
from forebay.relay.forms import form_reader
from forebay.relay.members import InvalidBody
from forebay.relay.ollama import OLLAMA
from forebay.relay.openai import OPENAI
from forebay.relay.prefix import NO_PREFIX, PrefixHasher
from forebay.relay.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from forebay.gateway.hot.callers import Caller, Callers
    from forebay.relay.fields import Fields, Frame
    from forebay.relay.prefix import Prefix
    from forebay.relay.relay import Relay
    from forebay.settings import ModelsSettings, ResolvedKey

FAMILIES: Final = (OPENAI, ANTHROPIC, OLLAMA)
HOT_ROUTES: Final = {
    route.encode(): (family, route) for family in FAMILIES for route in family.routes
}
"""Path -> the family and the route's name, for the metrics."""
_NONE: Final[tuple[str, ...]] = ()
DIGEST_BYTES = 4096
"""Of the end of a body, where a prompt is new; with its length they tell it from others."""
ID_BYTES = 12
"""Enough that nobody guesses an id, and that no two are the same."""


class Admission:
    """Makes calls out of requests, or says what is wrong with them."""

    def __init__(
        self,
        callers: Callers,
        models: ModelsSettings,
        relay: Relay,
        random: Random,
        prefix_key: bytes = b"",
    ) -> None:
        """`prefix_key` hides what is behind the hashes of prompts; the same in all of a fleet."""
        self.callers = callers
        self._relay = relay
        self._random = random
        self._prefixes = PrefixHasher(prefix_key or random.randbytes(16))
        self._entropy: list[str] = []  # ids made ahead: the system gives many as fast as one
        self.change(models)

    def change(self, models: ModelsSettings) -> None:
        """Take over other aliases and fallbacks."""
        self.aliases = {name: _last(name, models.aliases) for name in models.aliases}
        self._fallbacks = {
            name: tuple(self.aliases.get(model, model) for model in targets)
            for name, targets in models.fallbacks.items()
        }
        self._renames = bool(self.aliases or self._fallbacks)

    def admit(self, caller: Caller, body: bytes) -> InferenceCall | Problem | None:
        """Read a body that can be read at once; None for one that must be read in slices."""
        try:
            fields = caller.reader.read_small(body)
        except InvalidBody as error:
            return Problem(error.code, str(error), error.param)
        if fields is None:
            return None
        return self.make(caller, fields, body, prompt_tokens(body))

    def refusal(self, caller: Caller) -> Problem | None:
        """Say what is wrong with a request before its body is looked at."""
        if caller.problem is not None:
            return caller.problem
        if caller.content_type[:10].lower() == b"multipart/":
            if caller.route not in caller.family.media_routes:
                return Problem("unsupported", "this route takes JSON, no forms", "content-type")
            caller.form = form_reader(caller.content_type)
            if caller.form is None:
                words = "a form must be multipart/form-data, in UTF-8, with a boundary"
                return Problem("invalid_request", words, "content-type")
        if caller.coding not in (b"", b"gzip"):
            return Problem("unsupported", "send the body as it is, or as gzip", "content-encoding")
        return None

    def make(
        self,
        caller: Caller,
        fields: Fields,
        body: bytes,
        prompt_tokens: int,
        model_span: tuple[int, int] = (0, 0),
        frame: Frame | None = None,
    ) -> InferenceCall | Problem:
        """Return the call that a body asks for."""
        family, route, written = caller.family, caller.route, fields.model
        named_user, tier, limit, unsupported = fields.told()
        if unsupported is not None:
            return Problem("unsupported", unsupported.message, unsupported.param)
        if not (asked := caller.model or written):
            return Problem("invalid_request", "`model` is required", "model")
        nodes, key = self._relay.nodes, caller.key
        renames = self._renames or nodes.has_ollama
        model, fallbacks = self.resolve(asked) if renames else (asked, _NONE)
        if key is not None and key.models:
            if not _may_use(key, asked, model):
                return Problem("forbidden", "this key may not use this model", "model")
            fallbacks = tuple(name for name in fallbacks if name in key.models)
        if (model != written or fallbacks) and frame is None and model_span == (0, 0):
            model_span, frame = _place_of_model(body, fields)
        if nodes.has_absences and not fallbacks and nodes.lacks_route(model, family.name, route):
            return Problem("route_not_supported", missing_route_message(route), "model")
        request_id = self.unique_id(caller.request_id)
        user = caller.fixed_user or self.callers.user_of(caller, named_user or None)
        chain = self._chain(caller, model, body, prompt_tokens) if nodes.several else NO_PREFIX
        size, is_stream = len(body), family.is_stream(fields, route)
        arrival = Arrived(  # by position: msgspec takes a microsecond more by name
            request_id, model, family.name, user,
            self.callers.priority_of(caller, tier or None),
            prompt_tokens or 1,  # nothing is free, though all of it is base64, or a file
            bounded_limit(limit),
            size,
            caller.weight,
            conversation_of(caller.owner_id, user, caller.affinity) if caller.affinity else "",
            caller.max_wait_s, is_stream, False,  # job
            caller.owner_id, caller.key_running_max, fallbacks,
            False, "",  # patient, request_id
            size << 32 | crc32(body[-DIGEST_BYTES:]),
            chain[0], chain[1], caller.affinity,
            self._relay.keepalive.limit_s if is_stream and family.comments else 0.0,
        )  # fmt: skip
        return InferenceCall(
            arrival,
            family,
            route=route,
            target=caller.node_target,
            body=body,
            asked_model=written,
            header_block=caller.header_block + b"x-request-id: %b\r\n" % request_id.encode(),
            credentials=caller.credentials,
            model_span=model_span,
            frame=frame,
        )

    def _chain(self, caller: Caller, model: str, body: bytes, tokens: int) -> Prefix:
        """Return a prompt as the core compares it, where several nodes could serve it."""
        shared = self._relay.nodes.serve_several(model, caller.family.name)
        return self._prefixes.read(caller.tenant, model, body, tokens) if shared else NO_PREFIX

    def resolve(self, asked: str) -> tuple[str, tuple[str, ...]]:
        """Return the model that a name stands for, and what may run instead of it."""
        model = self.aliases.get(asked, asked)
        if ":" not in model and self._relay.nodes.has_ollama:
            model = self._relay.nodes.full_name(model)
        if not self._fallbacks:
            return model, _NONE
        return model, self._fallbacks.get(model) or self._fallbacks.get(asked, _NONE)

    def may_use(self, key: ResolvedKey | None, asked: str) -> bool:
        """Say whether a key may ask for a model."""
        return key is None or not key.models or _may_use(key, asked, self.resolve(asked)[0])

    def unique_id(self, asked: str) -> str:
        """Return the caller's own id unless it is in use, else one that nobody can guess."""
        if asked and asked not in self._relay.exchanges:
            return asked
        if not self._entropy:
            text = self._random.randbytes(ID_BYTES * 256).hex()
            self._entropy = [text[i : i + 2 * ID_BYTES] for i in range(0, len(text), 2 * ID_BYTES)]
        return self._entropy.pop()


def _place_of_model(body: bytes, fields: Fields) -> tuple[tuple[int, int], Frame | None]:
    """Return where a JSON body names its model, or where and how it should."""
    return (find_model(body), None) if fields.model else place_for_model(body)


def _last(name: str, aliases: Mapping[str, str]) -> str:
    """Follow an alias to its end; the settings have refused loops."""
    while (target := aliases.get(name)) is not None:
        name = target
    return name


def _may_use(key: ResolvedKey, asked: str, model: str) -> bool:
    return asked in key.models or model in key.models
