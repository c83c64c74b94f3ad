"""Every error there is, and the only mapping from an error's code to an HTTP status.

The reference page `docs/reference/errors.md` is generated from this table.
"""

from typing import Literal

import msgspec

Retry = Literal["later", "never", "unsaid"]


class Code(msgspec.Struct, frozen=True):
    """One kind of error."""

    status: int
    meaning: str
    """When it happens, in a sentence; for the reference."""
    remedy: str
    """What the caller or the operator can do."""
    retry: Retry = "unsaid"
    japanese: str = ""
    """The message for callers who prefer Japanese."""
    retry_after: bool = False
    """Whether `Retry-After` and `retry-after-ms` are sent."""


def _later(status: int, meaning: str, remedy: str, japanese: str) -> Code:
    return Code(status, meaning, remedy, "later", japanese, True)


def _never(status: int, meaning: str, remedy: str, japanese: str) -> Code:
    return Code(status, meaning, remedy, "never", japanese)


CODES: dict[str, Code] = {
    "queue_full": _later(
        429, "The queue holds as much as it may (`queue.max_size`, `queue.max_bytes`).",
        "Try again after `Retry-After`; raise the bound or add nodes if it lasts.",
        "キューが満杯です（すべてのノードが過負荷です）",
    ),
    "user_queue_full": _later(
        429, "This user or key has as much waiting or running as it may.",
        "Wait for earlier requests; see `queue.max_per_user` and the key's `max_running`.",
        "このユーザーのリクエストが上限に達しています",
    ),
    "session_queue_full": _later(
        503, "This session has as many unfinished requests as it may.",
        "Wait for earlier requests of the session.",
        "このセッションのリクエストが上限に達しています",
    ),
    "queue_timeout": _later(
        504, "It waited longer than `queue.max_wait_seconds` for a free slot.",
        "Try again later; raise the limit or add nodes if it lasts.",
        "キュー待機タイムアウト",
    ),
    "queue_disabled": _later(
        503, "Every slot is taken and the queue is off.",
        "Turn it on with `queue.enabled = true` and `queue.max_size` above 0.",
        "すべてのノードが使用中で、キューは無効です",
    ),
    "stream_not_queued": _later(
        503, "Every slot is taken and streams do not wait (`queue.stream = \"reject\"`).",
        "Ask without `stream`, or set `queue.stream = \"queue\"`.",
        "すべてのノードが使用中で、ストリームは待機できません",
    ),
    "deadline_unreachable": Code(
        429, "The estimated wait is longer than the caller's own `X-Forebay-Max-Wait`.",
        "Allow a longer wait, or do without.", "never",
        "指定された待ち時間では処理できません", True,
    ),
    "model_not_found": _never(
        404, "No node has this model.",
        "See `GET /v1/models` for the models there are.", "モデルが見つかりません",
    ),
    "route_not_supported": _never(
        404, "The model is known, but its nodes do not speak this API family.",
        "Use a route of a family that the node serves.",
        "このモデルはこの API では利用できません",
    ),
    "model_loading": _later(
        503, "Every node of the model says that it is still loading or starting.",
        "Try again in a moment.", "モデルを読み込み中です",
    ),
    "no_node": _later(
        503, "The model is known, but every node that has it is offline.",
        "Look at `forebay nodes list`; start the node or add another.",
        "利用できるノードがありません",
    ),
    "shutting_down": _later(
        503, "The gateway is shutting down.",
        "Try again: another replica, or the same one after its restart.",
        "ゲートウェイは停止処理中です",
    ),
    "too_many_connections": _later(
        503, "The gateway has as many connections as it may (`server.connections_max`).",
        "Use fewer connections, or raise the bound.", "接続数が上限に達しています",
    ),
    "cancelled": _never(
        499, "Cancelled through `DELETE /v1/queue/{id}`, or by an admin.", "Nothing.",
        "リクエストは取り消されました",
    ),
    "node_failed": Code(
        502, "The node failed, and the attempts or the retry budget are used up.",
        "See `cause`; look at the node.", "unsaid", "ノードでエラーが発生しました",
    ),
    "first_byte_timeout": Code(
        504, "A stream did not begin within `queue.first_byte_seconds`.",
        "Look at the node, or raise the limit.", "unsaid", "ノードが時間内に応答を開始しませんでした",
    ),
    "run_timeout": Code(
        504, "The answer was not complete within `queue.run_seconds`.",
        "Ask for fewer tokens, or raise the limit.", "unsaid",
        "ノードが時間内に応答を完了しませんでした",
    ),
    "chunk_timeout": Code(
        504, "The node went silent for longer than `queue.chunk_gap_seconds` in mid-answer.",
        "Look at the node, or raise the limit.", "unsaid", "ノードの応答が途中で途絶えました",
    ),
    "invalid_request": _never(
        400, "Not valid JSON, too deep, not UTF-8, or a field is missing or of the wrong type.",
        "See `param` for the field.", "リクエストが正しくありません",
    ),
    "unsupported": _never(
        400, "Something that this gateway does not offer: HTTP/2, WebSocket, multipart, stored "
        "responses.", "See `param` and the message.", "サポートされていない機能です",
    ),
    "body_too_large": _never(
        413, "The body is larger than `server.body_max_bytes`, or comes in too many pieces.",
        "Send less, or raise the bound.", "リクエスト本文が大きすぎます",
    ),
    "headers_too_large": _never(
        431, "The request head is larger than 64 KiB or has more than 128 headers.",
        "Send fewer headers.", "リクエストヘッダーが大きすぎます",
    ),
    "request_timeout": _never(
        408, "The request took too long to arrive (`server.header_seconds`, `body_seconds`).",
        "Send faster.", "リクエストの受信がタイムアウトしました",
    ),
    "unauthorized": _never(
        401, "No key, a wrong one, or one that was revoked.",
        "Send `Authorization: Bearer KEY` or `x-api-key: KEY`.", "API キーが正しくありません",
    ),
    "forbidden": _never(
        403, "The key may not do this (a model it does not have, an admin route).",
        "Use another key.", "この操作は許可されていません",
    ),
    "forbidden_host": _never(
        403, "The Host or Origin header is not one that this gateway answers to.",
        "Use its own address, or set `server.allowed_hosts` / `server.cors_origins`.",
        "このホスト名では利用できません",
    ),
    "not_found": _never(404, "There is nothing here.", "See `/openapi.json`.", "見つかりません"),
    "method_not_allowed": _never(
        405, "The route exists, but not for this method.", "See `/openapi.json`.",
        "このメソッドは使用できません",
    ),
    "conflict": _never(
        409, "It collides with what is there: a node name that is taken, a file that a batch still "
        "needs, a batch that has ended.",
        "See the message.", "現在の状態と競合しています",
    ),
    "file_too_large": _never(
        413, "The uploaded file is larger than 200 MiB.", "Split it.", "ファイルが大きすぎます",
    ),
    "files_full": _never(
        409, "The caller has 10,000 files already, or 10 GiB in them.",
        "Delete files that are not needed any more.", "保存できるファイルの上限に達しています",
    ),
    "batches_full": _later(
        429, "The caller has 100 batches already that have not ended.",
        "Wait for one to end, or cancel one.", "未完了のバッチが上限に達しています",
    ),
    "store_unavailable": _later(
        503, "The database of jobs or of sessions, or the folder of files, cannot be used.",
        "Look at the log; see `jobs.database` and `sessions.database`.",
        "データベースを利用できません",
    ),
    "job_queue_full": _later(
        429, "As many jobs of this type are queued as may be (`jobs.max_queue_depth`); the row, "
        "stored as failed, is named by `id`.",
        "Submit it again later, or raise the bound.", "このタイプのジョブが上限に達しています",
    ),
    "prompt_queue_full": _later(
        503, "This session has as many prompts pending as it may "
        "(`sessions.max_pending_prompts`), the running one included. The body is not as usual but "
        "`{code, error, sessionId, limit, pendingCount}`.",
        "Wait for a turn to end; the event `turn_complete` or `turn_error` says when.",
        "このセッションの待機中プロンプトが上限に達しています",
    ),
    "branch_queue_full": _later(
        503, "16 branches of this session wait for their turn already.",
        "Wait for one of them.", "このセッションの待機中ブランチが上限に達しています",
    ),
    "too_many_sessions": _later(
        503, "The gateway holds as many sessions as it may (`sessions.max_sessions`).",
        "End sessions that are not needed any more, or raise the bound.",
        "セッション数が上限に達しています",
    ),
    "session_not_found": _never(
        404, "There is no session of this id, or it belongs to another key.",
        "Make one with `POST /session`.", "セッションが見つかりません",
    ),
    "prompt_not_found": _never(
        404, "The session has no prompt of this id, or no longer remembers it (200 turns).",
        "See `GET /session/{id}/pending-prompts`.", "プロンプトが見つかりません",
    ),
    "session_closing": _never(
        409, "The session is being ended.", "Make another with `POST /session`.",
        "セッションは終了処理中です",
    ),
    "history_too_large": _never(
        413, "The system prompt and this prompt do not fit into the model's context beside an "
        "answer, or the prompt is larger than 512 KiB.",
        "Send less, or use a model with a larger context.",
        "プロンプトがモデルのコンテキストに収まりません",
    ),
    "internal_error": Code(
        500, "A bug of ours; the log has the details.", "Please report it.", "unsaid",
        "内部エラーが発生しました",
    ),
}  # fmt: skip
