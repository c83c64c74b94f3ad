"""`forebay reload`: have a running gateway read its settings again."""

from __future__ import annotations

from typing import Any

from forebay.cli.gateway import AsJson, GatewayClient, GatewayUrl, KeyEnv
from forebay.cli.output.console import tell, tell_json
from forebay.cli.output.text import printable


def reload(url: GatewayUrl = None, key_env: KeyEnv = "", as_json: AsJson = False) -> None:
    """Reload the settings of a running gateway.

    Nodes, keys, models, queue and retry limits change at once; for anything else the gateway says
    no and names the restart that it needs. Settings with a mistake change nothing.
    """
    reply = GatewayClient(url, key_env).insist("POST", "/admin/reload", dict[str, Any])
    if as_json:
        tell_json(reply.raw)
        return
    changed = reply.value.get("changed")
    names = [printable(name) for name in changed] if isinstance(changed, list) else []
    tell(
        f"Settings reloaded; changed: {', '.join(names)}."
        if names
        else "Settings reloaded; nothing changed."
    )
