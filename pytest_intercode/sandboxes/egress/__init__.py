"""A network that is limited to named hosts, for sandboxes that have none of their own.

A sandbox keeps its network namespace with nothing but loopback. Sockets are opened *in* that
namespace, by us and before anything else runs there, and are held by a proxy *outside* of it: a
name server, an HTTP proxy, and one listener for each host and port. So the sandbox has no program
of the proxy's that could be stopped, and no file that could stay. The proxy alone resolves names
and makes connections, and only those that are allowed.
"""
