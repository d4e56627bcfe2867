"""An API server of Kubernetes for tests, with TLS, on a thread of its own.

The official client and kubectl talk to it. It has what a cluster does for our pods: requests are
checked by the published schema (the types of the client's models are generated from it), allowed by
a Role alone, and authorised by a token; pods are scheduled, started by ``kubelet.py``, watched,
attached to by ``v5.channel.k8s.io`` or ``v4``, evicted and deleted. On demand it is busy or slow,
loses connections, forgets tokens and mislays pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import ssl
import subprocess
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml
from aiohttp import WSMsgType, web
from pydantic import ValidationError

from tests.support.kubelet import Kubelet, StartFailed

__all__ = ["ApiServer", "schema_problems"]

Result = TypeVar("Result")

_KINDS = {"pods": ("", "V1Pod"), "networkpolicies": ("networking.k8s.io", "V1NetworkPolicy")}
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists"}
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_INPUT, _OUTPUT, _ERROR, _STATUS, _CLOSE = 0, 1, 2, 3, 255
_NODE = "node-1"


def schema_problems(item: Any, kind: str) -> list[str]:
    """Say what of an object is not as the schema has it: other types, and further fields.

    Args:
        item: the object.
        kind: its type, as the client's models are called: ``V1Pod``.
    """
    from kubernetes.client import models

    try:
        known = getattr(models, kind).from_dict(item).model_dump(by_alias=True, exclude_none=True)
    except ValidationError as error:
        return [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()]
    return list(_unknown_fields(item, known, kind))


def _unknown_fields(item: Any, known: Any, path: str) -> Iterator[str]:
    """Yield the paths of what an object has, and what became of it has not."""
    if type(item) is not type(known):
        yield path
    elif isinstance(item, dict):
        for key, value in item.items():
            yield from _unknown_fields(value, known.get(key), f"{path}.{key}")
    elif isinstance(item, list):
        for index, value in enumerate(item):
            yield from _unknown_fields(value, known[index], f"{path}[{index}]")


def _semantic_problems(item: Mapping[str, Any]) -> list[str]:
    """Say what of names and labels an API server refuses, too."""
    metadata = item["metadata"]
    labels = {**metadata.get("labels", {}), **item["spec"].get("nodeSelector", {})}
    names = [metadata["name"], *filter(None, [item["spec"].get("hostname")])]
    problems = [f"label {value!r}" for value in labels.values() if not _LABEL.fullmatch(value)]
    return problems + [f"name {name!r}" for name in names if not _NAME.fullmatch(name)]


class _Refused(Exception):
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


class ApiServer:
    """The server; it runs between ``with`` and the end of the block.

    Args:
        folder: for its certificate and the user's kubeconfig.
        role: the Role of the user, as YAML; what it does not have is refused.
        enforces: whether its network plugin enforces NetworkPolicies.

    Attributes:
        kubeconfig: the user's kubeconfig, whose token a program says.
        granted: what the Role has, as (group, resource, verb).
        used: what of it was asked for.
        requests: method and path of each request.
        busy: how many requests are to be answered by 429 from now on.
        failing: how many are to have their connection closed instead of an answer.
        lost_answers: how many are to be done, and then likewise.
        lost_attaches: how many attaches are to be closed as soon as they are there.
        foreign_answer: what requests are answered with, as by a proxy; None for their objects.
        gone_watches: how many watches are to be answered by 410, as a status and as an event.
        short_watches: whether watches end at once, as a proxy may have it.
        quota: how many pods the namespace may have.
        protocols: the subprotocols of attaches that it knows.
        unschedulable: whether pods have to wait for a node.
        items: by kind and name, what there is.
    """

    def __init__(self, folder: Path, role: str, *, enforces: bool = True) -> None:
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.granted = {
            (group, resource, verb)
            for rule in yaml.safe_load(role)["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        self.used: set[tuple[str, str, str]] = set()
        self.requests: list[str] = []
        self.busy = self.failing = self.lost_answers = self.lost_attaches = 0
        self.foreign_answer: str | None = None
        self.gone_watches = 0
        self.short_watches = False
        self.quota = 1000
        self.protocols = ("v5.channel.k8s.io", "v4.channel.k8s.io")
        self.unschedulable = False
        self.items: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
        self._containers: dict[str, str] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._versions = itertools.count(1)
        self._enforces = enforces
        self._token = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="api-server", daemon=True
        )

    def __enter__(self) -> ApiServer:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.kubelet.api.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        self._changed = asyncio.Condition()
        key, certificate = self._folder / "key.pem", self._folder / "cert.pem"
        words = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        names = ("-subj", "/CN=cluster", "-addext", "subjectAltName=IP:127.0.0.1", "-nodes")
        files = ("-keyout", str(key), "-out", str(certificate))
        subprocess.run(["openssl", *words, *names, *files], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "0.0.0.0", 0, ssl_context=context)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self.kubelet = Kubelet(self.port, enforces=self._enforces)
        self.renew_token()
        program = {
            **{"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"},
            **{"command": "cat", "args": [str(self._folder / "credential")]},
        }
        cluster = {"server": f"https://127.0.0.1:{self.port}"}
        cluster |= {"certificate-authority": str(certificate)}
        context_ = {"cluster": "tests", "user": "ada", "namespace": "agents"}
        config = {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "tests"},
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "ada", "user": {"exec": program}}],
            "contexts": [{"name": "tests", "context": context_}],
        }
        self.kubeconfig.write_text(json.dumps(config))

    async def _stop(self) -> None:
        for identity in self._containers.values():
            await asyncio.to_thread(self.kubelet.remove, identity)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for transport in self._transports:  # TLS would have each end wait for the other one
            with contextlib.suppress(AttributeError):  # of one that has ended, by Python 3.11.2
                transport.abort()
        await self._runner.cleanup()

    # -- what happens to a cluster

    def renew_token(self, *, known: bool = True) -> None:
        """Forget the user's token, and where ``known``, have its program say the next one."""
        self._token = f"token-{next(self._versions)}"
        if known:
            status = {"token": self._token, "expirationTimestamp": "2099-01-01T00:00:00Z"}
            credential = {"apiVersion": "client.authentication.k8s.io/v1", "status": status}
            credential["kind"] = "ExecCredential"
            (self._folder / "credential").write_text(json.dumps(credential))

    def drop_attaches(self) -> None:
        """Close every connection that is attached to a pod, without a word."""

        async def drop() -> None:
            for attached in self._sockets:
                assert attached._req is not None
                self._abort(attached._req)

        self._run(drop())

    def schedule(self) -> None:
        """Let pods be scheduled from now on."""
        self.unschedulable = False
        self._run(self._notify())

    def evict(self, name: str, message: str) -> None:
        """Have a node end a pod."""

        async def end() -> None:
            status = {"phase": "Failed", "reason": "Evicted", "message": message}
            self.items["pods"][name]["status"].update(status)
            await asyncio.to_thread(self.kubelet.kill, self._containers[name])
            await self._notify()

        self._run(end())

    def remove(self, name: str) -> None:
        """Delete a pod, as somebody with kubectl."""
        self._run(self._delete("pods", name))

    # -- requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        assert request.transport is not None
        self._transports.add(request.transport)
        try:
            if self.failing:
                self.failing -= 1
                self._abort(request)
                return web.Response()
            if self.busy:
                self.busy -= 1
                raise _Refused(
                    429, "too many requests, please try again later", {"Retry-After": "0"}
                )
            if request.headers.get("Authorization") != f"Bearer {self._token}":
                raise _Refused(401, "Unauthorized")
            if self.foreign_answer is not None:
                return web.Response(text=self.foreign_answer, content_type="text/html")
            response = await self._serve(request)
            if self.lost_answers and request.method == "POST":
                self.lost_answers -= 1
                self._abort(request)
            return response
        except _Refused as refused:
            body = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": refused.status,
            }
            body |= {"message": str(refused), "reason": _REASONS.get(refused.status, "")}
            return web.json_response(body, status=refused.status, headers=refused.headers)

    def _abort(self, request: web.BaseRequest) -> None:
        if request.transport is not None:
            request.transport.abort()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        match = re.fullmatch(
            r"/(?:api/v1|apis/(?P<group>[\w.]+)/v1)/namespaces/agents/(?P<kind>\w+)"
            r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>\w+))?",
            request.path,
        )
        if match is None:
            raise _Refused(404, f"the server could not find {request.path}")
        group, kind, name, sub = (match[key] or "" for key in ("group", "kind", "name", "sub"))
        verb = {"POST": "create", "DELETE": "delete", "GET": "get"}.get(request.method, "?")
        if verb == "get" and not name:
            verb = "watch" if request.query.get("watch") in ("true", "True") else "list"
        self._allow(group, f"{kind}/{sub}" if sub else kind, verb)
        if sub == "attach":
            # By RFC 6455 it is a GET; newer clusters want the right to create all the same.
            self._allow(group, "pods/attach", "create")
            return await self._attach(request, name)
        if verb == "create":
            return web.json_response(await self._create(kind, await request.json()), status=201)
        if verb == "list":
            items = self._selected(kind, request.query.get("labelSelector", ""))
            return web.json_response({"kind": "List", "metadata": {}, "items": items})
        if verb == "watch":
            return await self._watch(request, kind)
        if name not in self.items[kind]:
            raise _Refused(404, f'{kind} "{name}" not found')
        item = self.items[kind][name]
        if verb == "delete":
            await self._delete(kind, name)
        return web.json_response(item)

    def _allow(self, group: str, resource: str, verb: str) -> None:
        if (group, resource, verb) not in self.granted:
            raise _Refused(
                403, f'{resource} is forbidden: User "ada" cannot {verb} resource "{resource}"'
            )
        self.used.add((group, resource, verb))

    def _selected(self, kind: str, selector: str) -> list[Any]:
        wanted = dict(term.split("=") for term in selector.split(",") if term)
        return [
            item
            for item in self.items[kind].values()
            if wanted.items() <= item["metadata"]["labels"].items()
        ]

    async def _create(self, kind: str, item: dict[str, Any]) -> dict[str, Any]:
        problems = schema_problems(item, _KINDS[kind][1]) or _semantic_problems(item)
        if problems:
            raise _Refused(422, f"{kind} is invalid: {'; '.join(problems)}")
        name = item["metadata"]["name"]
        if name in self.items[kind]:
            raise _Refused(409, f'{kind} "{name}" already exists')
        if kind == "pods" and len(self.items[kind]) >= self.quota:
            raise _Refused(403, f'pods "{name}" is forbidden: exceeded quota: pods')
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        item["metadata"] |= {"namespace": "agents", "creationTimestamp": now}
        self.items[kind][name] = item
        if kind == "pods":
            item["status"] = {"phase": "Pending"}
            task = asyncio.create_task(self._play(name, item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return item

    async def _delete(self, kind: str, name: str) -> None:
        self.items[kind].pop(name, None)
        if kind == "pods":
            await self._notify()
            if name in self._containers:
                await asyncio.to_thread(self.kubelet.remove, self._containers.pop(name))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(is_so)

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        if self.gone_watches:
            self.gone_watches -= 1
            expired = "too old resource version: 1 (2)"
            if self.gone_watches % 2:
                raise _Refused(410, expired)
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": expired}
            return web.json_response({"type": "ERROR", "object": status})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(asyncio.TimeoutError, ConnectionError):
            timeout = float(request.query.get("timeoutSeconds", "300"))
            timeout = 0.01 if self.short_watches else timeout
            await asyncio.wait_for(self._write_events(response, kind, name), timeout)
        return response

    async def _write_events(self, response: web.StreamResponse, kind: str, name: str) -> None:
        """Write what becomes of an object, until it is gone."""

        def present() -> str:
            return json.dumps(self.items[kind].get(name))

        sent_text = "null"
        while (text := present()) != "null" or sent_text == "null":
            if text != sent_text:
                event = "ADDED" if sent_text == "null" else "MODIFIED"
                await response.write(f'{{"type": "{event}", "object": {text}}}\n'.encode())
            sent_text = text
            await self._until(partial(lambda known: present() != known, sent_text))
        await response.write(f'{{"type": "DELETED", "object": {sent_text}}}\n'.encode())

    # -- pods

    def _reaches_nothing(self, pod: Mapping[str, Any]) -> bool:
        """Whether there is a policy for a pod, and none that allows it something."""
        labels = pod["metadata"]["labels"].items()
        specs = [item["spec"] for item in self.items["networkpolicies"].values()]
        own = [
            spec
            for spec in specs
            if spec["podSelector"]["matchLabels"].items() <= labels
            and {"Ingress", "Egress"} <= set(spec["policyTypes"])
        ]
        return bool(own) and not any(spec["egress"] or spec["ingress"] for spec in own)

    async def _play(self, name: str, pod: dict[str, Any]) -> None:
        """Have a pod scheduled and started, and say when it ends."""
        if self.unschedulable:
            message = "0/1 nodes are available: 1 Insufficient memory."
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            pod["status"]["conditions"] = [{**condition, "message": message}]
            await self._notify()
            await self._until(lambda: not self.unschedulable or name not in self.items["pods"])
        if name not in self.items["pods"]:
            return
        pod["spec"]["nodeName"], pod["status"]["conditions"] = _NODE, []
        try:
            nothing = self._reaches_nothing(pod)
            identity = await asyncio.to_thread(self.kubelet.start, pod, reaches_nothing=nothing)
        except StartFailed as failed:
            self._set(pod, failed.state)
            await self._notify()
            if waiting := failed.state.get("waiting"):
                self._set(pod, {"waiting": {**waiting, "reason": "ImagePullBackOff"}})
                await self._notify()
            return
        if name not in self.items["pods"]:  # deleted meanwhile
            await asyncio.to_thread(self.kubelet.remove, identity)
            return
        self._containers[name] = identity
        self._set(pod, {"running": {}})
        await self._notify()
        self._set(pod, {"terminated": await asyncio.to_thread(self.kubelet.wait, identity)})
        await self._notify()

    def _set(self, pod: dict[str, Any], state: Mapping[str, Any]) -> None:
        phase = "Running" if "running" in state else "Pending" if "waiting" in state else "Failed"
        pod["status"] |= {
            "phase": phase,
            "containerStatuses": [{"name": "sandbox", "state": state}],
        }

    async def _attach(self, request: web.Request, name: str) -> web.StreamResponse:
        if name not in self._containers:
            raise _Refused(404, f'pods "{name}" not found')
        assert request.query["container"] == "sandbox"
        assert all(request.query[stream] == "true" for stream in ("stdin", "stdout", "stderr"))
        response = web.WebSocketResponse(
            protocols=self.protocols, max_msg_size=1 << 20, timeout=0.5
        )
        await response.prepare(request)
        self._sockets.append(response)
        with self.kubelet.attached(self._containers[name]) as attached:
            if self.lost_attaches:
                self.lost_attaches -= 1
                self._abort(request)
                return response
            tasks = [
                asyncio.create_task(work)
                for work in (self._to_pod(response, attached), self._from_pod(response, attached))
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._sockets.remove(response)
        self._abort(request)  # else TLS would wait for a client that is not listening
        return response

    async def _to_pod(self, response: web.WebSocketResponse, attached: Any) -> None:
        """Carry what arrives to the container, until its input is closed."""
        loop = asyncio.get_running_loop()
        async for message in response:
            assert message.type == WSMsgType.BINARY, message
            if message.data[0] == _CLOSE and response.ws_protocol == self.protocols[0]:
                assert message.data == bytes([_CLOSE, _INPUT])
                return
            assert message.data[0] == _INPUT
            await loop.sock_sendall(attached, message.data[1:])

    async def _from_pod(self, response: web.WebSocketResponse, attached: Any) -> None:
        """Carry what a container writes to the client, and say at its end that it has ended."""
        with contextlib.suppress(ConnectionError):
            async for stream, data in _frames(attached):
                await response.send_bytes(bytes([stream]) + data)
            await response.send_bytes(bytes([_STATUS]) + b'{"metadata":{},"status":"Success"}')
            await response.close()


async def _frames(attached: Any) -> AsyncIterator[tuple[int, bytes]]:
    """Yield what the engine's frames hold, each with the number of its stream."""
    loop = asyncio.get_running_loop()
    buffer = bytearray()
    while data := await loop.sock_recv(attached, 65536):
        buffer += data
        while len(buffer) >= 8 and len(buffer) >= (end := 8 + int.from_bytes(buffer[4:8], "big")):
            yield buffer[0], bytes(buffer[8:end])
            del buffer[:end]
