"""``--intercode-otel``: the spans of a run's episodes, sent by OpenTelemetry's SDK or to a file.

Spans are made from finished records, in the process where pytest reports them: this one, or xdist's
controller. So workers and nodes need neither the SDK nor access to the collector.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.export.spans import Span, spans_of
from pytest_intercode.system.extras import has_extra, need

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["SpanSender"]

_OPTION = "--intercode-otel"
_PATH = "/v1/traces"  # of OTLP over HTTP
_LOGGER = "opentelemetry.exporter.otlp"  # of the exporter
_MAX_PROBLEM = 300  # characters of the reason why spans were lost
_MAX_QUEUE = 100_000  # spans that wait for a slow collector
_BATCH = 512  # spans in one request
_CLOSE_TIMEOUT = 5.0  # seconds that the end of a run waits for unsent spans
_NANOSECONDS = 1_000_000_000
_IDS = ("traceId", "spanId", "parentSpanId")


class SpanSender:
    """Sends the spans of a run's episodes.

    Args:
        target: the address of a collector, a file, or ``env`` for what OpenTelemetry's own
            variables set (``OTEL_EXPORTER_OTLP_ENDPOINT``).
        content: include texts of tasks, agents and sandboxes.

    Raises:
        ConfigurationError: the extra is missing, or the target is wrong.
    """

    def __init__(self, target: Path | str, *, content: bool = False) -> None:
        if not has_extra("otel"):
            raise ConfigurationError(need("otel", f"{_OPTION}={target}"))
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._content = content
        self._target = target
        self._lock = threading.Lock()
        self._span_count = 0
        self._exporter = _counting(_make_exporter(target))
        self._log = _FirstLine()
        self._log.attach()
        has_name = "OTEL_SERVICE_NAME" in os.environ
        self._provider = TracerProvider(
            shutdown_on_exit=False,  # it would wait for as long as the collector takes
            resource=Resource.create({} if has_name else {"service.name": "pytest-intercode"}),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter, max_queue_size=_MAX_QUEUE, max_export_batch_size=_BATCH
            )
        )
        self._tracer = self._provider.get_tracer("pytest_intercode")
        self._end = threading.Thread(target=self._shut_down, name="intercode-spans", daemon=True)

    def send(self, record: EpisodeRecord) -> None:
        """Send the spans of an episode; any thread may do so, and none waits for the collector."""
        self._start(spans_of(record, content=self._content), None)

    def _start(self, span: Span, context: Any) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        live = self._tracer.start_span(
            span.name,
            context,
            SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            span.attributes,
            start_time=_nanoseconds(span.start),
        )
        for event in span.events:
            live.add_event(event.name, event.attributes, _nanoseconds(event.time))
        if span.failed:
            live.set_status(Status(StatusCode.ERROR))
        for child in span.children:
            self._start(child, set_span_in_context(live, context))
        live.end(_nanoseconds(max(span.start, span.end)))
        with self._lock:
            self._span_count += live.get_span_context().trace_flags.sampled

    def close(self) -> str:
        """Send waiting spans, for a few seconds; return a line about lost ones, or nothing."""
        thread = self._end
        if thread.ident is None:
            thread.start()
            thread.join(_CLOSE_TIMEOUT)
        lost_count = self._span_count - self._exporter.span_count
        if not lost_count:
            return ""
        reason = (self._exporter.problem or self._log.text)[:_MAX_PROBLEM]
        if thread.is_alive():
            reason = f"not accepted within {_CLOSE_TIMEOUT:g} s of the run's end; {reason}"
        spans = f"{lost_count} of {pluralize(self._span_count, 'span')}"
        text = f"{_OPTION}={self._target}: {spans} could not be sent: {reason}"
        return one_line(text.removesuffix(": ").removesuffix("; "))

    def _shut_down(self) -> None:
        """Send waiting spans, then restore the logger; what it logs until then is not printed."""
        try:
            self._provider.shutdown()
        finally:
            self._log.detach()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * _NANOSECONDS)


def _make_exporter(target: Path | str) -> SpanExporter:
    """Return the exporter for a target.

    Raises:
        ConfigurationError: the target is neither an address nor a file that can be written to.
    """
    if isinstance(target, Path):
        return _make_file_exporter(target)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if target == "env":
        return OTLPSpanExporter()
    try:
        parts = urlsplit(target)
        is_good = bool(parts.hostname and parts.port != 0 and "@" not in parts.netloc)
    except ValueError:  # such as a port that is out of range
        is_good = False
    if not is_good or parts.scheme not in ("http", "https"):
        raise ConfigurationError(
            f"{_OPTION}: expected an address such as http://localhost:4318, without a user name "
            "or password (keys belong in OTEL_EXPORTER_OTLP_HEADERS), a file, or env"
        )
    return OTLPSpanExporter(target if parts.path.strip("/") else f"{target.rstrip('/')}{_PATH}")


class _FirstLine(logging.Handler):
    """Keeps the first line that is logged.

    The exporter reports why it fails only in its log, and on its own thread. Without a handler,
    that would be printed into the output of whichever test is running.
    """

    _changing = threading.Lock()
    text = ""
    propagated = True  # whether the logger propagated before the first of these handlers came

    def attach(self) -> None:
        """Receive what is logged, and keep it from the handlers of parent loggers."""
        logger = logging.getLogger(_LOGGER)
        with self._changing:
            earlier_logs = [log for log in logger.handlers if isinstance(log, _FirstLine)]
            self.propagated = earlier_logs[0].propagated if earlier_logs else logger.propagate
            logger.addHandler(self)
            logger.propagate = False

    def detach(self) -> None:
        """Restore the logger, once no other run in this process has such a handler."""
        logger = logging.getLogger(_LOGGER)
        with self._changing:
            logger.removeHandler(self)
            if not any(isinstance(handler, _FirstLine) for handler in logger.handlers):
                logger.propagate = self.propagated

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, if it is the first one."""
        self.text = self.text or record.getMessage()


def _counting(exporter: SpanExporter) -> Any:
    """Return an exporter that wraps another, counts the spans sent, and keeps why it failed."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class CountingExporter(SpanExporter):
        span_count = 0
        problem = ""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            try:
                result = exporter.export(spans)
            except Exception as error:  # from the file, or from a library: the run goes on
                self.problem = f"{type(error).__name__}: {error}"
                return SpanExportResult.FAILURE
            if result is SpanExportResult.SUCCESS:
                self.span_count += len(spans)
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return exporter.force_flush(timeout_millis)

    return CountingExporter()


def _make_file_exporter(path: Path) -> SpanExporter:
    """Return an exporter that writes a line of OTLP's JSON for each batch.

    Raises:
        ConfigurationError: the file cannot be written to.
    """
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{_OPTION}={path}: cannot be written: {error.strerror}") from None

    class FileExporter(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            document = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
            file.write(f"{json.dumps(_with_hex_ids(document))}\n")
            file.flush()
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            file.close()

    return FileExporter()


def _with_hex_ids(document: Any) -> Any:
    """Return a document with its ids in hexadecimal, as OTLP's JSON has them, not in base64."""
    if isinstance(document, Mapping):
        return {
            name: base64.b64decode(value).hex() if name in _IDS else _with_hex_ids(value)
            for name, value in document.items()
        }
    return [*map(_with_hex_ids, document)] if isinstance(document, list) else document
