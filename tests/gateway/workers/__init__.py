"""The inference routes over real loopback HTTP."""
