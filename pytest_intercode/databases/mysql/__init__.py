"""MySQL and MariaDB servers in sandboxes of their own.

Raises:
    InfrastructureError: the packages of the extra ``mysql`` are not installed.
"""

from pytest_intercode.errors import InfrastructureError
from pytest_intercode.system.extras import need

try:
    import pymysql  # noqa: F401
except ImportError:
    raise InfrastructureError(need("mysql", "a task with the engine mysql")) from None
