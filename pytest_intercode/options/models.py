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
    """The gateway, recordings of its answers, and tokens."""

    title = "models"

    record: Option[str | None] = choices(
        "record=none|missing|all",
        "what project tests record: `none` calls no model, `missing` records runs that have no "
        "current recording, `all` records all again (docs/recordings.md)",
        fallback="recordings are replayed, and nothing is recorded",
        everyday=True,
    )
    gateway_programs = flag(
        "gateway",
        "let `command:`, `mcp:` and `acp:` agents reach models through a gateway, which counts "
        "their tokens and cost, keeps the real keys from them, and refuses requests once a "
        "budget is used up (docs/gateway.md); needs the extra `gateway`",
    )
    gateway_prices = pairs(
        "gateway-price MODEL=INPUT/OUTPUT[/CACHED]",
        "price of a model at the gateway, per million tokens, such as `gpt-5=1.25/10/0.125`; `*` "
        "stands for all other models; `MODEL=shipped` or `*=shipped` uses the dated list prices "
        "that are shipped (docs/gateway.md)",
        parse_price,
    )
    gateway_models = listed("gateway-model=NAME", "serve only these models at the gateway", str)
    gateway_logins = listed(
        "gateway-login=claude|codex",
        "use your own login of Claude Code or Codex instead of a key; tokens then have no price. "
        "First read docs/logins.md on what the vendors allow",
        str,
    )
    gateway_record = optional(
        "gateway-record=DIR", "record the gateway's requests and answers in this folder", Path
    )
    gateway_replay = optional(
        "gateway-replay=DIR",
        "let the gateway answer from a recording, without a model",
        Path,
        exists=True,
        excludes=("gateway_record", "a run is either recorded or replayed"),
    )
    gateway_allowed = listed(
        "gateway-allow=NAME",
        "let requests have a field, a type of tool or of content, or a beta of this name; the "
        "gateway refuses what it does not know (docs/gateway.md)",
        str,
    )
    gateway_hosted_tools = flag(
        "gateway-hosted-tools",
        "let requests use tools that run at the provider, such as web search; they are otherwise "
        "refused, as they leave the sandbox",
    )
    tokens: Option[TokenServer | None] = choices(
        "tokens=vllm|sglang",
        "keep the token ids and log-probabilities of each request in the records, for training: "
        "the server at `OPENAI_BASE_URL` is asked for them in the way of this kind of server, "
        "and programs reach it through the gateway (docs/tokens.md); needs the extra `gateway`",
        fallback="no tokens are kept",
    )
