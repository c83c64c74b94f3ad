"""What happens in the demo, scene by scene; each says what it shows, then what came of it.

Every number in a caption is measured in this very run: the demo may be believed.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Final

import httpx
from msgspec import Struct

from forebay.demo.setup import LARGE, QUEUE_MAX, SMALL

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from typing import TypeAlias

    from forebay.demo.setup import DemoSetup

    Scene: TypeAlias = Callable[["DemoCast"], Awaitable[None]]

QUESTIONS: Final = (
    "What is a forebay?",
    "Write a haiku about waiting.",
    "Explain backpressure to a child.",
    "Why is the sky blue?",
    "Name three rivers.",
)
LIMIT_S: Final = 300.0
"""How long one request may take: longer than any of the demo does."""
SCRIPT_REQUESTS: Final = 30
FLOOD_REQUESTS: Final = 70
JOBS: Final = 24
PAUSE_S: Final = 2.5
"""What a person thinks between two questions, on average."""
STEP_S: Final = 0.1
"""How often a scene looks whether what it waits for has happened."""


class DemoAnswer(Struct, frozen=True):
    """How one request ended."""

    status: int
    waited_s: float
    """In line, as the gateway says; 0 for what was refused."""
    node: str = ""


class DemoUser:
    """One user: fairness is between users, by name."""

    def __init__(self, name: str, http: httpx.AsyncClient) -> None:
        self.name = name
        self._http = http
        self.answers: list[DemoAnswer] = []

    async def ask(
        self, model: str, *, tokens: int = 40, priority: str = "normal", words: str = "Hello"
    ) -> DemoAnswer:
        """Send a chat and wait for the whole answer."""
        body = {
            "model": model,
            "max_tokens": tokens,
            "messages": [{"role": "user", "content": words}],
            "user": self.name,
        }
        got = await self._http.post(
            "/v1/chat/completions", json=body, headers={"x-forebay-priority": priority}
        )
        waited_s = int(got.headers.get("x-queue-wait-ms", 0)) / 1000.0
        answer = DemoAnswer(got.status_code, waited_s, got.headers.get("x-forebay-node", ""))
        self.answers.append(answer)
        return answer

    async def ask_many(self, count: int, model: str, *, tokens: int = 40) -> list[DemoAnswer]:
        return await asyncio.gather(*(self.ask(model, tokens=tokens) for _ in range(count)))

    async def chat_now_and_then(self, model: str, pause_s: float, chance: random.Random) -> None:
        """Ask, read the answer, think, ask again; until cancelled."""
        while True:
            await asyncio.sleep(pause_s * (0.5 + chance.random()))
            await self.ask(model, words=chance.choice(QUESTIONS))

    def take_answers(self) -> list[DemoAnswer]:
        taken, self.answers = self.answers, []
        return taken


def median_wait_s(answers: Sequence[DemoAnswer]) -> float | None:
    """Return how long the one in the middle waited; None where nobody was answered."""
    waits = [answer.waited_s for answer in answers if answer.status == 200]
    return median(waits) if waits else None


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client that any number of requests can be under way on."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    async with httpx.AsyncClient(
        base_url=url, timeout=LIMIT_S, limits=limits, trust_env=False
    ) as http:
        yield http


class DemoCast:
    """What a scene works with: the gateway, a greedy script, two people, and a plain client."""

    def __init__(
        self,
        setup: DemoSetup,
        script: DemoUser,
        people: Sequence[DemoUser],
        http: httpx.AsyncClient,
    ) -> None:
        self.setup = setup
        self.script = script
        self.people = people
        self.http = http
        self._jobs = count(1)

    def next_job(self) -> int:
        """Return a number that no job of this run has had: equal ones would be one job."""
        return next(self._jobs)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.setup.pace)

    async def until(self, happened: Callable[[], bool], limit_s: float) -> bool:
        """Wait until something has happened, but not for ever; say whether it has."""
        try:
            async with asyncio.timeout(limit_s):
                while not happened():  # noqa: ASYNC110 - a node has no event for it
                    await asyncio.sleep(STEP_S * self.setup.pace)
        except TimeoutError:
            return False
        return True

    def peoples_answers(self) -> list[DemoAnswer]:
        """Return what the two people got since the last time."""
        return [answer for person in self.people for answer in person.take_answers()]


async def quiet(cast: DemoCast) -> None:
    """Show the parts before anything happens to them."""
    cast.setup.caption(
        "Three nodes, two models, five slots. Two people chat now and then: a free slot takes "
        "each request at once.",
        "ノード 3 台、モデル 2 種、スロット 5 個。2 人がときどき会話しています。"
        "空きスロットがあれば待たずに実行されます。",
    )
    await cast.pause(10)


async def greedy_script(cast: DemoCast) -> None:
    """Fairness: one user's flood does not keep the others waiting."""
    cast.peoples_answers()
    cast.setup.caption(
        f"A greedy script sends {SCRIPT_REQUESTS} requests at once. They wait in line; "
        "nothing fails.",
        f"貪欲なスクリプトが一度に {SCRIPT_REQUESTS} 件を送信。失敗せず、列に並んで待ちます。",
    )
    flood = asyncio.ensure_future(cast.script.ask_many(SCRIPT_REQUESTS, SMALL, tokens=80))
    try:
        await cast.pause(5)
        cast.setup.caption(
            "Users take turns: when one of the two people asks, the script's backlog does not "
            "stand before them.",
            "ユーザーは交代で処理されます。人が質問しても、スクリプトの行列の後ろには回りません。",
        )
        answers = await flood
    finally:
        flood.cancel()
    people = cast.peoples_answers()
    script_s, people_s = median_wait_s(answers), median_wait_s(people)
    if script_s is not None and people_s is not None:
        sent, served = len(answers) + len(people), _served([*answers, *people])
        cast.setup.caption(
            f"Measured: the people waited {people_s:.1f} s (median), the script {script_s:.1f} s. "
            f"{served} of {sent} were answered.",
            f"実測: 人の待ち時間は {people_s:.1f} 秒 (中央値)、スクリプトは {script_s:.1f} 秒。"
            f"{sent} 件中 {served} 件に応答しました。",
        )
    await cast.pause(7)


