"""Agents that are programs in any language, and the processes of all agents that are programs."""
