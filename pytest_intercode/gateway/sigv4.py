"""The signature of a request to AWS, version 4, for services other than S3. Pure.

See docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

__all__ = ["AwsKeys", "sign"]

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class AwsKeys:
    """The keys with which requests to AWS are signed; the secrets are not in its repr.

    Attributes:
        access_key: the id of the key.
        secret_key: the key.
        region: the region of the service, such as ``us-east-1``.
        session_token: the session token of temporary keys; empty for others.
    """

    access_key: str
    secret_key: str = field(repr=False)
    region: str
    session_token: str = field(default="", repr=False)


def sign(
    keys: AwsKeys,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    time: datetime,
    service: str = "bedrock",
) -> dict[str, str]:
    """Return the headers to add to a request.

    Args:
        keys: the keys to sign with.
        method: the HTTP method.
        url: the full address, encoded as it is sent.
        headers: further headers to sign.
        body: the body; empty for none.
        time: the time, in UTC.
        service: the service's name in signatures.
    """
    parts = urlsplit(url)
    stamp = time.strftime("%Y%m%dT%H%M%SZ")
    own_headers = {"x-amz-date": stamp}
    if keys.session_token:
        own_headers["x-amz-security-token"] = keys.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed |= {**own_headers, "host": parts.netloc}
    names = ";".join(sorted(signed))
    canonical_request = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/-_.~"),  # encoded twice, as for all services but S3
            _canonical_query(parts.query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{keys.region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical_request.encode()).hexdigest()
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, "\n".join((_ALGORITHM, stamp, scope, digest)).encode(), "sha256")
    own_headers["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature.hex()}"
    )
    return own_headers


def _canonical_query(query: str) -> str:
    pairs = parse_qsl(query, keep_blank_values=True)
    encoded = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in encoded)
