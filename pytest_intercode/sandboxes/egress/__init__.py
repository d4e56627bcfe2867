"""A network that is limited to named hosts, for sandboxes that have none of their own.

A sandbox keeps its network namespace with only loopback. Before anything else runs there, we open
sockets *in* that namespace, and a proxy *outside* of it holds them: a name server, an HTTP proxy,
and one listener for each host and port. So there is no program of the proxy in the sandbox that
could be stopped, and no file that could stay. Only the proxy resolves names and makes connections,
and only those that are allowed.
"""
