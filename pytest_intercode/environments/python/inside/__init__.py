"""Code that runs inside of sandboxes. Only its text is used here, and by unit tests.

What is in ``candidate`` and ``encoding`` runs next to the agent's code, which can change it as it
likes; so it must know nothing that the agent must not. What is in ``judge`` and ``decoding`` never
meets the agent's code, only data that it made.
"""
