"""What a gateway is set up with: plain data, whose keys no text shows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_intercode.core.facts import Fact
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.exchange import Price

__all__ = ["VENDORS", "GatewaySettings", "is_secret"]

VENDORS: Mapping[str, tuple[str, str, str]] = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY", "https://api.openai.com/v1"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
}
"""By vendor: the variables of the address and of the key, and the vendor's own address."""


@dataclass(frozen=True)
class GatewaySettings:
    """How a gateway works.

    Attributes:
        upstreams: the address of each vendor's API: OpenAI's with ``/v1``, Anthropic's without.
        keys: the real key of each vendor; no text shows them. Empty for a server that needs none.
        models: the models that may be asked; empty for any.
        prices: what models cost, by name; ``*`` is for all others.
        hosted_tools: whether requests may use tools that run at the provider.
        allowed: fields and types that requests may have beyond those that are known.
        record: the folder that exchanges are written to.
        replay: the folder of exchanges that are answered from, without any server.
        offline: no request goes to a server: recordings answer, or nothing does.
        programs: whether agents outside of sandboxes (``command:`` and others) go through it, too.
        silence: seconds that a server may send nothing before it is given up.
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

    def check(self) -> None:
        """See that a gateway can work so.

        Raises:
            ConfigurationError: an address is none, a folder is not there, or two settings do not
                go together.
        """
        for vendor, address in self.upstreams.items():
            if vendor not in VENDORS:
                raise ConfigurationError(
                    f"the gateway knows the APIs of {' and '.join(VENDORS)}, not of {vendor!r:.40}"
                )
            _check_address(vendor, address)
        if self.record is not None and self.replay is not None:
            raise ConfigurationError("the gateway cannot record and replay in one run")
        if self.replay is not None and not self.replay.is_dir():
            raise ConfigurationError(
                f"--intercode-gateway-replay={self.replay}: there is no such folder; "
                "--intercode-gateway-record makes one"
            )

    @classmethod
    def of_environment(
        cls, environment: Mapping[str, str] = os.environ, **fields: Any
    ) -> GatewaySettings:
        """Return settings with the addresses and keys of environment variables.

        Args:
            environment: where ``OPENAI_BASE_URL``, ``OPENAI_API_KEY``, ``ANTHROPIC_BASE_URL`` and
                ``ANTHROPIC_API_KEY`` are looked for.
            fields: further fields; entries of ``upstreams`` win over the environment's.
        """
        addresses = fields.pop("upstreams", {})
        defaults = {
            vendor: environment.get(address, "").strip() or default
            for vendor, (address, _, default) in VENDORS.items()
        }
        keys = {
            vendor: key
            for vendor, (_, name, _) in VENDORS.items()
            if (key := environment.get(name, "").strip())
        }
        return cls(upstreams={**defaults, **addresses}, keys=keys, **fields)

    def describe(self) -> Iterator[Fact]:
        """Yield a fact about each vendor: whether there is a key, by its name alone."""
        for vendor, (address_name, key_name, default) in VENDORS.items():
            place = "" if self.upstream(vendor) == default else f"; {address_name} is set"
            if self.keys.get(vendor):
                yield Fact(f"key of {vendor}", f"{key_name} is set{place}")
            else:
                text = f"{key_name} is not set: models of {vendor} need it{place}"
                yield Fact(f"key of {vendor}", text, "note")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys that are masked wherever they would be shown.

        A placeholder, as servers without accounts take it (``EMPTY``, ``test``, ``sk-none``), is a
        word that answers may have for other reasons, and masking it would change them.
        """
        return tuple(key for key in self.keys.values() if is_secret(key))

    @property
    def reaches_models(self) -> bool:
        """Whether the user has set up a key, or a server of their own."""
        return bool(self.keys) or any(
            self.upstream(vendor) != default for vendor, (_, _, default) in VENDORS.items()
        )

    @property
    def configured(self) -> tuple[str, ...]:
        """The vendors whose server the user has set up, by a key or an address; else all."""
        selection = (
            vendor
            for vendor, (_, _, default) in VENDORS.items()
            if self.keys.get(vendor) or self.upstream(vendor) != default
        )
        return tuple(selection) or tuple(VENDORS)

    def upstream(self, vendor: str) -> str:
        """Return the address of a vendor's API."""
        return self.upstreams.get(vendor) or VENDORS[vendor][2]

    def address(self, vendor: str, path: str) -> str:
        """Return where a route is served.

        Args:
            vendor: whose API it is.
            path: the route, with ``/v1``.
        """
        base = self.upstream(vendor).rstrip("/")
        if vendor == "openai":  # the address has its version, which need not be /v1
            return f"{base}{path.removeprefix('/v1')}"
        return f"{base.removesuffix('/v1')}{path}"


def is_secret(key: str) -> bool:
    """Whether a key can be one that gives access to something.

    Vendors' keys are random and have 32 characters or more. 16 with letters and digits cannot be
    guessed (62^16 are 2^95), and are in no text by chance. Letters alone may be words, so more of
    them are asked for. Eight different characters exclude ``sk-xxxxxxxxxxxxxxxx``.
    """
    mixed = any(map(str.isdigit, key)) and any(map(str.isalpha, key))
    return len(key) >= (16 if mixed else 24) and len(set(key)) >= 8


def _check_address(vendor: str, address: str) -> None:
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigurationError(
            f"{VENDORS[vendor][0]}: the gateway needs an address such as {VENDORS[vendor][2]}, "
            "with http or https"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{VENDORS[vendor][0]}: the gateway takes an address without a name, a password, ? or "
            "#; the key stands in its own variable"
        )
