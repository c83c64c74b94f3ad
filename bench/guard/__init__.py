"""What the guard adds to a request."""
