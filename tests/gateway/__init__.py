"""The gateway over real loopback HTTP, with a node whose every move the test decides."""
