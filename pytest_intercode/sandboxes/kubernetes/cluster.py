"""A cluster, as reached through one of the user's contexts: requests, their retries and their end.

The official client is used as it is, and its calls block: every sandbox is started and used by its
own thread anyway. An attach is made without its generated code, which decodes the bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from pytest_intercode.errors import EngineUnavailable, SandboxError
from pytest_intercode.sandboxes.kubernetes.streams import SUBPROTOCOLS, PodStreams
from pytest_intercode.system.extras import has_extra, need

if TYPE_CHECKING:
    from kubernetes.client import ApiException

__all__ = ["CONTAINER", "Cluster", "ClusterError", "missing_client"]

CONTAINER = "sandbox"
"""The name of the container in each pod."""

Result = TypeVar("Result")

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")  # in a pod
_REQUEST_TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for bytes
_ATTACH_TIMEOUT = 60.0  # seconds for the handshake
_WATCH_TIMEOUT = 30  # seconds after which a watch is begun again
_RETRY_TIMEOUT = 120.0  # seconds for which a request is retried
_MIN_RETRY_INTERVAL, _MAX_RETRY_INTERVAL = 0.25, 10.0  # seconds
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT = 401, 403, 404, 409
_GONE = 410  # a watch has to begin again
_PASSING = (_GONE, 429, 500, 502, 503, 504)  # statuses that a later request might not get
_MAX_MESSAGE = 300  # characters of a cluster's message
_QUOTA = re.compile(r"exceeded quota", re.IGNORECASE)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # from OpenSSL; a later request gets the same certificate
_HANDSHAKE = re.compile(r"Handshake status (\d{3})")


class ClusterError(SandboxError):
    """The cluster refuses, or does not answer.

    Attributes:
        status: the HTTP status of its answer; 0 if there was none.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """Whether we do not have the right, however often we ask."""
        return self.status in (_UNAUTHORIZED, _FORBIDDEN)


def missing_client() -> str:
    """Return that the extra is not installed, or nothing."""
    return "" if has_extra("kubernetes") else need("kubernetes", "--intercode-sandbox=kubernetes")


