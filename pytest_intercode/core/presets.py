"""The agents that we have recipes for, by the names that ``--intercode-agent`` takes."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PRESETS"]

PRESETS: Mapping[str, str] = {
    "codex": "codex",
    "claude": "claude-code",
    "gemini": "gemini-cli",
    "opencode": "opencode",
    "qwen": "qwen-code",
    "pi": "pi",
    "copilot": "copilot",
    "kimi": "kimi-code",
    "cline": "cline",
    "mini-swe-agent": "mini-swe-agent",
    "aider": "aider",
}
"""The recipe (a file of ``agents/installed/recipes``) by the agent's name."""
