"""Agents that run inside the sandbox, with tools of their own: ``installed:RECIPE``, presets."""

from __future__ import annotations

from pytest_intercode.agents.installed.agent import make_factory

__all__ = ["make_factory"]
