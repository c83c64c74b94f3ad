"""Present problems, and what to do about them.

A pure function of one state. Each rule covers one kind of trouble; the worst come first, and only
as many are returned as anyone would read. Rules cover what lasts: what happened once is in the list
of recent errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from forebay.api.events import (
    FleetSnapshot,
    ModelSnapshot,
    NodeSnapshot,
    QueueSnapshot,
    TroubleSnapshot,
    Words,
)
from forebay.dashboard.fleet import fleet_troubles
from forebay.dashboard.snapshot import duration

SHOWN_MAX: Final = 8
NAMED_MAX: Final = 3
"""Nodes that are named one by one; when more are offline at once, it is one trouble."""
NEARLY_FULL: Final = 0.8
JUST_NOW_S: Final = 2.0
LONG_LOAD_S: Final = 120.0
"""A model that loads for longer than this is stuck, or on a slow disk."""
ERROR_CHARS_MAX: Final = 200
_LEVELS: Final = ("error", "warning", "info")


class ObservedState(Struct, frozen=True):
    """The input of the rules."""

    queue: QueueSnapshot
    models: Sequence[ModelSnapshot]
    nodes: Sequence[NodeSnapshot]
    draining: bool
    searching: bool
    """Whether nodes are still being looked for or started."""
    wait_s_max: float
    refused: dict[str, int]
    """What the queue rejected in the last minute, by code, the most common first."""
    remedy: Words
    """What to do about the most common of these."""
    fleet: FleetSnapshot | None = None
    """The gateways that share the queue, where it is shared."""
    lost_files: Sequence[str] = ()
    """The settings of databases whose files were deleted or replaced under the gateway."""
    unreadable_keys: int = 0


Troubles: TypeAlias = Iterator[TroubleSnapshot]


def find_troubles(moment: ObservedState) -> list[TroubleSnapshot]:
    """Return what is wrong, the worst first."""
    found = [
        *_gateway(moment),
        *_lost_files(moment),
        *_unreadable_keys(moment),
        *(fleet_troubles(moment.fleet) if moment.fleet else ()),
        *_no_node(moment),
        *_offline(moment),
        *_stranded(moment),
        *_full(moment),
        *_refusing(moment),
        *_long_waits(moment),
        *_failing(moment),
        *_loading(moment),
        *_drained(moment),
        *_simulated(moment),
    ]
    return sorted(found, key=lambda trouble: _LEVELS.index(trouble.level))[:SHOWN_MAX]


def _gateway(moment: ObservedState) -> Troubles:
    if moment.draining:
        yield TroubleSnapshot(
            "warning", "shutting_down",
            Words("This gateway is shutting down: new requests are refused.",
                  "このゲートウェイは停止処理中です。新しいリクエストは受け付けません。"),
            Words("Running requests may finish; clients are asked to retry.",
                  "実行中の処理は完了まで続きます。呼び出し元には再試行が案内されます。"),
        )  # fmt: skip


def _lost_files(moment: ObservedState) -> Troubles:
    for name in moment.lost_files:
        yield TroubleSnapshot(
            "error", "database_lost",
            Words(f"The file of {name} was deleted or replaced while in use: what would be stored "
                  "there is refused (503 store_unavailable). Live requests go on.",
                  f"使用中の {name} のファイルが削除または置き換えられました。保存が必要な"
                  "リクエストは拒否します (503 store_unavailable)。他の処理は続けます。"),
            Words("Put the file back, or restart the gateway: it goes on with what is there then.",
                  "ファイルを元に戻すか、ゲートウェイを再起動してください。"),
        )  # fmt: skip


def _unreadable_keys(moment: ObservedState) -> Troubles:
    if count := moment.unreadable_keys:
        yield TroubleSnapshot(
            "warning", "key_unreadable",
            Words(f"{count} API key{'s' if count > 1 else ''} in the database cannot be read and "
                  "will be refused.",
                  f"データベースの API キー {count} 件を読み取れないため、拒否します。"),
            Words("The log and the list of keys name them: revoke them and create them anew.",
                  "ログとキー一覧に名前があります。失効させてから作り直してください。"),
        )  # fmt: skip


def _no_node(moment: ObservedState) -> Troubles:
    if moment.searching or any(node.state in ("online", "loading") for node in moment.nodes):
        return
    if not moment.nodes:
        yield TroubleSnapshot(
            "error", "no_node",
            Words("There is no node: no request can be served.",
                  "ノードがありません。リクエストに応答できません。"),
            Words("Start Ollama, llama.cpp or vLLM, then: forebay nodes add URL",
                  "Ollama、llama.cpp、vLLM などを起動し、次を実行してください: "
                  "forebay nodes add URL"),
        )  # fmt: skip
    else:
        yield TroubleSnapshot(
            "error", "no_node",
            Words("No node is up: new requests wait at first, later ones are refused (503 no_node).",
                  "稼働中のノードがありません。新しいリクエストはしばらく待機し、"
                  "その後は拒否されます (503 no_node)。"),
            Words("Start one of the nodes below, or resume one that is draining.",
                  "下のノードを起動するか、ドレイン中のノードを再開してください。"),
        )  # fmt: skip


def _offline(moment: ObservedState) -> Troubles:
    offline = [node for node in moment.nodes if node.state == "offline"]
    if moment.searching:
        offline = [node for node in offline if node.last_error]
    if len(offline) > NAMED_MAX:
        names = ", ".join(node.name for node in offline[:NAMED_MAX])
        count, of = len(offline), len(moment.nodes)
        yield TroubleSnapshot(
            "error", "nodes_offline",
            Words(f"{count} of {of} nodes are offline: {names} and {count - NAMED_MAX} more.",
                  f"{of} 台中 {count} 台のノードがオフラインです: {names} ほか"
                  f" {count - NAMED_MAX} 台。"),
            Words("If so many fail at once, check the network between this machine and them.",
                  "同時に多数の場合、ネットワークの障害がよくある原因です。"),
            max(node.state_seconds for node in offline),
        )  # fmt: skip
        return
    for node in offline:
        since, error = _offline_since(node), _last_error(node)
        yield TroubleSnapshot(
            "error", "node_offline",
            Words(since.en + error.en, since.ja + error.ja),
            Words("Start its server again (it is then used automatically), or remove it with: "
                  f"forebay nodes remove {node.name}",
                  "サーバーを起動すると自動的に復帰します。外すには: "
                  f"forebay nodes remove {node.name}"),
            node.state_seconds, node.name,
        )  # fmt: skip


def _offline_since(node: NodeSnapshot) -> Words:
    if node.state_seconds < JUST_NOW_S:
        return Words(f"Node {node.name} has just gone offline.",
                     f"ノード {node.name} がオフラインになりました。")  # fmt: skip
    lasted = duration(node.state_seconds)
    return Words(f"Node {node.name} has been offline for {lasted.en}.",
                 f"ノード {node.name} は {lasted.ja}前からオフラインです。")  # fmt: skip


def _last_error(node: NodeSnapshot) -> Words:
    if not node.last_error:
        return Words("", "")
    error = node.last_error[:ERROR_CHARS_MAX]
    return Words(f" Last error: {error}", f"最後のエラー: {error}")


def _stranded(moment: ObservedState) -> Troubles:
    for model in moment.models:
        if model.waiting and not model.slots and not moment.searching:
            yield TroubleSnapshot(
                "error", "model_offline",
                Words(f"{model.waiting} requests wait for {model.model}, and no node that has it "
                      "is up.",
                      f"{model.model} を待つリクエストが {model.waiting} 件ありますが、"
                      "稼働中のノードがありません。"),
                Words("They run as soon as one is back, or end with 503 at their limit "
                      "(queue.max_wait_seconds).",
                      "ノードが復帰すれば実行されます。上限 (queue.max_wait_seconds) に達すると "
                      "503 で終了します。"),
            )  # fmt: skip


def _full(moment: ObservedState) -> Troubles:
    queue = moment.queue
    if not queue.enabled or not queue.max_size or queue.waiting < NEARLY_FULL * queue.max_size:
        return
    advice = Words(
        "Add nodes or slots, or raise queue.max_size.",
        "ノードかスロットを増やすか、queue.max_size で待機数の上限を上げてください。",
    )
    if queue.waiting >= queue.max_size:
        yield TroubleSnapshot(
            "error", "queue_full",
            Words(f"The queue is full ({queue.waiting} of {queue.max_size}): new requests are "
                  "refused and may be retried later.",
                  f"キューが満杯です ({queue.waiting} / {queue.max_size})。"
                  "新しいリクエストには再試行を求めています。"),
            advice,
        )  # fmt: skip
    else:
        yield TroubleSnapshot(
            "warning", "queue_nearly_full",
            Words(f"The queue is nearly full: {queue.waiting} of {queue.max_size}.",
                  f"キューがまもなく満杯になります: {queue.waiting} / {queue.max_size}。"),
            advice,
        )  # fmt: skip


def _refusing(moment: ObservedState) -> Troubles:
    if moment.refused:
        count = sum(moment.refused.values())
        reasons = ", ".join(f"{code} {n}" for code, n in list(moment.refused.items())[:NAMED_MAX])
        were = "request was" if count == 1 else "requests were"
        yield TroubleSnapshot(
            "warning", "refusing",
            Words(f"{count} {were} refused in the last minute: {reasons}.",
                  f"直近 1 分間に {count} 件のリクエストを拒否しました: {reasons}。"),
            moment.remedy,
        )  # fmt: skip


def _long_waits(moment: ObservedState) -> Troubles:
    for model in moment.models:
        wait_s = model.wait_p50_seconds
        if wait_s is None or not moment.wait_s_max or wait_s <= moment.wait_s_max:
            continue
        wait, limit = duration(wait_s), duration(moment.wait_s_max)
        yield TroubleSnapshot(
            "warning", "long_waits",
            Words(f"A new request for {model.model} would wait about {wait.en}, longer than the "
                  f"limit of {limit.en}.",
                  f"{model.model} の予想待ち時間は約 {wait.ja}で、上限の {limit.ja}を超えています。"),
            Words("Add slots for it, or allow longer waits with queue.max_wait_seconds.",
                  "スロットを増やすか、queue.max_wait_seconds で上限を上げてください。"),
        )  # fmt: skip


def _failing(moment: ObservedState) -> Troubles:
    for node in moment.nodes:
        if node.failing:
            models = ", ".join(node.failing[:NAMED_MAX])
            yield TroubleSnapshot(
                "warning", "model_failing",
                Words(f"Node {node.name} keeps failing with {models}, which is paused there for some seconds.",
                      f"ノード {node.name} で {models} の失敗が続いています。"
                      "数秒間休ませています。"),
                Words("Read that node's own log; it is retried automatically.",
                      "ノードのログを確認してください。自動的に再試行されます。"),
                None, node.name,
            )  # fmt: skip


def _loading(moment: ObservedState) -> Troubles:
    for node in moment.nodes:
        if node.state == "loading" and node.state_seconds > LONG_LOAD_S:
            lasted = duration(node.state_seconds)
            yield TroubleSnapshot(
                "warning", "node_loading",
                Words(f"Node {node.name} has been loading for {lasted.en}.",
                      f"ノード {node.name} は {lasted.ja}間、読み込み中のままです。"),
                Words("Read its log: a model that does not fit into memory never finishes loading.",
                      "ノードのログを確認してください。メモリに収まらないモデルの可能性があります。"),
                node.state_seconds, node.name,
            )  # fmt: skip


def _drained(moment: ObservedState) -> Troubles:
    for node in moment.nodes:
        if node.state == "draining" and not moment.draining:
            runs = node.in_flight
            yield TroubleSnapshot(
                "info", "node_draining",
                Words(f"Node {node.name} is draining: nothing new starts there, {runs} still "
                      f"{'runs' if runs == 1 else 'run'}.",
                      f"ノード {node.name} はドレイン中です。新しい処理は開始せず、"
                      f"実行中は {runs} 件です。"),
                Words(f"Use it again with: forebay nodes resume {node.name}",
                      f"再開するには: forebay nodes resume {node.name}"),
                node.state_seconds, node.name,
            )  # fmt: skip


def _simulated(moment: ObservedState) -> Troubles:
    if moment.nodes and all(node.simulated for node in moment.nodes):
        yield TroubleSnapshot(
            "info", "simulated",
            Words("Every answer is SIMULATED: no real model is running.",
                  "すべての応答はシミュレーションです。実際のモデルは動作していません。"),
            Words("Start a model server and add it with: forebay nodes add URL",
                  "モデルサーバーを起動し、次で追加してください: forebay nodes add URL"),
        )  # fmt: skip
