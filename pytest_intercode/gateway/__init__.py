"""The proxy in front of models' APIs: it meters agents, records them, and holds the real keys.

A :class:`~pytest_intercode.gateway.gateway.Gateway` is an HTTP server in the pytest process. An
agent is given its address and a token of its own instead of a key; each request goes to the
configured server of the API, and nowhere else. It needs the extra ``gateway`` (aiohttp), which is
imported when the first session is opened.
"""
