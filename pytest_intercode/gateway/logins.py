"""Logins of Claude Code and Codex, read from their own files and renewed as they do it.

A token is renewed shortly before it expires, or when the server refuses it. Each refresh token is
valid only once, so only one process may send it. Claude Code has a lock for that, which we use; for
Codex, which has no lock and checks the file instead, we have our own. A process that comes second
finds a renewed file and uses that. The file is replaced as a whole, and no request is sent before
it is certain that the file can be written.

The names are those of the programs themselves (Claude Code 2.1.330, Codex 0.169.0).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pytest_intercode.gateway.apis import parse_object
from pytest_intercode.system.connections import failure
from pytest_intercode.system.platform import user_id

__all__ = ["LOGINS", "Login", "LoginError", "LoginForm", "Tokens", "login_of"]

_MARGIN = 300.0  # seconds before its expiry at which a token is renewed, as in Claude Code
_MAX_AGE = 8 * 86400.0  # seconds after which Codex renews a token, whatever its expiry
_MAX_TIME = 1e11  # seconds since 1970; a larger number is not a time
_MAX_FILE_SIZE = 1024 * 1024  # bytes of a login's file, and of an answer of the token server
_RENEWAL_TIMEOUT = 30.0  # seconds for the token server
_LOCK_TIMEOUT = 40.0  # seconds that another process may take to renew a token
_LOCK_INTERVAL = 0.1  # seconds between two attempts to get a lock
_STALE_LOCK = 60.0  # seconds after which Claude Code treats a lock as left behind


class LoginError(Exception):
    """A login cannot be used; the message says why in one line, and contains no secret."""


@dataclass(frozen=True)
class Tokens:
    """The content of a login's file; the secrets are not in its repr.

    Attributes:
        access: the access token, which is sent with requests.
        refresh: the refresh token, which gets a new access token; empty for none.
        expires: when it has to be renewed, in seconds since 1970; None if that is not known.
        account: the account, which requests also name; empty for none.
    """

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    expires: float | None = None
    account: str = field(default="", repr=False)

    @property
    def has_ended(self) -> bool:
        """Whether it must be renewed before it is used."""
        return self.expires is not None and self.expires - _MARGIN <= time.time()


@dataclass(frozen=True)
class LoginForm(ABC):
    """The form of one program's login.

    Attributes:
        name: the program's name in the option.
        program: the program's name in messages.
        vendor: the vendor whose servers it is for.
        home_variable: the environment variable of the program's folder.
        home: that folder below the user's home, if the variable is not set.
        file: the file in that folder.
        address: the address of the API that the login is for.
        token_url: the address at which a token is renewed.
        client_id: the program's own client id, which a renewal sends.
        remedy: how a user logs in.
        responses_alone: whether it is only for the responses API.
    """

    name: str
    program: str
    vendor: str
    home_variable: str
    home: str
    file: str
    address: str
    token_url: str
    client_id: str
    remedy: str
    responses_alone: bool = False

    def path(self, environment: Mapping[str, str]) -> Path:
        """Return the path of the file."""
        home = environment.get(self.home_variable, "").strip()
        return (Path(home).expanduser() if home else Path.home() / self.home) / self.file

    @abstractmethod
    def tokens(self, content: Mapping[str, Any]) -> Tokens:
        """Return the tokens in the file's content.

        Raises:
            KeyError, TypeError, ValueError: the content does not have this form.
        """

    @abstractmethod
    def renewal(self, content: Mapping[str, Any], refresh: str) -> dict[str, Any]:
        """Return the request for a new token."""

    @abstractmethod
    def renewed(self, content: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the file's new content."""

    @abstractmethod
    def headers(self, tokens: Tokens) -> dict[str, str]:
        """Return the headers of a request."""

    @abstractmethod
    def locks(self, folder: Path) -> list[Path]:
        """Return the folders that exist as locks while a token is renewed."""


