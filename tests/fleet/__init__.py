"""Several gateways, as programs, watched from outside."""