class Cluster:
    """The clients of one cluster, and its namespace.

    Args:
        context: the name of a kubeconfig context; None for the current one, or, in a pod of a
            cluster without kubeconfig, for the pod's service account.
        namespace: the namespace of the pods; None for the context's own.

    Attributes:
        label: its name in messages.
        namespace: the namespace of the pods.

    Raises:
        EngineUnavailable: there is no such context, or the client is not installed.
    """

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        problem = missing_client()
        if problem:
            raise EngineUnavailable(problem)
        self._context = context
        self._closing = threading.Event()
        self._renewing = threading.Lock()
        self._configuration, own_namespace, self.label = self._load()
        self.namespace = namespace or own_namespace
        self._connect()

    def _load(self) -> tuple[Any, str, str]:
        """Return the client's configuration, its namespace, and its name in messages."""
        from kubernetes import client, config
        from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
        from yaml import YAMLError

        configuration = client.Configuration()
        configuration.retries = False  # `call` decides what is retried, and when
        try:
            if self._context is None and not _has_kubeconfig() and _in_cluster():
                config.load_incluster_config(client_configuration=configuration)
                return configuration, _NAMESPACE_FILE.read_text().strip(), "of this pod"
            # The client's own list of contexts fails if there is no current one.
            files = KubeConfigMerger(_kubeconfig())
            loader = KubeConfigLoader(files.config, self._context, None, None, files.save_changes)
            loader.load_and_set(configuration)
            context = loader.current_context
            namespace = str(context["context"].get("namespace") or "default")
            return configuration, namespace, f"of the context {context['name']}"
        except (config.ConfigException, OSError, ValueError, YAMLError) as error:
            problem = str(error)
        except (TypeError, AttributeError, KeyError):  # the client does not check the file's form
            problem = f"{_kubeconfig()} is not a valid kubeconfig"
        raise EngineUnavailable(f"no cluster: {' '.join(problem.split())}")

    def _connect(self) -> None:
        from kubernetes import client

        self._client = client.ApiClient(self._configuration)
        self._clients: dict[str, Any] = {
            "pod": client.CoreV1Api(self._client),
            "network_policy": client.NetworkingV1Api(self._client),
        }

    def _renew(self, refused: Any) -> bool:
        """Read the credentials again, unless another thread has; return whether that can help.

        This runs programs that provide tokens again, and rereads files with tokens.
        """
        with self._renewing:
            if self._configuration is not refused:
                return True
            with contextlib.suppress(EngineUnavailable):
                self._configuration = self._load()[0]
                self._connect()
                return True
        return False

    def close(self) -> None:
        """Retry no more requests, and close the client."""
        self._closing.set()
        self._client.close()

    # -- requests

    def call(
        self,
        purpose: str,
        ask: Callable[[], Result],
        timeout: float = _RETRY_TIMEOUT,
    ) -> Result:
        """Make a request; retry it if the cluster is busy or unreachable, or wants a new login.

        Args:
            purpose: what the request is for, in messages: ``a pod``.
            ask: makes the request; it may have been executed even if it fails.
            timeout: seconds after which a failure is final.

        Raises:
            ClusterError: it refuses, or does not answer; the message contains no credentials.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        limit = time.monotonic() + timeout
        pause, renewed = _MIN_RETRY_INTERVAL, False
        while True:
            configuration = self._configuration
            try:
                return ask()
            except ApiException as error:
                failure, retry = self._explain(purpose, error), _retry_interval(error)
                if error.status == _UNAUTHORIZED and not renewed and self._renew(configuration):
                    renewed = True
                    continue
            except (HTTPError, OSError) as error:
                failure, retry = self._no_answer(purpose, error), 0.0
            if retry is None:
                raise failure
            pause = max(pause, retry)
            if time.monotonic() + pause > limit or self._closing.wait(pause):
                raise failure
            pause = min(2 * pause, _MAX_RETRY_INTERVAL)

    def _explain(self, purpose: str, error: ApiException) -> ClusterError:
        message = _message(error)
        if error.status == _UNAUTHORIZED:
            message = (
                f"it rejects the credentials, which may have expired ({message}); log in "
                "again, and check that 'kubectl get pods' works"
            )
        elif error.status == _FORBIDDEN and not _QUOTA.search(message):
            message = (
                f"it forbids that: {message}; docs/kubernetes.md shows the Role that is needed"
            )
        elif not error.status:
            return self._no_answer(purpose, error)
        return ClusterError(f"{purpose}: the cluster {self.label}: {message}", error.status or 0)

    def _no_answer(self, purpose: str, error: Exception) -> ClusterError:
        words = str(getattr(error, "reason", None) or error)
        words = re.sub(r"<[\w.]+ object at 0x[0-9a-f]+>:? ?", "", " ".join(words.split()))
        return ClusterError(
            f"{purpose}: the cluster {self.label} does not answer: {words[:_MAX_MESSAGE]}"
        )

    def create(
        self, kind: str, manifest: Mapping[str, Any], timeout: float = _RETRY_TIMEOUT
    ) -> None:
        """Create an object; if its name exists, it is ours: the answer to the request was lost."""
        try:
            self._ask(kind, "create", self.namespace, manifest, timeout=timeout)
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise

    def read_pod(self, name: str, timeout: float = _RETRY_TIMEOUT) -> dict[str, Any] | None:
        """Return the current state of a pod; None if it does not exist."""
        try:
            pod: dict[str, Any] = self._ask("pod", "read", name, self.namespace, timeout=timeout)
        except ClusterError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return pod

    def watch_pod(self, name: str) -> Iterator[dict[str, Any] | None]:
        """Yield a pod now and at each change, for half a minute; None when it is gone."""
        from kubernetes.watch import Watch

        watch = Watch(return_type="object")
        events = watch.stream(
            self._clients["pod"].list_namespaced_pod,
            self.namespace,
            field_selector=f"metadata.name={name}",
            timeout_seconds=_WATCH_TIMEOUT,
            _request_timeout=(_REQUEST_TIMEOUT[0], _WATCH_TIMEOUT + 10.0),
        )
        try:
            for event in events:
                pod = event["raw_object"]
                if not isinstance(pod, dict):
                    raise TypeError
                yield None if event["type"] == "DELETED" else pod
        except (KeyError, TypeError, AttributeError):  # the client parses every line as an event
            raise self._foreign_answer("watch pod", b"") from None
        finally:
            watch.stop()
            events.close()

    def list_all(
        self, kind: str, selector: str, timeout: float = _RETRY_TIMEOUT
    ) -> list[dict[str, Any]]:
        """Return the objects with certain labels."""
        answer = self._ask(kind, "list", self.namespace, timeout=timeout, label_selector=selector)
        items: list[dict[str, Any]] = answer["items"]
        return items

    def delete(self, kind: str, name: str, timeout: float = _RETRY_TIMEOUT) -> bool:
        """Delete an object; return whether it is gone or being deleted."""
        options = {"grace_period_seconds": 1} if kind == "pod" else {}
        try:
            self._ask(kind, "delete", name, self.namespace, timeout=timeout, **options)
        except ClusterError as error:
            return error.status == _NOT_FOUND
        return True

    def _ask(self, kind: str, verb: str, *words: Any, timeout: float, **options: Any) -> Any:
        """Make a request with the client, and return the JSON of the answer unchanged.

        Args:
            kind: ``pod`` or ``network_policy``.
            verb: the client's word for the request.
            words: the arguments of the client's method.
            timeout: seconds after which a failure is final.
            options: keyword arguments of the client's method.
        """

        def ask() -> Any:
            method = getattr(self._clients[kind], f"{verb}_namespaced_{kind}")
            limits = tuple(min(limit, timeout) for limit in _REQUEST_TIMEOUT)
            answer = method(*words, **options, _preload_content=False, _request_timeout=limits)
            try:
                data = json.loads(answer.data)
            except ValueError:
                data = None
            is_whole = isinstance(data, dict) and "kind" in data
            if not is_whole or (verb == "list" and not isinstance(data.get("items"), list)):
                raise self._foreign_answer(purpose, answer.data)
            return data

        purpose = f"{verb} {kind}"
        return self.call(purpose, ask, timeout)

    def _foreign_answer(self, purpose: str, answer: bytes) -> ClusterError:
        """Return the error that an answer is not from the cluster's API, but from a proxy, say."""
        text = " ".join(answer[:_MAX_MESSAGE].decode("utf-8", "replace").split())
        quoted = f": {text}" if text else ""
        return ClusterError(
            f"{purpose}: what answers for the cluster {self.label} does not speak its API "
            f"(a proxy?); check that 'kubectl get pods' works{quoted}"
        )

    def attach(self, name: str) -> PodStreams:
        """Attach to the first process of a pod, once.

        Raises:
            ClusterError: this is not possible.
        """
        return self.call(f"an attach to the pod {name}", lambda: PodStreams(self._open(name)))

    def _open(self, name: str) -> Any:
        from kubernetes.client import ApiException
        from kubernetes.stream.ws_client import websocket_proxycare
        from websocket import WebSocketException, create_connection

        configuration = self._configuration
        settings = configuration.auth_settings().values()
        headers = {str(setting["key"]): str(setting["value"]) for setting in settings}
        streams = {"stdin": "true", "stdout": "true", "stderr": "true", "tty": "false"}
        path = f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(name)}/attach"
        query = urlencode({"container": CONTAINER, **streams})
        options: dict[str, Any] = {}
        if configuration.proxy or configuration.proxy_headers:
            options = websocket_proxycare({}, configuration, "", headers)
        try:
            return create_connection(
                f"ws{configuration.host.removeprefix('http')}{path}?{query}",
                timeout=_ATTACH_TIMEOUT,
                header=[f"{key}: {value}" for key, value in headers.items()],
                subprotocols=list(SUBPROTOCOLS),
                sslopt=_tls_options(configuration),
                **options,
            )
        except WebSocketException as error:
            match = _HANDSHAKE.match(str(error))
            failure = ApiException(int(match[1]) if match else 0, "the attach is refused")
            failure.body = getattr(error, "resp_body", None)
            failure.headers = getattr(error, "resp_headers", None)
            raise failure from None


