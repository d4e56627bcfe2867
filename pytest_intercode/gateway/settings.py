"""The settings of a gateway: plain data, whose keys are not in its repr."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_intercode.core.facts import Fact
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.gateway.exchange import Price
from pytest_intercode.gateway.logins import LOGINS, LoginError, LoginForm, login_of
from pytest_intercode.gateway.sigv4 import AwsKeys
from pytest_intercode.gateway.tokens import TokenServer
from pytest_intercode.gateway.vendors import VENDORS
from pytest_intercode.system.connections import LOOPBACK_HOSTS

__all__ = ["GatewaySettings", "is_secret"]

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d{1,2}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{1,62}")
_LOCATION = re.compile(r"[a-z]+(-[a-z]+\d{1,2})?")
_EXPECTED = ("openai", "anthropic")  # vendors whose missing key is worth a line


@dataclass(frozen=True)
class GatewaySettings:
    """The settings of a gateway.

    Attributes:
        upstreams: the address of each vendor's API: OpenAI's with ``/v1``, others' without.
        keys: the real key of each vendor, not in the repr. A server may need none.
        models: the models that may be used; empty for any.
        prices: the prices of models, by name; ``*`` is for all others.
        hosted_tools: whether requests may use tools that run at the provider.
        allowed: fields and types that requests may have in addition to the known ones.
        record: the folder to which exchanges are written.
        replay: the folder of exchanges from which requests are answered, without any server.
        offline: whether no request goes to a server, so that only recordings answer.
        programs: whether agents outside of sandboxes (``command:`` and others) also go through it.
        silence: seconds without data after which a server is given up.
        aws: the keys with which requests to Bedrock are signed if it has no key of its own.
        account: the ``project`` and ``location`` of Vertex AI; empty if it is not configured.
        logins: the programs whose login replaces the key of their vendor: ``claude``, ``codex``.
        hidden: further texts that no recording may contain, such as keys that agents are given; not
            in the repr.
        tokens: the kind of server that is asked for token ids over OpenAI's API; None for no ids.
    """

    upstreams: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    models: tuple[str, ...] = ()
    prices: Mapping[str, Price] = field(default_factory=dict)
    hosted_tools: bool = False
    allowed: tuple[str, ...] = ()
    record: Path | None = None
    replay: Path | None = None
    offline: bool = False
    programs: bool = False
    silence: float = 600.0
    hidden: tuple[str, ...] = field(default=(), repr=False)
    logins: tuple[str, ...] = ()
    aws: AwsKeys | None = None
    account: Mapping[str, str] = field(default_factory=dict)
    tokens: TokenServer | None = None

    def check(self) -> None:
        """Check that a gateway can work with these settings.

        Raises:
            ConfigurationError: an address is invalid, a folder does not exist, or two settings
                contradict each other.
        """
        for vendor, address in self.upstreams.items():
            if vendor not in VENDORS:
                raise ConfigurationError(
                    f"the gateway knows the APIs of {', '.join(VENDORS)}, not of {vendor!r:.40}"
                )
            _check_address(vendor, address)
        for name in self.logins:
            self._check_login(name)
        own_address = VENDORS["openai"].address
        asks_vendor = self.upstream("openai") == own_address or "openai" in self.login_vendors
        if self.tokens is not None and self.replay is None and not self.offline and asks_vendor:
            raise ConfigurationError(
                f"--intercode-tokens={self.tokens}: models at {own_address} do not return token "
                "ids; set OPENAI_BASE_URL to a server that does, with /v1"
            )
        if self.record is not None and self.replay is not None:
            raise ConfigurationError("the gateway cannot record and replay in one run")
        if self.replay is not None and not self.replay.is_dir():
            raise ConfigurationError(
                f"--intercode-gateway-replay={self.replay}: there is no such folder; "
                "--intercode-gateway-record makes one"
            )

    def _check_login(self, name: str) -> None:
        """Check that a login is sent only to its vendor, and can be used if models are called."""
        option = f"--intercode-gateway-login={name}"
        if name not in LOGINS:
            raise ConfigurationError(
                f"{option}: there is no such login. Allowed: "
                f"{' and '.join(LOGINS)}.{suggestion(name, [*LOGINS])}"
            )
        form = LOGINS[name]
        address, own_address = urlsplit(self.upstream(form.vendor)), urlsplit(form.address)
        if address.hostname not in LOOPBACK_HOSTS and address[:2] != own_address[:2]:
            raise ConfigurationError(
                f"{option}: a login is sent only to {form.address}; unset "
                f"{VENDORS[form.vendor].address_variable}"
            )
        if self.replay is None and not self.offline:
            try:
                login_of(name).describe()
            except LoginError as error:
                raise ConfigurationError(f"{option}: {error}") from None

    @classmethod
    def of_environment(
        cls, environment: Mapping[str, str] = os.environ, **fields: Any
    ) -> GatewaySettings:
        """Return settings with the addresses and keys of environment variables.

        Args:
            environment: the variables, among them those of each vendor such as ``OPENAI_BASE_URL``
                and ``OPENAI_API_KEY``.
            fields: further fields; entries of ``upstreams`` override those of the environment.
        """
        addresses = fields.pop("upstreams", {})
        defaults = {
            name: address
            for name, vendor in VENDORS.items()
            if (address := environment.get(vendor.address_variable, "").strip() or vendor.address)
        }
        keys = {
            name: key
            for name, vendor in VENDORS.items()
            for variable in reversed(vendor.key_variables)  # the first one wins
            if (key := environment.get(variable, "").strip())
        }
        region = environment.get("AWS_REGION", "") or environment.get("AWS_DEFAULT_REGION", "")
        aws = fields.setdefault("aws", _aws_keys(environment, region))
        if (aws or "bedrock" in keys) and _REGION.fullmatch(region):
            defaults.setdefault("bedrock", f"https://bedrock-runtime.{region}.amazonaws.com")
        project = environment.get("GOOGLE_CLOUD_PROJECT", "").strip()
        location = environment.get("GOOGLE_CLOUD_LOCATION", "").strip() or "global"
        if _PROJECT.fullmatch(project) and _LOCATION.fullmatch(location):
            fields.setdefault("account", {"project": project, "location": location})
            defaults.setdefault("vertex", _vertex_address(location))
        return cls(upstreams={**defaults, **addresses}, keys=keys, **fields)

    def describe(self) -> Iterator[Fact]:
        """Yield a fact about each vendor's key and each login: whether it exists."""
        for name, vendor in VENDORS.items():
            variables = " or ".join(vendor.key_variables) or "GOOGLE_CLOUD_PROJECT"
            moved = self.upstream(name) != vendor.address
            place = f"; {vendor.address_variable} is set" if moved else ""
            if self.keys.get(name):
                yield Fact(f"key of {name}", f"{variables} is set{place}")
            elif name == "vertex" and self.account:
                project, location = self.account["project"], self.account["location"]
                text = f"a token of Google Cloud, for the project {project} in {location}"
                yield Fact(f"key of {name}", text)
            elif name == "bedrock" and self.aws is not None:
                yield Fact(f"key of {name}", f"AWS_ACCESS_KEY_ID is set, for {self.aws.region}")
            elif moved or name in _EXPECTED:
                text = f"{variables} is not set: models of {name} need it{place}"
                yield Fact(f"key of {name}", text, "note")
        for name in LOGINS:
            login, is_used = login_of(name), name in self.logins
            try:
                use = "" if is_used else f"; --intercode-gateway-login={name} would use it"
                yield Fact(f"login of {name}", f"{login.path}: {login.describe()}{use}")
            except LoginError as error:
                if is_used:
                    yield Fact(f"login of {name}", str(error), "problem")
                elif login.path.exists():
                    yield Fact(f"login of {name}", str(error), "note")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys that are masked wherever they would be shown.

        They exclude placeholders for servers without accounts (``EMPTY``, ``test``, ``sk-none``):
        such a word may be in an answer for other reasons, and masking it would change the answer.
        """
        aws = (self.aws.secret_key, self.aws.session_token) if self.aws else ()
        return tuple(key for key in (*self.keys.values(), *aws) if is_secret(key))

    @property
    def login_vendors(self) -> Mapping[str, LoginForm]:
        """The logins that replace keys, by vendor."""
        forms = (LOGINS[name] for name in self.logins if name in LOGINS)
        return {form.vendor: form for form in forms}

    @property
    def keeps_exchanges(self) -> bool:
        """Whether exchanges are written to a folder, or replayed from one."""
        return self.record is not None or self.replay is not None

    @property
    def signs(self) -> bool:
        """Whether Bedrock is configured, whose clients sign their requests."""
        return bool(self.aws or self.keys.get("bedrock"))

    def prices_of(self, vendor: str) -> Mapping[str, Price]:
        """Return the prices of a vendor's models; a subscription has no prices per token."""
        return {} if vendor in self.login_vendors else self.prices

    @property
    def reaches_models(self) -> bool:
        """Whether the user has configured a key or their own server."""
        return bool(self.keys or self.logins or self.signs or self.account) or any(
            self.upstream(name) != vendor.address for name, vendor in VENDORS.items()
        )

    @property
    def configured(self) -> tuple[str, ...]:
        """The vendors that the user has configured, by a key or an address; if none, all."""
        selection = (
            name
            for name, vendor in VENDORS.items()
            if self.keys.get(name)
            or name in self.login_vendors
            or (name == "bedrock" and self.signs)
            or (name == "vertex" and self.account)
            or self.upstream(name) != vendor.address
        )
        return tuple(selection) or tuple(name for name in VENDORS if self.upstream(name))

    def upstream(self, vendor: str) -> str:
        """Return the address of a vendor's API; empty if it must be set but is not."""
        address = self.upstreams.get(vendor) or VENDORS[vendor].address
        if vendor in self.login_vendors and address == VENDORS[vendor].address:
            return self.login_vendors[vendor].address
        return address

    def address(self, vendor: str, path: str) -> str:
        """Return the full address of a route.

        Args:
            vendor: the vendor whose API it is.
            path: the path of the route.
        """
        base = self.upstream(vendor).rstrip("/")
        if vendor not in ("openai", "anthropic"):
            return f"{base}{path}"
        if vendor == "openai":  # the address includes the version, which need not be /v1
            return f"{base}{path.removeprefix('/v1')}"
        return f"{base.removesuffix('/v1')}{path}"


