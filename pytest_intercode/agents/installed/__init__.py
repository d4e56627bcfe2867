"""Agents that run inside the sandbox, with their own tools: ``installed:RECIPE`` and presets."""
