"""The client of the models' real servers: addresses, keys, proxies, and errors.

When a recording is replayed, there is no server, and answers come from the recording. Only this
module connects to models' servers, and only here are keys put into requests; ``logins`` requests
tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from urllib.request import getproxies, proxy_bypass

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHttpProxyError,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    DummyCookieJar,
    InvalidURL,
    TCPConnector,
)
from yarl import URL

from pytest_intercode.gateway.apis import parse_object
from pytest_intercode.gateway.fields import is_beta
from pytest_intercode.gateway.google_token import GoogleToken
from pytest_intercode.gateway.logins import LOGINS, Login, LoginError, login_of
from pytest_intercode.gateway.recording import RecordedAnswer
from pytest_intercode.gateway.settings import GatewaySettings, is_secret
from pytest_intercode.gateway.shapes import Limits
from pytest_intercode.gateway.sigv4 import sign
from pytest_intercode.gateway.vendors import VENDORS
from pytest_intercode.system.connections import LOOPBACK_HOSTS, failure

__all__ = [
    *("KEY_REFUSED", "STREAM", "Answer", "LimitReached", "Upstream", "UpstreamError", "cause"),
    *("replayed", "seconds_until_reset"),
]

STREAM = "text/event-stream"
"""The media type of a streamed answer."""

KEY_REFUSED = frozenset({401, 403})
"""Statuses of a server that refuses the key, whatever the request."""

_CONNECT_TIMEOUT = 20.0  # seconds for a connection
_KEEPALIVE_TIMEOUT = 4.0  # seconds between requests; some servers close a connection after five
_FORWARDED = ("accept", "anthropic-version", "user-agent")
_BETAS = ("anthropic-beta", "openai-beta")  # lists of names; known names are passed on
_VERSION = "2023-06-01"  # of Anthropic's API
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
_TEXT = re.compile(r"[\x20-\x7e]{1,200}")
_RETURNED = (
    *("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id"),
    *("x-amzn-requestid", "x-amzn-errortype"),
    "anthropic-ratelimit-unified-reset",
)
_MAX_LIMIT_WAIT = 300.0  # total seconds that a request waits until a subscription's limit is reset
_MIN_LIMIT_WAIT = 1.0  # seconds until it is sent again if the server says 0
_MAX_RESET = 31 * 86400.0  # the most seconds that are believed for a reset


class LimitReached(Exception):
    """The limit of a subscription is used up for longer than a request can wait.

    Args:
        program: the program whose login it is.
        delay: seconds until the limit is reset.
    """

    def __init__(self, program: str, delay: float) -> None:
        hours, minutes = divmod(-(-int(delay) // 60), 60)
        duration = f"{hours} h {minutes} min" if hours else f"{minutes} min"
        self.message = f"the limit of the login of {program} is used up for another {duration}"
        super().__init__(self.message)


class UpstreamError(Exception):
    """The real server did not answer as it should.

    Args:
        message: what happened.
        status: the status for the client.
        unreached: whether no connection was made, so that the server never saw the request.
        unpaid: whether the request was refused, or got no valid answer, so that it costs nothing;
            implied by ``unreached``.
    """

    def __init__(
        self, message: str, status: int = 502, *, unreached: bool = False, unpaid: bool = False
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.unreached = message, status, unreached
        self.unpaid = unpaid or unreached


@dataclass
class Answer:
    """An answer of the real server, whose body is not read yet."""

    status: int
    content_type: str
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Upstream:
    """The real servers; used on the event loop of the gateway.

    Args:
        settings: the gateway's settings.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._keys = settings.secrets  # computed once, as every event of a stream is masked
        self._logins: dict[str, Login | GoogleToken] = {"vertex": GoogleToken()}
        self._logins |= {LOGINS[name].vendor: login_of(name) for name in settings.logins}
        self._client: ClientSession | None = None

    def start(self) -> None:
        """Create the client; it connects on the first request."""
        self._client = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_TIMEOUT),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(
                total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=self._settings.silence
            ),
        )

    async def stop(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys, and all tokens that logins have had so far."""
        logins = self._logins.values()
        tokens = (secret for login in logins for secret in login.secrets if is_secret(secret))
        return (*self._keys, *tokens)

    def name(self, vendor: str) -> str:
        """Return the address of a vendor's server, for messages."""
        return self._settings.upstream(vendor)

    def headers(
        self, client_headers: Mapping[str, str], vendor: str, *, has_body: bool
    ) -> tuple[dict[str, str], list[str]]:
        """Return the headers of a request to a server, and the names of betas that are omitted.

        Args:
            client_headers: the client's headers, of which few are passed on.
            vendor: the vendor whose server it is.
            has_body: whether the request has a body, which is JSON.
        """
        headers = {
            name: value
            for name in _FORWARDED
            if (value := client_headers.get(name)) and _TEXT.fullmatch(value)
        }
        limits = Limits(self._settings.allowed)
        omitted = []
        for header in _BETAS:
            names = list(filter(None, map(str.strip, client_headers.get(header, "").split(","))))
            passed = [name for name in names if _TEXT.fullmatch(name) and is_beta(name, limits)]
            omitted += [name for name in names if name not in passed]
            if passed:
                headers[header] = ",".join(passed)
        headers["accept-encoding"] = "identity"  # the usage is read from the answer
        if has_body:
            headers["content-type"] = "application/json"
        key, header = self._settings.keys.get(vendor), VENDORS[vendor].header
        if key and vendor not in self._logins:
            headers[header] = f"Bearer {key}" if header == "authorization" else key
        return headers, omitted

    @contextlib.asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        vendor: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        query: str = "",
        max_limit_wait: float = _MAX_LIMIT_WAIT,
    ) -> AsyncIterator[Answer]:
        """Send a request.

        Args:
            method: the HTTP method.
            path: the path below the server's address.
            vendor: the vendor whose server is asked.
            headers: see :meth:`headers`.
            body: the body, JSON; None for none.
            query: the query of the address.
            max_limit_wait: total seconds to wait until a login's limit is reset.

        Raises:
            UpstreamError: the server cannot be reached, or stops sending.
            LimitReached: the limit of a login's subscription is used up for longer than that.
        """
        login = self._logins.get(vendor)
        if login is None:
            async with self._request(method, path, vendor, headers, body, query) as answer:
                yield answer
            return
        refused, waited = "", 0.0
        while True:
            own_headers = await self._log_in(login, refused)
            all_headers = {**headers, **own_headers}
            betas = (headers.get("anthropic-beta"), own_headers.get("anthropic-beta"))
            if all(betas):
                all_headers["anthropic-beta"] = ",".join(filter(None, betas))
            async with self._request(method, path, vendor, all_headers, body, query) as answer:
                if answer.status == 401 and not refused:  # renew the token early, but only once
                    refused = own_headers["authorization"]
                    continue
                if answer.status != 429 or not login.program:
                    yield answer
                    return
                data = b"".join([piece async for piece in answer.pieces])
            delay = seconds_until_reset(answer.headers, data, time.time())
            if delay is None:
                yield replace(answer, pieces=_whole(data))
                return
            # Requests that wait for the same reset resume simultaneously, and may use up the new
            # limit for each other; so this may repeat.
            pause = max(delay, _MIN_LIMIT_WAIT)
            waited += pause
            if waited > max_limit_wait:
                raise LimitReached(login.program, delay)
            await asyncio.sleep(pause)

    async def _log_in(self, login: Login | GoogleToken, refused: str) -> dict[str, str]:
        """Return the headers of a login, after renewing it if necessary."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(None, login.headers, refused)
        except LoginError as error:
            raise UpstreamError(str(error), unreached=True) from None

    @contextlib.asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        vendor: str,
        headers: Mapping[str, str],
        body: bytes | None,
        query: str,
    ) -> AsyncIterator[Answer]:
        """Send a request with exactly these headers; see :meth:`open`."""
        assert self._client is not None
        address = self._settings.address(vendor, path) + (f"?{query}" if query else "")
        proxy = _proxy(address)
        server = f"the server {self.name(vendor)}"
        if proxy is not None:
            server += f", through the proxy {_without_password(proxy)},"
        aws = self._settings.aws
        refused = False  # by its status; the body of a refusal may also break off
        if vendor == "bedrock" and aws is not None and not self._settings.keys.get(vendor):
            signed = {name: v for name, v in headers.items() if name == "content-type"}
            time_now = datetime.now(timezone.utc)
            headers = {**headers, **sign(aws, method, address, signed, body or b"", time_now)}
        try:
            async with self._client.request(
                method,
                URL(address, encoded=True),
                data=None if body is None else _payload(body),
                headers=headers,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                allow_redirects=False,
                proxy=proxy,
            ) as response:
                refused = response.status != 200
                yield Answer(
                    response.status,
                    response.content_type,
                    {name: v for name in _RETURNED if (v := response.headers.get(name))},
                    response.content.iter_any(),
                )
        except asyncio.TimeoutError as error:
            if isinstance(error, ConnectionTimeoutError):
                message = f"{server} cannot be reached in {_CONNECT_TIMEOUT:g} s"
                raise UpstreamError(message, 504, unreached=True) from None
            seconds = self._settings.silence
            message = f"{server} was silent for {seconds:g} s"
            raise UpstreamError(message, 504, unpaid=refused) from None
        except ClientError as error:
            # This includes errors of name resolution and TLS, and of a proxy that does not connect
            # or has an invalid address.
            unreached = isinstance(error, (ClientConnectorError, ClientHttpProxyError, InvalidURL))
            message = f"{server} cannot be used: {cause(error)}"
            raise UpstreamError(message, unreached=unreached, unpaid=refused) from None

    async def outage(self) -> str:
        """Return why no configured server accepts the gateway's requests; empty if one does.

        It requests the list of models, which contains nothing from an agent and costs nothing.
        """
        reasons = []
        for vendor in self._settings.configured:
            own_headers = {"anthropic-version": _VERSION, "user-agent": "pytest-intercode"}
            headers, _ = self.headers(own_headers, vendor, has_body=False)
            request = self.open(
                *("GET", VENDORS[vendor].models_path, vendor),
                headers=headers,
                body=None,
                max_limit_wait=0.0,
            )
            try:
                async with request as answer:
                    status = answer.status
            except LimitReached:  # the server did answer
                return ""
            except UpstreamError as failed:
                if not failed.unreached:
                    return ""
                reasons.append(failed.message)
                continue
            if status not in KEY_REFUSED:
                return ""
            reasons.append(f"the server {self.name(vendor)} refuses the key: status {status}")
        return "; ".join(reasons)

    def mask(self, data: bytes) -> bytes:
        """Mask the keys in a server's data; some servers repeat the key in their errors."""
        for secret in self.secrets:
            data = data.replace(secret.encode(), b"***")
        return data


