"""What runs in the sandboxes of tau2 tasks; its text is sent there. On the host, nothing calls it.

The domains' own code imports a library of data models and a package of its own, which sandboxes
lack. ``models`` and ``package`` stand in for what it uses of them, and ``world`` serves its tools.
"""