def _aws_keys(environment: Mapping[str, str], region: str) -> AwsKeys | None:
    """Return the AWS keys in the environment; None without keys or without a region."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    access, secret, session = (environment.get(name, "").strip() for name in names)
    if not (access and secret and _REGION.fullmatch(region)):
        return None
    return AwsKeys(access, secret, region, session)


def _vertex_address(location: str) -> str:
    """Return the address of Vertex AI for a region, a multi-region, or ``global``."""
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def is_secret(key: str) -> bool:
    """Whether a key may be a real secret rather than a placeholder.

    Vendors' keys are random and have 32 characters or more. 16 characters of letters and digits
    cannot be guessed (62^16 is 2^95), and do not appear in a text by chance. Letters alone may be
    words, so more are required. Eight different characters exclude ``sk-xxxxxxxxxxxxxxxx``.
    """
    mixed = any(map(str.isdigit, key)) and any(map(str.isalpha, key))
    return len(key) >= (16 if mixed else 24) and len(set(key)) >= 8


def _check_address(vendor: str, address: str) -> None:
    variable = VENDORS[vendor].address_variable
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigurationError(
            f"{variable}: the gateway needs an address such as "
            f"{VENDORS[vendor].address or VENDORS[vendor].example}, with http or https"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{variable}: the gateway needs an address without a user name, a password, ? or #; "
            "the key belongs in its own variable"
        )
