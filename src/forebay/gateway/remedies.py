"""What the page says about an error code: whose matter it is, and what to do, in both languages."""

from __future__ import annotations

from functools import cache
from typing import Final

from forebay.dashboard.problems import Remedy
from forebay.dashboard.words import Words
from forebay.gateway.codes import CODES

GOOD_ENDS: Final = frozenset({"served"})
"""Outcomes that are no problem."""

_PASSED_ON: Final = Remedy(
    "caller",
    Words(
        "The node itself refused the request (a 4xx of its own), and that was passed on.",
        "ノード自身がリクエストを拒否し (4xx)、その応答をそのまま返しました。",
    ),
)

JAPANESE: Final = {
    "queue_full": "Retry-After の後に再試行してください。続く場合は queue.max_size を上げるか"
    "ノードを追加してください。",
    "user_queue_full": "先のリクエストの完了を待ってください。queue.max_per_user とキーの "
    "max_running を参照してください。",
    "session_queue_full": "同じセッションの先のリクエストを待ってください。",
    "queue_timeout": "後で再試行してください。続く場合は queue.max_wait_seconds を上げるか"
    "ノードを追加してください。",
    "queue_disabled": "queue.enabled = true とし、queue.max_size を 0 より大きくすると待機できます。",
    "stream_not_queued": 'stream なしで送るか、queue.stream = "queue" にしてください。',
    "deadline_unreachable": "X-Forebay-Max-Wait を長くしてください。",
    "model_not_found": "利用できるモデルは GET /v1/models で確認できます。",
    "route_not_supported": "ノードが対応している API を使ってください。",
    "model_loading": "しばらくしてから再試行してください。",
    "no_node": "forebay nodes list で確認し、ノードを起動するか追加してください。",
    "shutting_down": "再試行してください。別のレプリカか、再起動後のゲートウェイが応答します。",
    "too_many_connections": "接続を減らすか、server.connections_max を上げてください。",
    "cancelled": "対応は不要です。",
    "node_failed": "ノードのログを確認してください。原因は cause に示されます。",
    "first_byte_timeout": "ノードを確認するか、queue.first_byte_seconds を上げてください。",
    "run_timeout": "トークン数を減らすか、queue.run_seconds を上げてください。",
    "chunk_timeout": "ノードを確認するか、queue.chunk_gap_seconds を上げてください。",
    "invalid_request": "param が示すフィールドを確認してください。",
    "unsupported": "param とメッセージを確認してください。",
    "body_too_large": "本文を小さくするか、server.body_max_bytes を上げてください。",
    "headers_too_large": "ヘッダーを減らしてください。",
    "request_timeout": "送信が遅すぎます。server.header_seconds と server.body_seconds を"
    "参照してください。",
    "unauthorized": "Authorization: Bearer KEY または x-api-key: KEY を送ってください。",
    "forbidden": "別のキーを使ってください。",
    "forbidden_host": "ゲートウェイ自身のアドレスを使うか、server.allowed_hosts または "
    "server.cors_origins を設定してください。",
    "not_found": "/openapi.json を参照してください。",
    "method_not_allowed": "/openapi.json を参照してください。",
    "conflict": "メッセージを確認してください。",
    "file_too_large": "ファイルを分割してください。",
    "files_full": "不要なファイルを削除してください。",
    "batches_full": "いずれかの完了を待つか、取り消してください。",
    "store_unavailable": "ログを確認してください。jobs.database と sessions.database を"
    "参照してください。",
    "job_queue_full": "後で再送するか、jobs.max_queue_depth を上げてください。",
    "prompt_queue_full": "ターンの完了を待ってください。sessions.max_pending_prompts を"
    "参照してください。",
    "branch_queue_full": "先のブランチを待ってください。",
    "too_many_sessions": "不要なセッションを終了するか、sessions.max_sessions を上げてください。",
    "session_not_found": "POST /session で作成してください。",
    "prompt_not_found": "GET /session/{id}/pending-prompts を参照してください。",
    "session_closing": "POST /session で新しく作成してください。",
    "history_too_large": "送る量を減らすか、コンテキストの大きいモデルを使ってください。",
    "internal_error": "ログを確認し、不具合として報告してください。",
}


@cache
def remedy_of(code: str) -> Remedy:
    """Return what the page says about a code."""
    known = CODES.get(code)
    if known is None:  # `passed_through`: the only outcome that is no code of ours
        return _PASSED_ON
    english = known.remedy.replace("`", "")
    return Remedy(_kind(code, known.status), Words(english, JAPANESE[code]))


def _kind(code: str, status: int) -> str:
    """Say whose matter it is: the queue's, a node's or ours, or the caller's."""
    if status in (429, 503) or code == "queue_timeout":
        return "error" if code == "store_unavailable" else "rejection"
    return "error" if status >= 500 else "caller"
