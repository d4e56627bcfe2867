"""How programs in sandboxes reach models.

Each class is a group of options, as ``--intercode-help`` shows them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.options.option import Option, Values, choices, flag, listed, optional, pairs
from pytest_intercode.options.parsers import parse_price

if TYPE_CHECKING:
    from pytest_intercode.gateway.tokens import TokenServer

__all__ = ["ModelOptions"]


class ModelOptions(Values):
    """The gateway, recordings of what it is answered, and tokens."""

    title = "models"

    record: Option[str | None] = choices(
        "record=none|missing|all",
        "what project tests do about recordings: `none` calls no model, `missing` records what has "
        "no current one, `all` records again (docs/recordings.md)",
        fallback="what is recorded is replayed, and nothing is recorded",
        everyday=True,
    )
    gateway_programs = flag(
        "gateway",
        "let `command:`, `mcp:` and `acp:` agents reach models through a gateway, which counts "
        "their tokens and money, keeps the real keys from them, and refuses once a budget is used "
        "up (docs/gateway.md); extra `gateway`",
    )
    gateway_prices = pairs(
        "gateway-price MODEL=INPUT/OUTPUT[/CACHED]",
        "what a model costs at the gateway, per million tokens, such as `gpt-5=1.25/10/0.125`; `*` "
        "is for all others; `MODEL=shipped` or `*=shipped` takes the dated list prices that are "
        "shipped (docs/gateway.md)",
        parse_price,
    )
    gateway_models = listed(
        "gateway-model=NAME", "only these models are served by the gateway", str
    )
    gateway_logins = listed(
        "gateway-login=claude|codex",
        "ask with your own login of Claude Code or of Codex instead of a key: tokens without a "
        "price; read docs/logins.md on what the vendors allow first",
        str,
    )
    gateway_record = optional(
        "gateway-record=DIR", "write what the gateway is asked and what is answered", Path
    )
    gateway_replay = optional(
        "gateway-replay=DIR",
        "have the gateway answer from a recording, without any model",
        Path,
        exists=True,
        excludes=("gateway_record", "a run is recorded, or it is replayed"),
    )
    gateway_allowed = listed(
        "gateway-allow=NAME",
        "let requests have a field, a type of tools or of contents, or a beta of this name; what "
        "the gateway does not know is refused (docs/gateway.md)",
        str,
    )
    gateway_hosted_tools = flag(
        "gateway-hosted-tools",
        "let requests use tools that run at the provider, such as web search; they are refused "
        "otherwise, as they leave the sandbox",
    )
    tokens: Option[TokenServer | None] = choices(
        "tokens=vllm|sglang",
        "keep the token ids and log-probabilities of each request in the records, for training: "
        "the server of `OPENAI_BASE_URL` is asked for them, as this kind of server wants it; "
        "programs are led through the gateway (docs/tokens.md); extra `gateway`",
        fallback="none are asked for",
    )
