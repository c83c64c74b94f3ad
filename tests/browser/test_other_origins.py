"""Pages of other sites that call the gateway from a visitor's browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = """async (url) => {
  const headers = {"content-type": "application/json", "authorization": "Bearer x"};
  const body = JSON.stringify({model: "none", messages: []});
  try {
    const reply = await fetch(url, {method: "POST", headers, body});
    return [reply.status, (await reply.json()).error.code];
  } catch (error) {
    return [0, String(error)];
  }
}"""


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_console_says_why_a_page_may_not_call(site: Site, allowed: bool) -> None:
    other = await site.node()
    origin = f"http://127.0.0.1:{other.port}"  # its pages are what it answers to GET
    await site.start(other, server={"cors_origins": [origin] if allowed else []})
    page = await site.blank()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    await page.goto(f"{origin}/health")
    result: Any = await page.evaluate(CALL, f"{site.url}/v1/chat/completions")
    site.complaints.clear()
    site.asked.clear()
    if allowed:
        assert result == [404, "model_not_found"]
    else:
        assert result[0] == 0
        assert any("'Access-Control-Allow-Origin'" in line and origin in line for line in said)
