"""Every error there is, and the only mapping from an error's code to an HTTP status.

The reference page `docs/reference/errors.md` is generated from this table.
"""

from typing import Literal

import msgspec

Retry = Literal["later", "never", "unsaid"]
MEANT_JAPANESE = "{message}（もしかして: {names}）"
"""A message with suggested names."""
THERE_ARE_JAPANESE = "{message}（利用できるモデル: {names}）"
"""A message with some of the available names."""


class Code(msgspec.Struct, frozen=True):
    """One kind of error."""

    status: int
    meaning: str
    """When it happens, in a sentence; for the reference."""
    remedy: str
    """What the caller or the operator can do: the error's `hint`, where there is one in Japanese."""
    retry: Retry = "unsaid"
    japanese: str = ""
    """The message for callers who prefer Japanese."""
    hint_japanese: str = ""
    """The remedy in Japanese; empty where the message says it all, and no hint is sent."""
    retry_after: bool = False
    """Whether `Retry-After` and `retry-after-ms` are sent."""
    retry_after_is_exact: bool = False
    """Whether they say when it will work, however late, and are not spread and capped."""


def _later(
    status: int, meaning: str, remedy: str, japanese: str, hint: str = "", *, exact: bool = False
) -> Code:
    return Code(status, meaning, remedy, "later", japanese, hint, True, exact)


def _never(status: int, meaning: str, remedy: str, japanese: str, hint: str = "") -> Code:
    return Code(status, meaning, remedy, "never", japanese, hint)


