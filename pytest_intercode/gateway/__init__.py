"""The proxy in front of models' APIs: it meters agents, records them, and holds the real keys.

A :class:`~pytest_intercode.gateway.gateway.Gateway` is an HTTP server in the pytest process. An
agent gets the gateway's address, and its own token instead of a key. Each request goes to the
configured server of the API and nowhere else. The gateway needs the extra ``gateway`` (aiohttp),
which is imported when the first session is opened.
"""
