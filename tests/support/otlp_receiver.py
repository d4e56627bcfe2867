"""A receiver of OTLP over HTTP, which reads what it is sent by OpenTelemetry's own definitions."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

# Runs in this process (pytester's) have to share what they import with each other.
import opentelemetry.exporter.otlp.proto.http.trace_exporter
import opentelemetry.sdk.trace.export  # noqa: F401
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_server import HttpServer

__all__ = ["OtlpReceiver", "ReceivedSpan", "spans_in"]


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came: times in nanoseconds since the epoch, ids in hexadecimal."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    is_error: bool
    is_client: bool
    resource: dict[str, Any]


class OtlpReceiver(HttpServer):
    """The receiver; it runs between ``with`` and the end of the block.

    Args:
        status: what it answers; 0 for nothing, until the end of the block.

    Attributes:
        url: its address, without a path.
        spans: what it was sent.
        headers: those of each request, in lower case, and its path.
    """

    def __init__(self, status: int = 200) -> None:
        self.spans: list[ReceivedSpan] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    data = gzip.decompress(data)
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.headers.append({"path": self.path, **headers})
                if status == 200:
                    receiver.spans += spans_in(ExportTraceServiceRequest.FromString(data))
                if not status:
                    receiver.over.wait()
                    return
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        super().__init__(Handler, "intercode-otlp")
        self.url = self.address

    def __exit__(self, *error: Any) -> None:
        self.over.set()
        super().__exit__(*error)


def spans_in(message: Any) -> Iterator[ReceivedSpan]:
    """Yield the spans of a message."""
    for resource_spans in message.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield ReceivedSpan(
                    *(span.name, span.trace_id.hex(), span.span_id.hex()),
                    *(span.parent_span_id.hex(), span.start_time_unix_nano),
                    *(span.end_time_unix_nano, _attributes(span.attributes)),
                    [(event.name, _attributes(event.attributes)) for event in span.events],
                    is_error=span.status.code == 2,
                    is_client=span.kind == 3,
                    resource=resource,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(member) for member in value.array_value.values]
    return getattr(value, kind)
