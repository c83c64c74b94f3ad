"""Traces: one span per request, sent to a real receiver; nothing where nobody asked for them."""

from __future__ import annotations

import asyncio
import logging
import queue
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from re import _compiler, _constants, _parser  # type: ignore[attr-defined] # how a pattern is read
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from forebay.gateway.hot.ended import EndedBatch, EndedRequest
from forebay.gateway.traces import (
    BATCHES_MAX,
    TRACEPARENT,
    Traces,
    _bounded_session,
    open_traces,
)
from forebay.testing import FakeClock

from .conftest import OK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Rig

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
DEADLINE_S = 30.0


class Collector:
    """An OTLP receiver over HTTP."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.requests: queue.Queue[ExportTraceServiceRequest] = queue.Queue()
        self.endless = 0
        """How many MiB it answers with."""
        self.cut_off = threading.Event()
        """Set when a client has left before the end of the answer."""
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.paths.append(self.path)
                collector.requests.put(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                if not collector.endless:
                    self.send_header("content-length", "0")
                self.end_headers()
                try:
                    for _ in range(collector.endless):
                        self.wfile.write(bytes(2**20))
                except OSError:
                    collector.cut_off.set()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self) -> list[Any]:
        """Return what has come."""
        found = []
        while not self.requests.empty():
            for resource in self.requests.get().resource_spans:
                for scope in resource.scope_spans:
                    found += scope.spans
        return found

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def traces_to(url: str, monkeypatch: pytest.MonkeyPatch) -> Traces:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)  # the SDK reads it by itself
    traces = open_traces(environ)
    assert traces is not None
    return traces


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_a_request_that_waited_is_a_span_with_its_wait_node_and_tokens(
    rig: Rig, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node, traces=traces_to(collector.url, monkeypatch))
    _, call = await rig.run(node)
    parent = f"00-{TRACE}-{CALLER}-01"
    headers = {"traceparent": parent, "X-Request-Id": "mine", "X-Forebay-User": "mary"}
    [client] = await rig.line_up(1, headers=headers, content="a secret prompt")
    rig.clock.advance(2.0)
    await call.answer(OK)
    call = await node.next_call()
    assert call.headers["traceparent"] == parent  # as the caller sent it
    rig.clock.advance(3.0)
    await call.answer({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
    await client.reply()
    await rig.gateway.stop(0.0)
    spans = collector.spans()
    assert collector.paths == ["/v1/traces"]
    assert len(spans) == 2
    (span,) = (one for one in spans if one.trace_id.hex() == TRACE)
    assert span.parent_span_id.hex() == CALLER
    assert (span.name, span.kind) == ("chat m", 3)
    assert span.end_time_unix_nano - span.start_time_unix_nano == pytest.approx(5e9, abs=1e6)
    told = attributes(span)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == "m"
    assert told["gen_ai.provider.name"] == "openai"
    tokens = (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"])
    assert tokens == (7, 9)
    assert (told["server.address"], told["server.port"]) == ("127.0.0.1", node.port)
    assert told["http.response.status_code"] == 200
    assert (told["forebay.wait_ms"], told["forebay.queued"]) == (2000, True)
    assert (told["forebay.node"], told["forebay.attempt"]) == ("n1", 1)
    assert (told["forebay.priority"], told["forebay.request_id"]) == ("normal", "mine")
    assert "error.type" not in told
    assert b"mary" not in span.SerializeToString()
    assert b"secret" not in span.SerializeToString()


async def test_a_refusal_and_an_error_of_the_node_are_marked(
    rig: Rig, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    traces = traces_to(collector.url, monkeypatch)
    await rig.start(node, queue={"max_size": 0}, traces=traces)
    client, call = await rig.run(node)
    await (await rig.ask()).reply()
    await call.answer({"error": "no"}, 400)
    await client.reply()
    await rig.gateway.stop(0.0)
    refused, failed = sorted(collector.spans(), key=lambda one: attributes(one)["error.type"])[::-1]
    told = attributes(refused)
    assert told["error.type"] == told["forebay.outcome"] != "served"
    assert told["http.response.status_code"] in (429, 503)
    assert attributes(failed)["error.type"] == "400"
    assert (refused.status.code, failed.status.code) == (2, 2)


async def test_a_trace_that_its_caller_does_not_sample_is_not_sent(
    rig: Rig, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node, traces=traces_to(collector.url, monkeypatch))
    client = await rig.ask(headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    await (await node.next_call()).answer(OK)
    await client.reply()
    await rig.gateway.stop(0.0)
    assert collector.spans() == []


def test_a_hostile_traceparent_costs_no_more_than_a_plain_one() -> None:
    """Repeats side by side share no character: else a mismatch is tried at every split of them."""
    parsed = _parser.parse(TRACEPARENT.pattern, TRACEPARENT.flags)
    items: list[Any] = []
    for operation, given in parsed:
        items += given[3] if operation is _constants.SUBPATTERN else [(operation, given)]
    repeats = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
    bounded = 0
    before: set[int] = set()
    for operation, given in items:
        taken: set[int] = set()
        if operation in repeats:
            one = _compiler.compile(given[2], TRACEPARENT.flags)
            taken = {byte for byte in range(256) if one.fullmatch(bytes([byte]))}
            assert not taken & before, given
            bounded += given[1] == 256
        before = taken
    assert bounded == 1
    parent = f"00-{TRACE}-{CALLER}-01".encode()
    found = TRACEPARENT.search(b"a: b\r\ntraceparent:   %b  \r\nc: d\r\n" % parent)
    assert found is not None
    assert found[1] == parent
    for hostile in (b" " * 60_000, b"a" * 60_000, b" " * 30_000 + parent + b" " * 30_000 + b"x"):
        assert TRACEPARENT.search(b"traceparent: %b\r\n" % hostile) is None


async def test_a_collector_that_answers_without_end_is_cut_off(
    rig: Rig, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    collector.endless = 64
    await rig.start(node, traces=traces_to(collector.url, monkeypatch))
    client = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).status == 200
    await rig.gateway.stop(0.0)
    assert await asyncio.to_thread(collector.cut_off.wait, DEADLINE_S)


def test_an_answer_without_a_body_is_read_like_any_other(collector: Collector) -> None:
    body = ExportTraceServiceRequest().SerializeToString()
    answer = _bounded_session().post(collector.url, body, timeout=DEADLINE_S)
    assert (answer.status_code, answer.content) == (200, b"")


async def test_with_a_collector_that_is_away_requests_are_served_and_the_gateway_stops(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await rig.node()
    await rig.start(node, traces=traces_to("http://127.0.0.1:9", monkeypatch))
    client = await rig.ask()
    await (await node.next_call()).answer(OK)
    assert (await client.reply()).status == 200
    await rig.gateway.stop(0.0)


def test_batches_that_come_faster_than_spans_are_made_are_dropped_and_counted() -> None:
    held, entered = threading.Event(), threading.Event()

    class Slow:
        def get_tracer(self, *_: object) -> Slow:
            return self

        def start_span(self, *_: object, **__: object) -> None:
            entered.set()
            held.wait(DEADLINE_S)
            raise ValueError

        def shutdown(self) -> None:
            pass

    traces = Traces(Slow())
    batch = EndedBatch([EndedRequest("/v1/messages", "served", None, 1.0)], FakeClock().utc(), 0.0)
    traces.take(batch)
    assert entered.wait(DEADLINE_S)
    for _ in range(BATCHES_MAX + 3):
        traces.take(batch)
    assert traces.dropped == 3
    logging.disable()
    held.set()
    traces.stop()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_no_traces_are_made_unless_they_are_asked_for(environ: dict[str, str]) -> None:
    assert open_traces(environ) is None


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "must be otlp, console or none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "http/protobuf"),
    ],
)
def test_what_is_not_supported_is_said_once_and_costs_no_request(
    environ: dict[str, str], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert open_traces(environ) is None
    assert words in caplog.text


def test_without_the_extra_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    assert open_traces({"OTEL_TRACES_EXPORTER": "console"}) is None
    assert "forebay[otel]" in caplog.text


def test_a_gateway_without_traces_imports_nothing_of_opentelemetry() -> None:
    code = (
        "import sys, forebay.cli.serve.server; from forebay.gateway.traces import open_traces;"
        "assert open_traces({}) is None;"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
