"""The inference routes: from the bytes of a request to a call in the relay, and back."""
