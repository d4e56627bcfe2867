"""An agent that is a program in any language, and the processes of all agents that are programs."""

from __future__ import annotations

from pytest_intercode.agents.program.agent import make_factory

__all__ = ["make_factory"]