def _tls_options(configuration: Any) -> dict[str, Any]:
    """Return the client's TLS settings in the form that a WebSocket needs."""
    options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    if configuration.verify_ssl:
        options = {"cert_reqs": ssl.CERT_REQUIRED}
        if configuration.ssl_ca_cert:
            options["ca_certs"] = configuration.ssl_ca_cert
        if configuration.assert_hostname is not None:
            options["check_hostname"] = configuration.assert_hostname
    values = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    return {**options, **{key: value for key, value in values.items() if value}}


def _kubeconfig() -> str:
    """Return the path of kubeconfig, or several paths."""
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _has_kubeconfig() -> bool:
    paths = _kubeconfig().split(os.pathsep)
    return any(Path(path).expanduser().exists() for path in paths if path)


def _in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and _NAMESPACE_FILE.exists()


def _retry_interval(error: ApiException) -> float | None:
    """Return the minimum seconds until a request may be retried; None if it must not be."""
    full = error.status == _FORBIDDEN and _QUOTA.search(_message(error))
    is_untrusted = _UNTRUSTED in str(error.reason)
    if (error.status and error.status not in _PASSING and not full) or is_untrusted:
        return None
    headers = error.headers or {}
    value = headers.get("Retry-After") or headers.get("retry-after") or ""
    return min(float(value), _MAX_RETRY_INTERVAL) if value.isdecimal() else 0.0


def _message(error: ApiException) -> str:
    """Return the cluster's message in one line: from its Status, or else its text."""
    body = error.body.decode("utf-8", "replace") if isinstance(error.body, bytes) else error.body
    text = str(body or error.reason or error.status)
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("message") or text)
    return " ".join(text.split())[:_MAX_MESSAGE]
