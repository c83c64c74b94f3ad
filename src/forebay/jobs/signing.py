"""Signatures of webhooks, as the Standard Webhooks specification has them.

The `openai` SDK and the libraries of that specification check them: HMAC-SHA256 over
`id.timestamp.body`, keyed with what follows `whsec_` in base64, or with any other text as it is.
"""

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from hashlib import sha256

PREFIX = "whsec_"


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`.

    >>> sign("text", "evt_1", 1700000000, b"{}")
    'v1,PbCEwMnV6qAJkWh+LqdBEFEQEWqD6cV8ZM2ptgh57Wk='
    """
    signed = b"%b.%d.%b" % (event_id.encode(), timestamp, body)
    return "v1," + b64encode(hmac.new(_key(secret), signed, sha256).digest()).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(PREFIX):
        try:
            return b64decode(secret[len(PREFIX) :], validate=True)
        except Error:
            pass  # not one of those after all
    return secret.encode()
