"""What clients do: each play is one conversation, drawn from its own random numbers.

Well-behaved ones are most of them, because a slot that is lost, or an answer that goes astray, is
seen by those who did nothing wrong.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from .acts import BREAKING, GOOD, LYING, REFUSING
from .oracle import CLEAR, GONE, IF_CUT, REFUSED
from .talk import CHAT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from .talk import Talk

    Play: TypeAlias = Callable[[Talk], Awaitable[None]]

QUICK = ("whole", "whole", "whole", "late", "split", "in_chunks")
SCRIPTED = [*REFUSING, *BREAKING, *LYING]


def good_script(rng: Random) -> str:
    """Return an act that ends well; the dear ones seldom."""
    return rng.choice(QUICK) if rng.random() < 0.9 else rng.choice(list(GOOD))


def bad_script(talk: Talk) -> str:
    """Return what a bad node does in its first attempts, and perhaps well at last."""
    rng = talk.rng
    acts = [rng.choice(SCRIPTED) for _ in range(rng.randint(1, 3))]
    if talk.oracle.transparent:  # who passes everything on cannot tell what came too late
        acts = ["twice" if act == "twice_later" else act for act in acts]
    return " ".join([*acts, *(["whole"] if rng.random() < 0.5 else [])])


# -- well-behaved


async def one_after_the_other(talk: Talk) -> None:
    for _ in range(talk.rng.choice((1, 2, 5, 20))):
        await talk.send(talk.ask(good_script(talk.rng)))
        await talk.hear()
        if talk.closes:
            break
    talk.close()


async def in_pieces(talk: Talk) -> None:
    ask = talk.ask(good_script(talk.rng))
    await talk.dribble(ask, talk.rng.choice((1, 2, 5, 10_000)))
    await talk.hear_all()
    talk.close()


async def pipelined(talk: Talk) -> None:
    asks = [talk.ask(good_script(talk.rng)) for _ in range(talk.rng.randint(2, 8))]
    await talk.send(*asks)
    await talk.hear_all()
    talk.close()


async def mixed_pages(talk: Talk) -> None:
    """Ask for pages and answers on one connection, pipelined or not."""
    paths = ("/health", "/v1/models", "/v1/queue", "/nothing/here", "/v1/queue/nobody", "/ready")
    asks = [
        talk.page(talk.rng.choice(paths)) if talk.rng.random() < 0.5 else talk.ask()
        for _ in range(talk.rng.randint(2, 6))
    ]
    if talk.rng.random() < 0.5:
        await talk.send(*asks)
        await talk.hear_all()
    else:
        for ask in asks:
            await talk.send(ask)
            await talk.hear()
            if talk.closes:
                break
    talk.close()


async def bad_node(talk: Talk) -> None:
    model = talk.rng.choice(("bad", "bad", "any"))
    for _ in range(talk.rng.choice((1, 3))):
        await talk.send(talk.ask(bad_script(talk), model))
        await talk.hear()
        if talk.closes:
            break
    talk.close()


async def after_a_liar(talk: Talk) -> None:
    """Ask a bad node for a plain answer: it must not be what the node sent unasked before."""
    lies = ["twice", "says_more", "too_short"]
    if not talk.oracle.transparent:
        lies += ["twice_later"] * 3
    await talk.send(talk.ask(talk.rng.choice(lies), "bad"))
    await talk.hear()
    for _ in range(3):
        if talk.closes:
            break
        await talk.send(talk.ask("whole", "bad"))
        await talk.hear()
    talk.close()


# -- leaving early


async def leaves_in_its_request(talk: Talk) -> None:
    ask = talk.ask(good_script(talk.rng), pad=talk.rng.choice((0, 300_000)), may=GONE)
    await talk.put(ask.data[: talk.rng.randrange(len(ask.data))], ask)
    await asyncio.sleep(talk.rng.choice((0.0, 0.005)))
    leave(talk)


async def leaves_after_asking(talk: Talk) -> None:
    """Leave while it waits, or runs."""
    asks = [talk.ask(good_script(talk.rng), may=GONE) for _ in range(talk.rng.choice((1, 1, 3)))]
    await talk.send(*asks)
    await asyncio.sleep(talk.rng.choice((0.0, 0.0, 0.002, 0.02, 0.1)))
    leave(talk)


async def leaves_in_its_answer(talk: Talk) -> None:
    script = talk.rng.choice(("large", "slow_stream", "split", "byte_by_byte"))
    await talk.send(talk.ask(script, may=GONE))
    await talk.hear_some(talk.rng.choice((1, 50, 400, 5_000)))
    leave(talk)


async def resets_as_the_answer_ends(talk: Talk) -> None:
    """Pipeline, and reset at about the moment at which the first answer is written."""
    rng = talk.rng
    asks = [talk.ask(rng.choice(("whole", "late")), may=GONE) for _ in range(rng.randint(2, 4))]
    await talk.send(*asks)
    if rng.random() < 0.5:
        await talk.hear_some(1)
    else:
        await asyncio.sleep(rng.uniform(0.0, 0.03))
    talk.reset()


def leave(talk: Talk) -> None:
    if talk.rng.random() < 0.7:
        talk.reset()
    else:
        talk.leave_unanswered()
        talk.close()


async def half_closes(talk: Talk) -> None:
    """Ask and say that nothing more will come: answered, or taken for gone."""
    asks = [talk.ask(good_script(talk.rng), may=GONE) for _ in range(talk.rng.choice((1, 2)))]
    await talk.send(*asks)
    await asyncio.sleep(talk.rng.choice((0.0, 0.01)))
    (await talk.open()).half_close()
    await talk.hear_all()
    talk.close()


async def stops_reading(talk: Talk) -> None:
    """Take nothing of a large answer for a while, or for ever."""
    wire = await talk.open()
    wire.stop_reading()
    await talk.send(talk.ask("large", may=GONE), talk.ask("large", may=GONE))
    await asyncio.sleep(talk.rng.choice((0.05, 0.3, 2.0)))
    if talk.rng.random() < 0.5:
        leave(talk)
        return
    wire.read_on()
    await talk.hear_all()
    talk.close()


PLAYS: list[tuple[int, Play]] = [
    (30, one_after_the_other),
    (8, in_pieces),
    (14, pipelined),
    (8, mixed_pages),
    (16, bad_node),
    (6, after_a_liar),
    (6, leaves_in_its_request),
    (14, leaves_after_asking),
    (8, leaves_in_its_answer),
    (24, resets_as_the_answer_ends),
    (5, half_closes),
    (1, stops_reading),
]
__all__ = ["CHAT", "CLEAR", "IF_CUT", "PLAYS", "REFUSED", "Play"]
