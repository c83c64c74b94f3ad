"""Rows 61, 62, 65-67, 82 and 83: keys, junk names, pages, foreign hosts and proxies."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from forebay.gateway.hot.keys import KeyRing
from forebay.settings import KeySettings, Settings, resolve_keys
from harness.function_calls import functions_called

from .conftest import ADMIN, CHAT, FIRST, PROMPT, SECOND, bearer, key

if TYPE_CHECKING:
    from forebay.testing import Reply

    from .conftest import FaultRig

ROUTES = [
    ("POST", CHAT), ("POST", "/v1/completions"), ("POST", "/v1/messages"), ("POST", "/api/chat"),
    ("POST", "/v1/embeddings"), ("GET", "/v1/models"), ("GET", "/api/tags"), ("GET", "/v1/queue"),
    ("GET", "/v1/queue/x"), ("DELETE", "/v1/queue/x"), ("GET", "/metrics"), ("GET", "/admin/nodes"),
    ("POST", "/admin/nodes"), ("POST", "/admin/reload"), ("POST", "/admin/nodes/n1/drain"),
]  # fmt: skip
NO_KEYS = [
    "' OR 1=1 --", "'; DROP TABLE keys; --", "*", "sk-*", "%", "_", "sk-f????-0123456789",
    "return redis.call('keys','*')", "${jndi:ldap://x}", "../../etc/passwd", "\\0", "null", "None",
    "true", "0", "Bearer", FIRST[:-1], FIRST + "x", FIRST.upper(), FIRST[::-1], f"{FIRST},{SECOND}",
    f'"{FIRST}"', sha256(FIRST.encode()).hexdigest(), "first", "\xfc\xff", "x" * 50_000,
]  # fmt: skip


def said(reply: Reply) -> object:
    """Return the code of an error in any dialect."""
    if "json" not in reply.headers["content-type"]:
        return None
    error = reply.json.get("error")
    return error["code"] if isinstance(error, dict) else reply.json.get("code")


async def send(rig: FaultRig, method: str, path: str, headers: dict[str, str]) -> Reply:
    return await rig.get(path, headers, method, body={"model": "none"} if method == "POST" else b"")


async def started(rig: FaultRig) -> None:
    node = await rig.node()
    keys = [key("first", models=["m"]), key("second"), key("admin", admin=True)]
    await rig.start(node, keys=keys, server={"public_status": False})
    rig.headers = bearer(ADMIN)


@pytest.mark.parametrize("secret", NO_KEYS)
async def test_fault_61_text_that_means_something_elsewhere_is_just_a_wrong_key(
    rig: FaultRig, secret: str
) -> None:
    await started(rig)
    for method, path in ROUTES:
        for headers in ({"authorization": f"Bearer {secret}"}, {"x-api-key": secret}):
            rig.headers = {}
            reply = await send(rig, method, path, headers)
            assert (reply.status, said(reply)) == (401, "unauthorized")
            assert reply.headers["www-authenticate"] == "Bearer"
            assert secret not in reply.body.decode() or len(secret) < 8
    rig.headers = bearer(ADMIN)


def steps_of(ring: KeyRing, secret: str) -> list[str]:
    """Return which functions are called, in order, to find out whether a key is valid."""
    found: list[object] = []
    called = functions_called(lambda: found.append(ring.find(secret.encode())))
    assert found == [None]
    return called


def test_fault_61_a_wrong_key_takes_the_same_steps_wherever_it_differs() -> None:
    """The digest is taken of all of it, and looked up; nothing is compared piece by piece."""
    texts = [FIRST, *(f"sk-{number:020}" for number in range(100))]
    variables = {f"K{number}": text for number, text in enumerate(texts)}
    keys = tuple(KeySettings(name=name, key_env=name) for name in variables)
    ring = KeyRing(resolve_keys(Settings(keys=keys), variables))
    steps = steps_of(ring, "x" * len(FIRST))
    assert "openssl_sha256" in steps
    for near in (FIRST[:-1] + "x", FIRST[:5] + "x" * 14, "sk-" + "x" * 20, texts[-1][:-1] + "x"):
        assert steps_of(ring, near) == steps
    assert ring.find(FIRST.encode()) is not None


def presented(secret: str) -> dict[str, dict[str, str]]:
    """Return every way in which people try to present a key."""
    return {
        "bearer": {"authorization": f"Bearer {secret}"},
        "bearer in capitals": {"AUTHORIZATION": f"BEARER {secret}"},
        "bearer with blanks": {"authorization": f"Bearer   {secret} "},
        "x-api-key": {"x-api-key": secret},
        "X-API-Key": {"X-API-Key": f" {secret}"},
        "both": {"authorization": f"Bearer {secret}", "x-api-key": secret},
        "api-key": {"api-key": secret},
        "basic": {"authorization": f"Basic {secret}"},
        "bare": {"authorization": secret},
        "cookie": {"cookie": f"key={secret}; authorization=Bearer {secret}"},
        "proxy": {"proxy-authorization": f"Bearer {secret}"},
        "google": {"x-goog-api-key": secret},
        "nothing": {},
    }


TAKEN = ("bearer", "bearer in capitals", "bearer with blanks", "x-api-key", "X-API-Key", "both")


@pytest.mark.parametrize("way", presented(""))
async def test_fault_62_a_key_means_the_same_on_every_route_however_it_is_presented(
    rig: FaultRig, way: str
) -> None:
    await started(rig)
    rig.headers = {}
    for secret in (FIRST, SECOND, ADMIN):
        for method, path in ROUTES:
            plain = await send(rig, method, path, bearer(secret))
            reply = await send(rig, method, path, presented(secret)[way])
            if way in TAKEN:
                assert reply.status not in (401, 500)
                assert (reply.status, said(reply)) == (plain.status, said(plain))
            else:
                assert (reply.status, said(reply)) == (401, "unauthorized")
    rig.headers = bearer(ADMIN)


async def send_lines(rig: FaultRig, method: str, path: str, *lines: str) -> Reply:
    """Send a request with header lines that a mapping cannot hold."""
    client = await rig.client()
    head = (f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Length: 2", *lines, "", "{}")
    await client.send("\r\n".join(head).encode())
    return await client.reply()


GOOD, OTHER = f"Authorization: Bearer {FIRST}", f"Authorization: Bearer {SECOND}"
TWO_SECRETS = [
    (GOOD, OTHER), (GOOD, f"x-api-key: {SECOND}"), (f"X-API-Key: {FIRST}", f"x-api-key: {SECOND}"),
    (GOOD, GOOD, OTHER), (GOOD, "Authorization: Basic eA=="), (GOOD, "x-api-key:"),
    ("Authorization: Basic eA==", f"x-api-key: {FIRST}"), (GOOD, "Authorization: Bearer"),
    (GOOD, "x-api-key: wrong"), ("Authorization: Bearer wrong", f"x-api-key: {FIRST}"),
]  # fmt: skip


@pytest.mark.parametrize("lines", TWO_SECRETS)
async def test_fault_82_headers_that_name_two_secrets_are_400_on_every_route(
    rig: FaultRig, lines: tuple[str, ...]
) -> None:
    await started(rig)
    for method, path in ROUTES:
        for order in (lines, lines[::-1]):
            reply = await send_lines(rig, method, path, *order)
            assert (reply.status, said(reply)) == (400, "invalid_request")
        plain = await send_lines(rig, method, path, GOOD)
        reply = await send_lines(rig, method, path, GOOD, GOOD, f"x-api-key: {FIRST}")
        assert (reply.status, said(reply)) == (plain.status, said(plain))


async def test_fault_82_azure_s_header_names_a_secret_on_azure_s_paths_only(
    rig: FaultRig,
) -> None:
    await started(rig)
    azure, other = "/openai/deployments/none/chat/completions", f"api-key: {SECOND}"
    for lines in ((GOOD, other), (other, f"x-api-key: {FIRST}"), (f"api-key: {FIRST}", other)):
        assert said(await send_lines(rig, "POST", azure, *lines)) == "invalid_request"
    assert said(await send_lines(rig, "POST", azure, f"api-key: {FIRST}")) == "forbidden"
    assert said(await send_lines(rig, "GET", "/v1/models", GOOD, other)) is None


@pytest.mark.parametrize("name", ["Authorization", "X-API-Key", "api-key"])
async def test_fault_82_without_keys_one_header_with_two_values_is_400(
    rig: FaultRig, name: str
) -> None:
    node = await rig.node()
    await rig.start(node, server={"public_status": False})
    for method, path in ROUTES:
        reply = await send_lines(rig, method, path, f"{name}: Bearer a", f"{name.lower()}: b")
        assert (reply.status, said(reply)) == (400, "invalid_request")
        plain = await send_lines(rig, method, path, "Accept: a", "Accept: b")
        reply = await send_lines(rig, method, path, f"{name}: a", f"{name.upper()}: a")
        assert (reply.status, said(reply)) == (plain.status, said(plain))
    assert node.calls == []


@pytest.mark.parametrize("name", ["key", "api_key", "api-key", "token", "access_token", "auth"])
async def test_fault_62_a_key_in_the_query_opens_nothing(rig: FaultRig, name: str) -> None:
    await started(rig)
    rig.headers = {}
    for method, path in ROUTES:
        for query in (f"{name}={ADMIN}", f"{name}=Bearer%20{ADMIN}"):
            reply = await send(rig, method, f"{path}?{query}", {})
            assert (reply.status, said(reply)) == (401, "unauthorized")
    rig.headers = bearer(ADMIN)


async def test_fault_62_what_a_key_may_not_do_it_may_not_do_anywhere(rig: FaultRig) -> None:
    await started(rig)
    for secret in (FIRST, SECOND):
        for method, path in ROUTES:
            if path.startswith("/admin"):
                reply = await send(rig, method, path, bearer(secret))
                assert (reply.status, said(reply)) == (403, "forbidden")
    for path in (CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"):
        reply = await (await rig.ask("other", path=path, headers=bearer(FIRST))).reply()
        assert (reply.status, said(reply)) == (403, "forbidden")


async def test_fault_65_junk_names_leave_the_metrics_as_small_as_they_were(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)

    async def junk(first: int, last: int) -> set[str]:
        """Ask for models, routes and classes that nobody has; return the series there are."""
        client = await rig.client()
        for number in range(first, last):
            headers = {"x-forebay-priority": f"p{number}", "x-forebay-user": f"u{number}"}
            body = {"model": f"junk-{number}", "user": f"u{number}", "service_tier": f"t{number}"}
            await client.post(CHAT, body, headers)
            assert (await client.reply()).status == 404
            if not number % 100:
                await client.get(f"/junk/{number}")
                assert (await client.reply()).status == 404
                await client.post(f"{CHAT}?junk={number}", body)
                assert (await client.reply()).status == 404
        text = (await rig.get("/metrics")).body.decode()
        assert "junk" not in text
        return {line.rpartition(" ")[0] for line in text.splitlines()}

    before = await junk(0, 200)
    assert await junk(200, 2200) == before


HTML = "<script>alert(1)</script><img src=x onerror=alert(1)>"


async def test_fault_66_no_page_shows_a_prompt_and_no_error_is_html(rig: FaultRig) -> None:
    node = await rig.node()
    await rig.start(node)
    messages = [{"role": "user", "content": f"{PROMPT}{HTML}"}]
    await rig.ask(messages=messages, user=HTML, headers={"x-request-id": "runs"})
    call = await node.next_call()
    await rig.ask(messages=messages, user=HTML, headers={"x-request-id": "waits"})
    await rig.wait_until("waiting", 1)
    for path in ("/", "/v1/queue", "/v1/queue/runs", "/v1/queue/waits", "/metrics", "/admin/nodes",
                 "/v1/models", "/capabilities", "/openapi.json", "/ready", "/health"):  # fmt: skip
        reply = await rig.get(path)
        assert reply.status == 200
        assert PROMPT not in reply.body.decode()
        assert "onerror" not in reply.body.decode()
    assert "default-src 'none'" in (await rig.get("/")).headers["content-security-policy"]
    for path in (
        f"/{HTML.replace(' ', '+')}",
        f"/v1/models/{HTML.replace(' ', '+')}",
        "/v1/queue/<b>",
    ):
        reply = await rig.get(path)
        assert reply.status == 404
        assert reply.headers["content-type"] == "application/json"
    reply = await (await rig.ask(HTML, messages=messages)).reply()
    assert (reply.status, reply.headers["content-type"]) == (404, "application/json")
    assert PROMPT not in reply.body.decode()
    await call.answer({})


FORWARDING = [
    "x-forwarded-for", "forwarded", "x-real-ip", "via", "True-Client-IP", "CF-Connecting-IP",
    "X-Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP", "Tailscale-User-Login",
    "X-Original-Forwarded-For", "True_Client_IP",
]  # fmt: skip
FOREIGN = [
    "evil.test", "evil.test:7800", "127.0.0.1.evil.test", "localhost.evil.test", "10.0.0.1",
    "0.0.0.0", "evil-localhost", "[2001:db8::1]:80", "169.254.169.254", "xn--localhost-x",
]  # fmt: skip


@pytest.mark.parametrize("host", FOREIGN)
async def test_fault_67_a_page_that_rebinds_its_name_to_this_machine_is_403(
    rig: FaultRig, host: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    for method, path in (*ROUTES, ("GET", "/"), ("GET", "/health"), ("GET", "/nothing")):
        reply = await send(rig, method, path, {"host": host})
        if path == "/nothing":
            assert reply.status in (403, 404)
        else:
            assert (reply.status, said(reply)) == (403, "forbidden_host")
    assert node.calls == []


@pytest.mark.parametrize("origin", ["http://evil.test", "https://localhost.evil.test", "null",
                                    "http://127.0.0.1:1"])  # fmt: skip
async def test_fault_67_a_page_that_calls_the_port_directly_is_403(
    rig: FaultRig, origin: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    for method, path in ROUTES:
        reply = await send(rig, method, path, {"origin": origin})
        assert (reply.status, said(reply)) == (403, "forbidden_host")
        assert "access-control-allow-origin" not in reply.headers
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    reply = await rig.get(CHAT, preflight, "OPTIONS")
    assert (reply.status, said(reply)) == (403, "forbidden_host")
    assert origin in reply.json["error"]["message"]
    assert "server.cors_origins" in reply.json["error"]["message"]
    assert "access-control-allow-origin" not in reply.headers
    assert node.calls == []


@pytest.mark.parametrize("header", FORWARDING)
async def test_fault_83_admin_routes_are_not_for_whom_a_proxy_speaks(
    rig: FaultRig, header: str
) -> None:
    node = await rig.node()
    await rig.start(node)
    for method, path in ROUTES:
        if path.startswith("/admin"):
            reply = await send(rig, method, path, {header: "127.0.0.1"})
            assert (reply.status, said(reply)) == (403, "forbidden")
    for host in ("localhost", "127.0.0.1:9", "[::1]", "app.localhost"):
        assert (await rig.get("/admin/nodes", {"host": host})).status == 200
