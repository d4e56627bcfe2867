"""MySQL and MariaDB servers in sandboxes of their own.

Raises:
    InfrastructureError: what this needs of the extra ``mysql`` is not installed.
"""

from pytest_intercode.errors import InfrastructureError

try:
    import pymysql  # noqa: F401
except ImportError:
    raise InfrastructureError(
        "tasks with the engine mysql need PyMySQL: pip install 'pytest-intercode[mysql]'"
    ) from None
