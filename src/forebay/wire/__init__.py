"""HTTP/1.1 on both sides: the server protocol of the hot routes and the pooled client.

Knows no queue and no model: bytes in, requests out; requests in, bytes out.
"""