def replayed(recorded: RecordedAnswer) -> Answer:
    """Return an answer from a recording."""
    return Answer(recorded.status, recorded.content_type, {}, _recorded_pieces(recorded))


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data


def seconds_until_reset(headers: Mapping[str, str], data: bytes, now: float) -> float | None:
    """Return how many seconds a limit is used up; None if the answer does not say so.

    Args:
        headers: the answer's headers, in which Anthropic sends the time of the reset.
        data: its body, in which Codex's server sends the time.
        now: the current time, in seconds since 1970.
    """
    error = (parse_object(data) or {}).get("error")
    error = error if isinstance(error, dict) else {}
    sources = (
        (headers.get("retry-after"), 0.0),
        (error.get("resets_in_seconds"), 0.0),
        (headers.get("anthropic-ratelimit-unified-reset"), now),
        (error.get("resets_at"), now),
    )
    for value, start in sources:
        with contextlib.suppress(TypeError, ValueError):
            seconds = float(value) - start  # type: ignore[arg-type]
            if math.isfinite(seconds):
                return min(max(seconds, 0.0), _MAX_RESET)
    return None


async def _recorded_pieces(recorded: RecordedAnswer) -> AsyncIterator[bytes]:
    for piece in recorded.pieces:
        yield piece.encode("utf-8")
    if not recorded.complete:
        raise UpstreamError("it broke off when it was recorded")


def _payload(data: bytes) -> bytes | io.BytesIO:
    """Return a body for aiohttp; a large one is sent in pieces, so as not to block the loop."""
    return data if len(data) < 512 * 1024 else io.BytesIO(data)


def _proxy(address: str) -> str | None:
    """Return the proxy that the machine's settings name for an address."""
    url = URL(address)
    host = url.host or ""
    if host in LOOPBACK_HOSTS or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)


def _without_password(proxy: str) -> str:
    """Return a proxy's address without its user and password, for messages."""
    scheme = match[0] if (match := _SCHEME.match(proxy)) else ""
    return scheme + proxy[len(scheme) :].rpartition("@")[2]


def cause(error: BaseException) -> str:
    """Return why a connection failed: the system's message, or the library's."""
    if isinstance(error, ClientHttpProxyError):
        return f"the proxy answered with status {error.status} {error.message:.100}".rstrip()
    if isinstance(error, InvalidURL):  # its text is the address, with the password
        return "an address such as http://proxy.example:3128 is needed"
    return failure(error) or str(error) or type(error).__name__
