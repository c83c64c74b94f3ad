"""OpenTelemetry traces: one span per ended request, made and sent by threads of their own.

Off unless the environment names an exporter (`OTEL_*`) and the extra is installed; a gateway
without traces calls nothing of this. Switched on, the event loop reads the caller's `traceparent`
when a request ends, and hands over a batch ten times a second. Spans follow the GenAI conventions;
they hold ids, sizes and times, no prompt, no key and no user.

Everything is bounded: batches that wait to become spans here, spans that wait to be sent in the
SDK (`OTEL_BSP_MAX_QUEUE_SIZE`). What is too much while a collector is away is dropped.

`traceparent` goes to the node as the caller sent it: the head is relayed byte for byte, so a span
of the node is a sibling of ours, in the same trace.
"""

from __future__ import annotations

import logging
import queue
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from forebay import __version__
from forebay.gateway.errors.codes import CODES
from forebay.gateway.hot.record_maker import RecordMaker
from forebay.gateway.hot.user_hash import UserHashes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

    from forebay.gateway.hot.access_record import AccessRecord
    from forebay.gateway.hot.ended import EndedBatch, EndedRequest
    from forebay.relay.exchange import Exchange
    from forebay.relay.relay import Observer

BATCHES_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 16_384
"""Of a collector: more than any of them has to say."""
STOP_S: Final = 2.0
"""How long the last spans may take to be sent."""
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
TRACEPARENT: Final = re.compile(
    rb"^traceparent: *([0-9a-f-]{55,256}) *\r?$", re.IGNORECASE | re.MULTILINE
)
OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/api/chat": "chat",
    "/v1/completions": "text_completion",
    "/api/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
    "/api/embeddings": "embeddings",
}


class Origin(NamedTuple):
    """Where a request came from and where it went."""

    traceparent: str
    node_url: str


NOWHERE: Final = Origin("", "")
ENDED_WELL: Final = ("served", "passed_through")

logger = logging.getLogger("forebay.traces")


def open_traces(environ: Mapping[str, str]) -> Traces | None:
    """Return what makes traces, where the environment asks for them; None where it does not."""
    exporter = _wanted_exporter(environ)
    if not exporter:
        return None
    try:
        return Traces(_make_provider(exporter, environ))
    except ImportError:
        logger.warning(
            "traces are off: OTEL_* variables are set, but forebay[otel] is not installed"
        )
        return None