async def urgent(cast: DemoCast) -> None:
    """Priorities: what is urgent goes first."""
    flood = asyncio.ensure_future(cast.script.ask_many(SCRIPT_REQUESTS, SMALL, tokens=80))
    try:
        await cast.pause(1)
        cast.setup.caption(
            "A long line again. In a moment one more arrives behind it, with "
            "X-Forebay-Priority: high …",
            "再び長い行列。その最後に X-Forebay-Priority: high のリクエストが到着します…",
        )
        await cast.pause(4)
        ahead = await cast.setup.waiting()
        answer = await cast.people[0].ask(SMALL, priority="high", words="Quick!")
        behind = await cast.setup.waiting()
        cast.setup.caption(
            f"… {ahead} were waiting when it came. It ran after {answer.waited_s:.1f} s, on "
            f"{answer.node}; with its answer there, {behind} were still waiting.",
            f"…到着時の待機は {ahead} 件。{answer.waited_s:.1f} 秒後に {answer.node} で実行され、"
            f"応答の時点でまだ {behind} 件が待機中でした。",
        )
        await flood
    finally:
        flood.cancel()
    await cast.pause(5)


async def dying_node(cast: DemoCast) -> None:
    """Retries: a node dies with work on it, and nobody notices."""
    setup, before = cast.setup, cast.setup.retries
    flood = asyncio.ensure_future(cast.script.ask_many(SCRIPT_REQUESTS // 2, SMALL, tokens=80))
    try:
        await cast.until(lambda: setup.running_on("gpu2") > 1, 30.0)
        lost = setup.running_on("gpu2")
        await setup.kill_node("gpu2")
        setup.caption(
            f"Node gpu2 dies with {lost} requests running on it. They, and what is sent there "
            "before its death is noticed, go back to their old places and run elsewhere.",
            f"ノード gpu2 が {lost} 件の処理中に停止。停止に気づく前に送られた分も含め、"
            "元の順番のまま列に戻り、別のノードで実行されます。",
        )
        answers = await flood
        failed = sum(answer.status != 200 for answer in answers)
        setup.caption(
            f"{setup.retries - before} attempts were retried on other nodes; {failed} requests "
            "failed. The banner says what is wrong.",
            f"別のノードでの再試行 {setup.retries - before} 回、失敗したリクエスト {failed} 件。"
            "異常はバナーに表示されます。",
        )
        await cast.pause(6)
    finally:
        flood.cancel()
        await setup.start_node("gpu2")
    setup.caption(
        "gpu2 is started again. The gateway finds it by itself: one request to try it, then all "
        "its slots.",
        "gpu2 を再起動。ゲートウェイが自動的に検出し、1 件試してから全スロットを使います。",
    )
    await cast.until(lambda: setup.state_of("gpu2") == "online", 60.0)
    await cast.pause(6)


async def overflow(cast: DemoCast) -> None:
    """Bounds: the line is only so long, and the one who fills it is the one who is refused."""
    cast.peoples_answers()
    cast.setup.caption(
        f"The script sends {FLOOD_REQUESTS} at once, but the line holds {QUEUE_MAX}. The rest get "
        "429 with an honest Retry-After.",
        f"スクリプトが {FLOOD_REQUESTS} 件を送信。列の上限は {QUEUE_MAX} 件で、"
        "残りは 429 と正確な Retry-After を受け取ります。",
    )
    flood = asyncio.ensure_future(cast.script.ask_many(FLOOD_REQUESTS, SMALL, tokens=20))
    try:
        await cast.pause(8)
        people = cast.peoples_answers()
        refused = sum(answer.status != 200 for answer in people)
        cast.setup.caption(
            "Somebody with less in line still gets in, and the script's newest gives way: of the "
            f"people's {len(people)} requests meanwhile, {refused} were refused.",
            "列に少ない人は入ることができ、スクリプトの最後尾が譲ります。この間の人の "
            f"{len(people)} 件のうち、拒否は {refused} 件。",
        )
        await flood
    finally:
        flood.cancel()
    await cast.pause(6)


async def batch(cast: DemoCast) -> None:
    """Jobs: durable, in idle capacity, grouped by model."""
    setup = cast.setup
    swaps_before = await setup.swaps()
    setup.caption(
        f"{JOBS} background jobs are submitted, two models in turn: {SMALL}, {LARGE}, {SMALL}, …",
        f"バックグラウンドジョブを {JOBS} 件投入。モデルは {SMALL} と {LARGE} が交互です。",
    )
    ids = [await _submit(cast, (SMALL, LARGE)[number % 2]) for number in range(JOBS)]
    await cast.pause(4)
    setup.caption(
        "They run only in idle slots, model by model, and give way as soon as a person asks.",
        "空きスロットだけを使い、モデルごとにまとめて実行。人が使うとすぐに譲ります。",
    )
    done = await _finished(cast, ids)
    swaps = await setup.swaps() - swaps_before
    setup.caption(
        f"{done} of {JOBS} jobs are done. They came with {JOBS - 1} changes of model; the three "
        f"nodes loaded one {swaps} times.",
        f"{JOBS} 件中 {done} 件が完了。到着順ではモデルが {JOBS - 1} 回入れ替わりますが、"
        f"3 台のノードでの読み込みは {swaps} 回でした。",
    )
    await cast.pause(7)


async def _submit(cast: DemoCast, model: str) -> int:
    params = {"messages": [{"role": "user", "content": "Summarise."}], "max_tokens": 24}
    body = {"type": "chat", "model": model, "params": params, "job_id": cast.next_job()}
    answer = await cast.http.post("/jobs", json=body)
    answer.raise_for_status()
    return int(answer.json()["id"])


async def _finished(cast: DemoCast, ids: Sequence[int]) -> int:
    """Wait until all have ended, and return how many completed."""
    completed = 0
    for job_id in ids:
        status = "queued"
        while status in ("queued", "running"):
            status = (await cast.http.get(f"/jobs/{job_id}")).json()["status"]
            await asyncio.sleep(STEP_S * cast.setup.pace)
        completed += status == "completed"
    return completed


def _served(answers: Sequence[DemoAnswer]) -> int:
    return sum(answer.status == 200 for answer in answers)


SCENES: Final[tuple[Scene, ...]] = (quiet, greedy_script, urgent, dying_node, overflow, batch)


async def play(setup: DemoSetup, chance: random.Random, *, once: bool) -> None:
    """Play all scenes, again and again unless `once`; cancel it to end it at any time."""
    async with connected(setup.url) as http:
        people = [DemoUser("person-1", http), DemoUser("person-2", http)]
        cast = DemoCast(setup, DemoUser("script", http), people, http)
        async with asyncio.TaskGroup() as group:
            chats = [
                group.create_task(one.chat_now_and_then(SMALL, PAUSE_S * setup.pace, chance))
                for one in people
            ]
            while True:
                for scene in SCENES:
                    await scene(cast)
                if once:
                    break
            for chat in chats:
                chat.cancel()
