"""What an operator does to nodes on one gateway holds for all that share its queue.

Each action is told to the others (topic `nodes`), who do the same; what is told is never told on.
It is checked like any input, changes nothing the second time, and may fail on one gateway without
harm to it: that is logged. Who is away does not hear of it and, when it starts, has the nodes of
its settings.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from forebay.errors import NotAllowed
from forebay.settings import SettingsError, parse_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.coordination import Fleet
    from forebay.nodes.backend import Backend
    from forebay.nodes.registry import Nodes
    from forebay.settings import NodeSettings

logger = logging.getLogger("forebay.gateway")

TOPIC: Final = "nodes"
WORD_BYTES_MAX: Final = 65_536


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action."""

    action: Literal["add", "remove", "drain", "resume"]
    name: str
    node: dict[str, Any] = {}
    """As `POST /admin/nodes` takes it, where the action is to add one."""


_decode = msgspec.json.Decoder(Word).decode


class OperatorWord:
    """Does what operators say of nodes, here and elsewhere."""

    def __init__(self, nodes: Nodes, fleet: Callable[[], Fleet | None]) -> None:
        self._nodes = nodes
        self._fleet = fleet

    # -- said here

    def add(self, settings: NodeSettings) -> Backend:
        """Take a node in, everywhere; raises NotAllowed for a name that is taken here."""
        backend = self._nodes.add(settings)
        self._tell(Word("add", settings.name, settings.model_dump(exclude_defaults=True)))
        return backend

    def remove(self, backend: Backend) -> None:
        """Take a node out, everywhere."""
        self._nodes.remove(backend.name)
        self._tell(Word("remove", backend.name))

    def drain(self, backend: Backend) -> None:
        """Let nothing new start on a node, from anywhere."""
        backend.drain()
        self._tell(Word("drain", backend.name))

    def resume(self, backend: Backend) -> None:
        """Use a drained node again, everywhere."""
        backend.resume()
        self._tell(Word("resume", backend.name))

    def _tell(self, word: Word) -> None:
        fleet = self._fleet()
        if fleet is not None:
            fleet.tell(TOPIC, msgspec.json.encode(word))

    # -- said elsewhere

    def hear(self, topic: str, payload: bytes) -> None:
        """Do what was done on another gateway; whatever is wrong with it is logged."""
        if topic != TOPIC:
            return  # of a newer version, or for somebody else
        try:
            word = _decode(payload[: WORD_BYTES_MAX + 1])
            self._do(word)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            logger.warning("another gateway told of nodes in words that make no sense: %s", error)
        except (NotAllowed, SettingsError) as error:
            logger.warning("what was done on another gateway cannot be done here: %s", error)

    def _do(self, word: Word) -> None:
        backend = self._nodes.get(word.name)
        if word.action == "add":
            self._add(word, backend)
        elif backend is None:
            return
        elif word.action == "remove":
            self._nodes.remove(word.name)
        elif backend.draining == (word.action == "drain"):
            return
        elif word.action == "drain":
            backend.drain()
        else:
            backend.resume()
        logger.info(
            "nodes changed on another gateway",
            extra={"node": word.name, "change": word.action},
        )

    def _add(self, word: Word, backend: Backend | None) -> None:
        if word.node.get("api_key_env"):  # a store is no place from which to name our secrets
            raise NotAllowed(f"node {word.name!r} names a secret; add it in the settings file")
        settings = parse_node({**word.node, "name": word.name})
        if backend is None:
            self._nodes.add(settings)
        elif backend.settings.url != settings.url:
            raise NotAllowed(
                f"there is a node {word.name!r} already, at {backend.settings.url}, "
                f"not at {settings.url}"
            )