class _Claude(LoginForm):
    def tokens(self, content: Mapping[str, Any]) -> Tokens:
        login = content["claudeAiOauth"]
        expires = login.get("expiresAt")
        return Tokens(
            _text(login["accessToken"]),
            str(login.get("refreshToken") or ""),
            None if expires is None else _time(expires, 1000),
        )

    def renewal(self, content: Mapping[str, Any], refresh: str) -> dict[str, Any]:
        login = content["claudeAiOauth"]
        scopes = login.get("scopes")
        return {
            "grant_type": "refresh_token",
            "refresh_token": refresh,
            "client_id": login.get("clientId") or self.client_id,
            **({"scope": " ".join(scopes)} if isinstance(scopes, list) and scopes else {}),
        }

    def renewed(self, content: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        login = {**content["claudeAiOauth"], "accessToken": _text(answer["access_token"])}
        login["refreshToken"] = answer.get("refresh_token") or login.get("refreshToken")
        login["expiresAt"] = int((time.time() + _time(answer["expires_in"])) * 1000)
        if isinstance(answer.get("scope"), str):
            login["scopes"] = answer["scope"].split()
        return {**content, "claudeAiOauth": login}

    def headers(self, tokens: Tokens) -> dict[str, str]:
        return {
            "authorization": f"Bearer {tokens.access}",
            "anthropic-beta": "oauth-2025-04-20",
        }

    def locks(self, folder: Path) -> list[Path]:
        real = folder.resolve()
        return [folder / ".oauth_refresh.lock", real.with_name(f"{real.name}.lock")]


class _Codex(LoginForm):
    def tokens(self, content: Mapping[str, Any]) -> Tokens:
        tokens = content["tokens"]
        if tokens is None:
            raise ValueError("it has a key instead of a login: set OPENAI_API_KEY")
        ends = [end for end in (_end_of(tokens["access_token"]), _age_limit(content)) if end]
        return Tokens(
            _text(tokens["access_token"]),
            str(tokens.get("refresh_token") or ""),
            min(ends, default=None),
            str(tokens.get("account_id") or ""),
        )

    def renewal(self, content: Mapping[str, Any], refresh: str) -> dict[str, Any]:
        return {
            "client_id": self.client_id,
            "grant_type": "refresh_token",
            "refresh_token": refresh,
        }

    def renewed(self, content: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        keys = ("id_token", "access_token", "refresh_token")
        new_tokens = {key: _text(answer[key]) for key in keys if answer.get(key)}
        _text(new_tokens["access_token"])
        time_text = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
        return {
            **content,
            "tokens": {**content["tokens"], **new_tokens},
            "last_refresh": time_text,
        }

    def headers(self, tokens: Tokens) -> dict[str, str]:
        account = {"chatgpt-account-id": tokens.account} if tokens.account else {}
        return {
            "authorization": f"Bearer {tokens.access}",
            "originator": "codex_exec",
            **account,
        }

    def locks(self, folder: Path) -> list[Path]:
        return [folder / ".intercode_refresh.lock"]


LOGINS: Mapping[str, LoginForm] = {
    form.name: form
    for form in (
        _Claude(
            name="claude",
            program="Claude Code",
            vendor="anthropic",
            home_variable="CLAUDE_CONFIG_DIR",
            home=".claude",
            file=".credentials.json",
            address="https://api.anthropic.com",
            token_url="https://platform.claude.com/v1/oauth/token",
            client_id="9d1c250a-e61b-44d9-88ed-5944d1962f5e",
            remedy="start `claude` and type /login",
        ),
        _Codex(
            name="codex",
            program="Codex",
            vendor="openai",
            home_variable="CODEX_HOME",
            home=".codex",
            file="auth.json",
            address="https://chatgpt.com/backend-api/codex",
            token_url="https://auth.openai.com/oauth/token",
            client_id="app_EMoamEEZ73f0CkXaXp7hrann",
            remedy="run `codex login`",
            responses_alone=True,
        ),
    )
}
"""The programs whose logins can be used, by their names in the option."""


class Login:
    """The login of one program on this machine; thread-safe, and all methods block.

    Args:
        form: the form of the login.
        path: its file.
        token_url: the address at which its token is renewed; by default the form's.
    """

    def __init__(self, form: LoginForm, path: Path, token_url: str = "") -> None:
        self.form = form
        self.path = path
        self._token_url = token_url or form.token_url
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}

    @property
    def program(self) -> str:
        """The program whose subscription is used."""
        return self.form.program

    @property
    def secrets(self) -> tuple[str, ...]:
        """All tokens that it has had so far."""
        return tuple(self._secrets)

    def describe(self) -> str:
        """Return how long the login is valid, in a few words.

        Raises:
            LoginError: the login cannot be used.
        """
        tokens = self._tokens(self._read())
        if tokens.expires is None:
            return "it exists"
        if tokens.has_ended:
            if not tokens.refresh:
                raise self._error(f"it has expired: {self.form.remedy}")
            return "its token has expired, and is renewed when needed"
        end = datetime.fromtimestamp(tokens.expires).astimezone()
        return f"its token is valid until {end:%Y-%m-%d %H:%M}"

    def headers(self, refused: str = "") -> dict[str, str]:
        """Return the headers of a request, with a valid token.

        Args:
            refused: the header ``authorization`` that the server has refused; empty for none.

        Raises:
            LoginError: the login cannot be used.
        """
        with self._lock:
            tokens = self._tokens(self._read())
            if tokens.has_ended or self._bearer(tokens) == refused:
                tokens = self._renew(tokens)
            return self.form.headers(tokens)

    def _bearer(self, tokens: Tokens) -> str:
        return self.form.headers(tokens)["authorization"]

    def _renew(self, tokens: Tokens) -> Tokens:
        """Renew the tokens in the file, and return them."""
        if not tokens.refresh:
            raise self._error(f"it has expired: {self.form.remedy}")
        folder = self.path.parent
        with contextlib.ExitStack() as stack:
            for lock in self.form.locks(folder):
                stack.enter_context(self._holding(lock))
            # Read it again, now that no other process can renew it.
            content = self._read()
            present = self._tokens(content)
            if present.access != tokens.access and not present.has_ended:
                return present  # another process was faster
            target = self.path.resolve()
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
            try:
                mode = stat.S_IMODE(target.stat().st_mode)
                # Open the file before asking the server: the refresh token is valid only once, so
                # it must be possible to save the answer.
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    answer = self._ask(self.form.renewal(content, present.refresh))
                    return self._write(file, temporary, target, content, answer)
            except OSError as error:
                raise self._error(f"it cannot be written: {error.strerror}") from None
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)

    def _write(
        self,
        file: Any,
        temporary: Path,
        target: Path,
        content: Mapping[str, Any],
        answer: Mapping[str, Any],
    ) -> Tokens:
        """Replace the file, unless the user has logged in again in the meantime."""
        try:
            document = self.form.renewed(content, answer)
        except (KeyError, TypeError, ValueError):
            raise self._error(f"{self._token_url} sent no token") from None
        new_tokens = self._tokens(document)
        later = self._read()
        if self._tokens(later).refresh != self._tokens(content).refresh:
            return self._tokens(later)
        json.dump(document, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
        temporary.replace(target)
        return new_tokens

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the token server."""
        headers = {"content-type": "application/json", "user-agent": "pytest-intercode"}
        renewal = Request(self._token_url, json.dumps(request).encode(), headers, method="POST")
        try:
            with build_opener(_NoRedirects).open(renewal, timeout=_RENEWAL_TIMEOUT) as response:
                answer = parse_object(response.read(_MAX_FILE_SIZE))
        except HTTPError as error:
            error.close()
            if error.code in (400, 401, 403, 404):
                raise self._error(f"it has expired: {self.form.remedy}") from None
            raise self._error(f"{self._token_url} answered {error.code}") from None
        except (URLError, OSError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            cause = failure(reason) if isinstance(reason, BaseException) else ""
            raise self._error(
                f"{self._token_url} cannot be reached: {cause or type(error).__name__}"
            ) from None
        if answer is None:
            raise self._error(f"{self._token_url} sent no token")
        return answer

    def _read(self) -> dict[str, Any]:
        """Return the content of the file, which only the user may be able to read."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            raise self._error(f"there is no such file: {self.form.remedy}") from None
        except OSError as error:
            raise self._error(f"it cannot be read: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._error("it is not a regular file")
            if status.st_uid != user_id():
                raise self._error("it belongs to another user")
            if status.st_mode & 0o077:
                mode = stat.S_IMODE(status.st_mode)
                raise self._error(f"others may read or write it (mode {mode:o}): chmod 600 it")
            data = file.read(_MAX_FILE_SIZE)
        content = parse_object(data)
        if content is None:
            raise self._error("it is not a JSON object")
        return content

    def _tokens(self, content: Mapping[str, Any]) -> Tokens:
        try:
            tokens = self.form.tokens(content)
        except (KeyError, TypeError, AttributeError):
            raise self._error(f"it has no login: {self.form.remedy}") from None
        except ValueError as error:
            raise self._error(str(error)) from None
        for secret in (tokens.access, tokens.refresh):
            if secret:
                self._secrets[secret] = None
        return tokens

    @contextlib.contextmanager
    def _holding(self, lock: Path) -> Iterator[None]:
        """Hold a lock by creating a folder, as Claude Code does."""
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                lock.mkdir()
                break
            except FileExistsError:
                with contextlib.suppress(OSError):
                    if time.time() - lock.stat().st_mtime > _STALE_LOCK:
                        lock.rmdir()
                        continue
            except OSError as error:
                raise self._error(f"it cannot be locked: {error.strerror}") from None
            if time.monotonic() > deadline:
                raise self._error(f"another process holds {lock}")
            time.sleep(_LOCK_INTERVAL)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.rmdir()

    def _error(self, reason: str) -> LoginError:
        return LoginError(f"the login of {self.form.program}, {self.path}: {reason}")


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects, so that a token is sent to only one address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def login_of(name: str, environment: Mapping[str, str] = os.environ) -> Login:
    """Return a program's login on this machine.

    Args:
        name: one of :data:`LOGINS`.
        environment: may name the folder of its file and the address at which a token is renewed:
            ``CODEX_REFRESH_TOKEN_URL_OVERRIDE``, which Codex itself reads, for Codex, and
            ``INTERCODE_CLAUDE_TOKEN_URL`` for Claude Code.
    """
    form = LOGINS[name]
    variable = {"codex": "CODEX_REFRESH_TOKEN_URL_OVERRIDE", "claude": "INTERCODE_CLAUDE_TOKEN_URL"}
    return Login(form, form.path(environment), environment.get(variable[name], "").strip())


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("it has an invalid token")
    return value


def _time(value: Any, parts: int = 1) -> float:
    """Convert a time in fractions of a second (``parts`` per second) to seconds."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if abs(seconds := float(value) / parts) < _MAX_TIME:
            return seconds
    raise ValueError("it has an invalid time")


def _end_of(token: str) -> float | None:
    """Return when a JSON web token expires; its signature is left to the server to check."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return _time(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None


def _age_limit(content: Mapping[str, Any]) -> float | None:
    """Return when Codex would renew a token, whatever its expiry."""
    try:
        renewed = datetime.fromisoformat(str(content["last_refresh"])[:19])  # to the second
    except (ValueError, KeyError):
        return None
    return renewed.replace(tzinfo=timezone.utc).timestamp() + _MAX_AGE