CODES: dict[str, Code] = {
    "queue_full": _later(
        429,
        "The queue is full (`queue.max_size`, `queue.max_bytes`), or was, and a request of a higher "
        "class took this one's place (`queue.when_full`); or the request would wait over twice "
        "`queue.max_wait_seconds`.",
        "Try again after `Retry-After`. If this persists, raise `queue.max_size` or "
        "`queue.max_bytes`, or add nodes.",
        "キューが満杯です（すべてのノードが過負荷です）",
        "`Retry-After` の後に再試行してください。続く場合は `queue.max_size` か `queue.max_bytes` を上げるか、ノードを追加してください。",
    ),
    "user_queue_full": _later(
        429,
        "This user or key has reached its limit of waiting or running requests.",
        "Wait for earlier requests to end. The limits are `queue.max_per_user` and the key's "
        "`max_running`.",
        "このユーザーのリクエストが上限に達しています",
        "先のリクエストの完了をお待ちください。上限は `queue.max_per_user` とキーの `max_running` です。",
    ),
    "queue_timeout": _later(
        504,
        "The request waited longer than `queue.max_wait_seconds` for a free slot.",
        "Try again later. If this persists, raise `queue.max_wait_seconds`, or add nodes.",
        "キュー待機タイムアウト",
        "後で再試行してください。続く場合は `queue.max_wait_seconds` を上げるか、ノードを追加してください。",
    ),
    "queue_disabled": _later(
        503,
        "Every slot is in use and the queue is off.",
        "Try again later. To let requests wait: `queue.enabled = true` and `queue.max_size` "
        "above 0.",
        "すべてのノードが使用中で、キューは無効です",
        "後で再試行してください。待機させるには `queue.enabled = true` とし、`queue.max_size` を 1 以上にしてください。",
    ),
    "stream_not_queued": _later(
        503,
        'Every slot is taken and streams do not wait (`queue.stream = "reject"`).',
        'Ask without `stream`, or try again later. To let streams wait: `queue.stream = "queue"`.',
        "すべてのノードが使用中で、ストリームは待機できません",
        '`stream` なしで送るか、後で再試行してください。ストリームを待機させるには `queue.stream = "queue"` としてください。',
    ),
    "deadline_unreachable": Code(
        429,
        "The estimated wait is longer than the caller's own `X-Forebay-Max-Wait`.",
        "Send a longer `X-Forebay-Max-Wait`, or none.",
        "never",
        "指定された待ち時間では処理できません",
        hint_japanese="`X-Forebay-Max-Wait` を長くするか、省略してください。",
        retry_after=True,
    ),
    "rate_limited": Code(
        429,
        "The key is over its rate (`requests_per_minute`, `tokens_per_minute`, `tokens_per_day`), and "
        "would be for longer than the request may wait.",
        "Try again after `Retry-After`: then the rate allows it. The `x-ratelimit-*` headers say how "
        "much is left; the limits are those of the key in `[[keys]]`.",
        "later",
        "このキーのレート上限を超えており、待ち時間内に処理できません",
        "`Retry-After` の後に再試行してください。残りは `x-ratelimit-*` ヘッダーで分かります。上限は `[[keys]]` のキーの設定です。",
        retry_after=True,
        retry_after_is_exact=True,
    ),
    "model_not_found": _never(
        404,
        "No node has this model.",
        "See `GET /v1/models` for the available models; `models.aliases` defines other names.",
        "モデルが見つかりません",
        "利用できるモデルは `GET /v1/models` で確認できます。別名は `models.aliases` で付けられます。",
    ),
    "route_not_supported": _never(
        404,
        "The model is known, but its nodes do not speak this API family, or none of them has this "
        "route: `cause` says what the last one answered.",
        "Use a route that the node serves: `GET /v1/models` and `GET /api/tags` list what each family "
        "has. Some servers must be started for a route, such as llama.cpp with `--embeddings`.",
        "このモデルはこの API では利用できません",
        "ノードが対応する API を使ってください。`GET /v1/models` と `GET /api/tags` で確認できます。",
    ),
    "model_loading": _later(
        503,
        "Every node that has the model is still loading or starting.",
        "Try again in a moment.",
        "モデルを読み込み中です",
        "しばらくしてから再試行してください。",
    ),
    "no_node": _later(
        503,
        "The model is known, but every node that has it is offline.",
        "Look at `forebay nodes list`; start the node, or add one with `forebay nodes add URL`.",
        "利用できるノードがありません",
        "`forebay nodes list` を確認し、ノードを起動するか `forebay nodes add URL` で追加してください。",
    ),
    "shutting_down": _later(
        503,
        "The gateway is shutting down.",
        "Try again: another replica, or the same one after its restart.",
        "ゲートウェイは停止処理中です",
        "別のレプリカか、再起動後に再試行してください。",
    ),
    "coordination_lost": _later(
        503,
        "The gateways of a fleet cannot coordinate, and this gateway's share of the slots is in use.",
        "Try again, here or at another replica. It recovers by itself when the store of "
        "`coordination.url` can be reached again.",
        "ゲートウェイ間の連携が失われています",
        "再試行するか、別のレプリカに送ってください。`coordination.url` のストアに接続できれば自動的に復旧します。",
    ),
    "replica_unavailable": _later(
        503,
        "The session or request belongs to another gateway of the fleet, which is down or "
        "unreachable from the one that was asked.",
        "Try again: the session or request is available again when that gateway is back. If this persists, look at that "
        "gateway, and at its `coordination.advertise`.",
        "担当するゲートウェイに接続できません",
        "再試行してください。続く場合は、そのゲートウェイと `coordination.advertise` を確認してください。",
    ),
    "replica_lost": _never(
        502,
        "The gateway that has the session or request did not answer: the call may or may not have "
        "been executed.",
        "Check before you retry: `GET /session/{id}/pending-prompts`, or the session's events.",
        "担当するゲートウェイからの応答がありません",
        "再送する前に `GET /session/{id}/pending-prompts` かイベントを確認してください。",
    ),
    "too_many_connections": _later(
        503,
        "The gateway has reached its limit of connections (`server.connections_max`), of event streams "
        "or of uploads, or the key its share of those.",
        "Use fewer connections, or raise `server.connections_max`.",
        "接続数が上限に達しています",
        "接続を減らすか、`server.connections_max` を上げてください。",
        exact=True,
    ),
    "cancelled": _never(
        499,
        "Cancelled with `DELETE /v1/queue/{id}`, or by an admin.",
        "Nothing needs to be done.",
        "リクエストは取り消されました",
    ),
    "node_failed": Code(
        502,
        "The node failed (no connection, connection lost, invalid response), and the attempts or the "
        "retry budget are used up; or it answered with an error after a stream had begun.",
        "See `cause`, and `forebay nodes list` for the node; `retry.attempts` and `retry.budget` "
        "bound the retries.",
        "unsaid",
        "ノードでエラーが発生しました",
        hint_japanese="`cause` と `forebay nodes list` を確認してください。再試行の上限は `retry.attempts` と `retry.budget` です。",
    ),
    "first_byte_timeout": Code(
        504,
        "A stream did not begin within `queue.first_byte_seconds`.",
        "Look at the node, or raise `queue.first_byte_seconds`.",
        "unsaid",
        "ノードが時間内に応答を開始しませんでした",
        hint_japanese="ノードを確認するか、`queue.first_byte_seconds` を上げてください。",
    ),
    "run_timeout": Code(
        504,
        "The answer was not complete within `queue.run_seconds`.",
        "Ask for fewer tokens, or raise `queue.run_seconds`.",
        "unsaid",
        "ノードが時間内に応答を完了しませんでした",
        hint_japanese="トークン数を減らすか、`queue.run_seconds` を上げてください。",
    ),
    "chunk_timeout": Code(
        504,
        "The node went silent for longer than `queue.chunk_gap_seconds` in mid-answer.",
        "Look at the node, or raise `queue.chunk_gap_seconds`.",
        "unsaid",
        "ノードの応答が途中で途絶えました",
        hint_japanese="ノードを確認するか、`queue.chunk_gap_seconds` を上げてください。",
    ),
    "invalid_request": _never(
        400,
        "Not valid JSON, too deep, not UTF-8, or a field is missing or of the wrong type.",
        "See `param` for the field.",
        "リクエストが正しくありません",
    ),
    "unsupported": _never(
        400,
        "Something that this gateway does not offer: HTTP/2, WebSocket, `CONNECT`, multipart, "
        "stored responses. 505 for another version of HTTP, 417 for an `Expect` other than "
        "`100-continue`.",
        "See `param` and the message.",
        "サポートされていない機能です",
    ),
    "body_too_large": _never(
        413,
        "The body is larger than `server.body_max_bytes`, or comes in too many pieces.",
        "Send a smaller body, or raise `server.body_max_bytes`.",
        "リクエスト本文が大きすぎます",
        "本文を小さくするか、`server.body_max_bytes` を上げてください。",
    ),
    "headers_too_large": _never(
        431,
        "The request head is larger than 64 KiB or has more than 128 headers.",
        "Send fewer headers.",
        "リクエストヘッダーが大きすぎます",
        "ヘッダーを減らしてください。",
    ),
    "request_timeout": _never(
        408,
        "The request took too long to arrive (`server.header_seconds`, `body_seconds`).",
        "Send faster, or raise `server.header_seconds` or `server.body_seconds`.",
        "リクエストの受信がタイムアウトしました",
        "速く送るか、`server.header_seconds` か `server.body_seconds` を上げてください。",
    ),
    "unauthorized": _never(
        401,
        "No key, a wrong one, or one that was revoked.",
        "Send `Authorization: Bearer KEY` or `x-api-key: KEY`; `forebay keys new NAME` creates a "
        "key.",
        "API キーが正しくありません",
        "`Authorization: Bearer KEY` か `x-api-key: KEY` を送ってください。キーは `forebay keys new NAME` で作れます。",
    ),
    "forbidden": _never(
        403,
        "The key may not do this (a model it does not have, an admin route).",
        "Use another key; `keys.models` and `keys.admin` say what a key may do.",
        "この操作は許可されていません",
        "別のキーを使ってください。権限は `keys.models` と `keys.admin` で決まります。",
    ),
    "guard_refused": _never(
        403,
        "A guard may not register: `guard.token_env` is not set, or its token differs.",
        "Put the same token into the variables that `guard.token_env` (gateway) and `--token-env` (guard) name.",
        "ガードの登録は許可されていません",
        "ゲートウェイの `guard.token_env` とガードの `--token-env` の変数に同じトークンを設定してください。",
    ),
    "forbidden_host": _never(
        403,
        "The Host or Origin header is not one that this gateway answers to.",
        "Use the gateway's own address, or name the host in `server.allowed_hosts`, the page's "
        "origin in `server.cors_origins`.",
        "このホスト名では利用できません",
        "ゲートウェイ自身のアドレスを使うか、`server.allowed_hosts`（ページの場合は `server.cors_origins`）に追加してください。",
    ),
    "not_found": _never(
        404,
        "There is no such route or resource.",
        "See `/openapi.json` for the available routes.",
        "見つかりません",
    ),
    "method_not_allowed": _never(
        405,
        "The route exists, but not for this method.",
        "See `/openapi.json` for the available routes.",
        "このメソッドは使用できません",
        "`/openapi.json` を参照してください。",
    ),
    "conflict": _never(
        409,
        "A conflict with the present state: the name of a node or key that is taken, a file that a batch still "
        "needs, a batch that has ended.",
        "See the message.",
        "現在の状態と競合しています",
    ),
    "file_too_large": _never(
        413,
        "The uploaded file is larger than 200 MiB.",
        "Split the file.",
        "ファイルが大きすぎます",
        "ファイルを分割してください。",
    ),
    "files_full": _never(
        409,
        "The caller already has 10,000 files, or 10 GiB of them.",
        "Delete files that are no longer needed.",
        "保存できるファイルの上限に達しています",
        "不要なファイルを削除してください。",
    ),
    "batches_full": _later(
        429,
        "The caller already has 100 unfinished batches.",
        "Wait for one to end, or cancel one.",
        "未完了のバッチが上限に達しています",
        "バッチの完了を待つか、取り消してください。",
    ),
    "store_unavailable": _later(
        503,
        "The database of jobs, keys or sessions, or the folder of files, cannot be used.",
        "See the gateway's log, and `jobs.database` and `sessions.database`.",
        "データベースを利用できません",
        "ゲートウェイのログと `jobs.database`、`sessions.database` を確認してください。",
    ),
    "job_queue_full": _later(
        429,
        "The queue of this job type is full (`jobs.max_queue_depth`), or the key holds its share of it; "
        "the job is stored as failed, under the `id` in the body.",
        "Submit it again later, or raise `jobs.max_queue_depth`.",
        "このタイプのジョブが上限に達しています",
        "後で再送するか、`jobs.max_queue_depth` を上げてください。",
    ),
    "prompt_queue_full": _later(
        503,
        "This session has reached its limit of pending prompts (`sessions.max_pending_prompts`), "
        "the running one included. The body differs from other errors: `{code, error, sessionId, "
        "limit, pendingCount}`.",
        "Wait for a turn to end (the event `turn_complete` or `turn_error` says when), or raise "
        "`sessions.max_pending_prompts`.",
        "このセッションの待機中プロンプトが上限に達しています",
    ),
    "branch_queue_full": _later(
        503,
        "16 branches of this session are already waiting.",
        "Wait for one of them.",
        "このセッションの待機中ブランチが上限に達しています",
        "いずれかのブランチの完了をお待ちください。",
    ),
    "too_many_sessions": _later(
        503,
        "The gateway has reached its limit of sessions (`sessions.max_sessions`), or the key its share "
        "of them.",
        "Close sessions that are no longer needed, or raise `sessions.max_sessions`.",
        "セッション数が上限に達しています",
        "不要なセッションを終了するか、`sessions.max_sessions` を上げてください。",
        exact=True,
    ),
    "session_not_found": _never(
        404,
        "There is no session with this id, or it belongs to another key.",
        "Create one with `POST /session`; `sessions.idle_seconds` says how long an idle one is kept.",
        "セッションが見つかりません",
        "`POST /session` で作成してください。保持期間は `sessions.idle_seconds` です。",
    ),
    "prompt_not_found": _never(
        404,
        "The session has no prompt with this id, or no longer remembers it (200 turns).",
        "See `GET /session/{id}/pending-prompts`.",
        "プロンプトが見つかりません",
        "`GET /session/{id}/pending-prompts` を参照してください。",
    ),
    "session_closing": _never(
        409,
        "The session is closing.",
        "Create another with `POST /session`.",
        "セッションは終了処理中です",
        "`POST /session` で作成し直してください。",
    ),
    "history_too_large": _never(
        413,
        "The system prompt and this prompt do not fit into the model's context beside an answer, "
        "or the prompt is larger than 512 KiB.",
        "Send a shorter prompt, or use a model with a larger context.",
        "プロンプトがモデルのコンテキストに収まりません",
        "プロンプトを短くするか、コンテキストの大きいモデルを使ってください。",
    ),
    "internal_error": Code(
        500,
        "A bug in the gateway; its log has the details.",
        "Please report it.",
        "unsaid",
        "内部エラーが発生しました",
        hint_japanese="報告をお願いします。",
    ),
}
