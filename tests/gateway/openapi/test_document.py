"""The description of the HTTP surface: complete, up to date, and true of a running gateway."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import hypothesis
import jsonschema_rs
import pytest
from starlette.applications import Starlette

from forebay.build import Build
from forebay.coordination.protocol.fleet import Mode, ReplicaState
from forebay.core.actions import WhyBetter
from forebay.gateway.application import CorsMiddleware, RequestIdMiddleware, make_application
from forebay.gateway.errors.rendering import family_of
from forebay.gateway.hot.admission import HOT_ROUTES
from forebay.gateway.openapi import document as openapi
from forebay.jobs.builtin import TYPES
from forebay.jobs.job import PRIORITIES

if TYPE_CHECKING:
    from schemathesis import Case, CheckContext, Response

    from forebay.testing.fake_node import Call

    from ..conftest import Rig

    AnyCase: TypeAlias = Case[Any]

ROOT = Path(__file__).parents[3]
ENDLESS = {"/events"}
"""What never ends cannot be asked for as a whole; test_dashboard reads it event by event."""
ERROR_OF = {"openai": "OpenAIError", "anthropic": "AnthropicError", "ollama": "OllamaError"}
DOCUMENT: Any = openapi.document()


def test_the_description_is_a_valid_one() -> None:
    import schemathesis  # which takes a second

    schemathesis.openapi.from_dict(DOCUMENT).validate()


async def test_every_route_is_described_and_everything_described_exists(rig: Rig) -> None:
    application = make_application((await rig.start()).parts)
    assert isinstance(application, RequestIdMiddleware)
    assert isinstance(application._app, CorsMiddleware)
    starlette = application._app._app
    assert isinstance(starlette, Starlette)
    existing = {("post", route.decode()) for route in HOT_ROUTES}
    for route in starlette.routes:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", getattr(route, "path", ""))
        methods: set[str] = getattr(route, "methods", set()) - {"HEAD"}
        existing |= {(method.lower(), path) for method in methods}
    described = {(method, path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == existing


def test_every_reference_leads_somewhere_and_nothing_is_described_in_vain() -> None:
    text = json.dumps(DOCUMENT)
    used = set(re.findall(r'"#/components/(\w+)/([^"]+)"', text))
    sections = ("schemas", "parameters", "headers", "responses")
    there = {(kind, name) for kind in sections for name in DOCUMENT["components"][kind]}
    assert used <= there
    assert {kind for kind, _ in there - used} <= {"responses"}  # made for every dialect alike


def test_choices_are_those_that_the_gateway_has() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, field, choices in (
        ("Fleet", "mode", get_args(Mode)),
        ("Replica", "state", get_args(ReplicaState)),
        ("BetterNode", "why", get_args(WhyBetter)),
        ("Capabilities", "build", get_args(Build)),
        ("JobLine", "priority", PRIORITIES),
        ("NewBatch", "endpoint", TYPES),
    ):
        assert schemas[name]["properties"][field]["enum"] == list(choices), (name, field)


def our_errors_are_our_own(_: CheckContext, response: Response, case: AnyCase) -> None:
    """No 500, and an error that no node gave is exactly what the dialect of the route says."""
    assert response.status_code != 500, response.text
    if response.status_code >= 400 and "x-forebay-node" not in response.headers:
        is_anthropic = "anthropic-version" in (case.headers or {})
        name = ERROR_OF[family_of(case.operation.path, is_anthropic).name]
        schema = {**DOCUMENT["components"]["schemas"][name], "components": DOCUMENT["components"]}
        jsonschema_rs.validate(schema, response.json())


async def answer_at_once(call: Call) -> None:
    """Be a node that never fails, in whatever way it is asked."""
    is_form = call.headers["content-type"].startswith("multipart/")
    body = {} if is_form else call.json
    wants_stream = body.get("stream")
    if wants_stream is None:
        wants_stream = call.path.startswith("/api/")
    if not wants_stream:
        await call.answer({"answer": 42})
        return
    is_ollama = call.path.startswith("/api/")
    kind = "application/x-ndjson" if is_ollama else "text/event-stream"
    await call.start_stream({"content-type": kind})
    await call.chunk(b'{"done":true}\n' if is_ollama else b"data: {}\n\n")
    await call.end()


def aimed(case: AnyCase, node_url: str) -> AnyCase:
    """Aim at what exists, wherever that does not change what is being tried."""
    body = case.body
    if isinstance(body, dict):
        model = body.get("model")
        if isinstance(model, str) and len(model) % 3 != 0:
            body["model"] = "m"
        if re.match("https?://", str(body.get("url"))):
            body["url"] = node_url  # nobody else is to be asked
        if case.operation.path == "/admin/keys":
            body["admin"] = False  # the first key would lock out what is asked next
    return case


def try_everything(base_url: str, node_url: str, examples: int) -> int:
    """Ask every operation, rightly and, where it has a body, wrongly; return how many ways."""
    import schemathesis
    from schemathesis import checks as stock

    checks: Any = [
        our_errors_are_our_own,
        stock.status_code_conformance,
        stock.content_type_conformance,
        stock.response_headers_conformance,
        stock.response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    right, wrong = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()  # what cannot be read raises here
        if operation.path in ENDLESS:
            continue
        for mode in (right, wrong) if operation.body else (right,):

            @hypothesis.settings(
                max_examples=examples, deadline=None, derandomize=True, database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )  # fmt: skip
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def holds(case: AnyCase) -> None:
                response = aimed(case, node_url).call(base_url=base_url, timeout=10)
                case.validate_response(response, checks=checks)

            holds()
            tried += 1
    return tried


@pytest.mark.parametrize("examples", [3, pytest.param(20, marks=pytest.mark.long)])
async def test_a_running_gateway_does_as_described_whatever_it_is_asked(
    rig: Rig, examples: int
) -> None:
    """So many examples per operation and mode."""
    openai, ollama = await rig.node(slots=8), await rig.node(kind="ollama", slots=8)
    openai.automatic = ollama.automatic = answer_at_once
    gateway = await rig.start(openai, ollama)
    base_url = f"http://127.0.0.1:{gateway.port}"
    tried = await asyncio.to_thread(try_everything, base_url, openai.url, examples)
    asked = [item for path, item in DOCUMENT["paths"].items() if path not in ENDLESS]
    described = [op for item in asked for op in item.values()]
    assert tried == len(described) + sum("requestBody" in operation for operation in described)
    assert len(openai.calls) > 20
    assert len(ollama.calls) > 10
