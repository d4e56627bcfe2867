"""Code that runs inside sandboxes. Outside of them, only its text and unit tests use it.

``candidate`` and ``encoding`` run next to the agent's code, which can change them in any way, so
they must not hold anything that the agent must not know. ``judge`` and ``decoding`` never meet the
agent's code, only data that it made.
"""