def _wanted_exporter(environ: Mapping[str, str]) -> str:
    """Return `otlp`, `console` or nothing, as OpenTelemetry's variables say."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    has_endpoint = any(environ.get(name) for name in ENDPOINTS)
    named = environ.get("OTEL_TRACES_EXPORTER", "").strip() or ("otlp" if has_endpoint else "none")
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), "http/protobuf")
    if named == "none":
        return ""
    if named not in ("otlp", "console"):
        logger.warning("traces are off: OTEL_TRACES_EXPORTER must be otlp, console or none")
        return ""
    if named == "otlp" and protocol != "http/protobuf":
        logger.warning("traces are off: only OTLP over http/protobuf is supported")
        return ""
    return named


def _make_provider(exporter: str, environ: Mapping[str, str]) -> Any:
    """Make OpenTelemetry's part: sampler, resource, batching, all by its own variables."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    about = {"service.version": __version__}
    resource = Resource.create(about)  # has OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES in it
    if resource.attributes.get("service.name", "unknown_service").startswith("unknown_service"):  # type: ignore[union-attr]
        resource = resource.merge(Resource({"service.name": "forebay"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if exporter == "console":
        sender: Any = ConsoleSpanExporter(out=sys.stderr)  # the access log has stdout
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # A plug-in for credentials makes its own session.
        has_own = any(name.endswith("_CREDENTIAL_PROVIDER") for name in environ)
        sender = OTLPSpanExporter(session=None if has_own else _bounded_session())
    provider.add_span_processor(BatchSpanProcessor(sender))
    return provider


def _bounded_session() -> Any:
    """Return a session that reads ANSWER_BYTES_MAX of an answer at most, and then disconnects."""
    from requests import Session
    from requests.adapters import HTTPAdapter

    class BoundedAdapter(HTTPAdapter):
        def send(self, *given: Any, **options: Any) -> Any:
            answer = super().send(*given, **options)
            begun = next(answer.iter_content(ANSWER_BYTES_MAX), b"")
            answer.close()
            answer.__setstate__({"_content": begun})  # what the session returns as the answer's
            return answer

    session = Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, BoundedAdapter())
    return session


class Traces:
    """Reads the stream of ended requests, and makes a span of each in its own thread."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._maker = SpanMaker(provider.get_tracer("forebay", __version__))
        self._origins: dict[str, Origin] = {}  # of requests in the next batch, by their id
        self._batches: queue.Queue[tuple[EndedBatch, dict[str, Origin]] | None]
        self._batches = queue.Queue(BATCHES_MAX)
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def watch(self, observer: Observer, url_of: Callable[[str], str]) -> OriginReader:
        """Return an observer that notes what only the exchange knows, before this one is told."""
        return OriginReader(observer, self.note, url_of)

    def note(self, request_id: str, origin: Origin) -> None:
        """Keep what is known of a request beside what the next batch says."""
        self._origins[request_id] = origin

    def take(self, batch: EndedBatch) -> None:
        """Have spans made of a batch, or drop it where too many wait for that."""
        origins, self._origins = self._origins, {}
        try:
            self._batches.put_nowait((batch, origins))
        except queue.Full:
            self.dropped += len(batch.requests)

    def stop(self) -> None:
        """Send what is left; a collector that does not answer is waited for a while."""
        stopping = threading.Thread(target=self._stop, name="traces-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_S)

    def _stop(self) -> None:
        self._batches.put(None)
        self._thread.join()
        self._provider.shutdown()

    def _run(self) -> None:
        while (found := self._batches.get()) is not None:
            try:
                self._maker.make(*found)
            except Exception:
                logger.exception("making spans failed")
                self.dropped += len(found[0].requests)


class OriginReader:
    """Notes the origin of each request that ends, then calls the next counter."""

    def __init__(
        self,
        observer: Observer,
        note: Callable[[str, Origin], None],
        url_of: Callable[[str], str],
    ) -> None:
        self._observer = observer
        self._note = note
        self._url_of = url_of

    def ended(self, exchange: Exchange, outcome: str) -> None:
        """Take note of an end."""
        found = TRACEPARENT.search(exchange.call.header_block)
        parent = found[1].decode("latin-1") if found is not None else ""
        self._note(exchange.id, Origin(parent, self._url_of(exchange.node)))
        self._observer.ended(exchange, outcome)


class SpanMaker:
    """Turns ended requests into finished spans."""

    def __init__(self, tracer: Any) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = tracer
        self._kind = SpanKind.CLIENT  # as the conventions have it for a call of a model
        self._extract = TraceContextTextMapPropagator().extract
        self._records = RecordMaker(UserHashes(None))

    def make(self, batch: EndedBatch, origins: Mapping[str, Origin]) -> None:
        """Make a span of each request, from when it arrived to when it ended."""
        records = self._records.records(batch)
        for ended, record in zip(batch.requests, records, strict=True):
            origin = origins.get(record.id, NOWHERE)
            arrived_s = ended.arrived_s if ended.arrived_s >= 0 else ended.ended_s
            span = self._tracer.start_span(
                _name(record),
                self._extract({"traceparent": origin.traceparent}),
                self._kind,
                _attributes(ended, record, urlsplit(origin.node_url)),
                start_time=_nanoseconds(arrived_s + batch.clock_offset_s),
            )
            if error := _error(record):
                self._mark(span, error)
            span.end(_nanoseconds(ended.ended_s + batch.clock_offset_s))

    def _mark(self, span: Any, error: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", error)
        if error != "cancelled":  # the caller's own wish
            span.set_status(Status(StatusCode.ERROR))


def _attributes(ended: EndedRequest, record: AccessRecord, server: SplitResult) -> dict[str, Any]:
    """Return what is said of a request; what is not known is left out."""
    given = {
        "gen_ai.operation.name": _operation(record.route),
        "gen_ai.provider.name": ended.arrival.family if ended.arrival is not None else "",
        "gen_ai.request.model": record.model,
        "gen_ai.request.max_tokens": record.output_limit,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.output_tokens,
        "server.address": server.hostname,
        "server.port": server.port,
        "http.route": record.route,
        "http.response.status_code": _status(record),
        "forebay.request_id": record.id,
        "forebay.outcome": record.outcome,
        "forebay.node": record.node,
        "forebay.attempt": record.attempt,
        "forebay.priority": record.priority,
        "forebay.first_byte_ms": record.first_byte_ms,
    }
    known = {name: value for name, value in given.items() if value}
    if ended.arrived_s >= 0:
        known["forebay.wait_ms"] = record.waited_ms
        known["forebay.queued"] = record.queued
        known["forebay.stream"] = record.stream
    return known


def _operation(route: str) -> str:
    return OPERATIONS.get(route) or route.rpartition("/")[2] or "request"


def _name(record: AccessRecord) -> str:
    return f"{_operation(record.route)} {record.model}".rstrip()


def _status(record: AccessRecord) -> int:
    """Return the status that the caller saw: the node's, or that of our own refusal."""
    if record.status or record.outcome not in CODES:
        return record.status
    return CODES[record.outcome].status


def _error(record: AccessRecord) -> str:
    if record.outcome not in ENDED_WELL:
        return record.outcome
    return str(record.status) if record.status >= 400 else ""


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
