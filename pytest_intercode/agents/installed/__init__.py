"""Agents that run inside the sandbox, with tools of their own: ``installed:RECIPE``, presets."""
