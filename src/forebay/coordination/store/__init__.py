"""The store that replicas share: a port, and Valkey or Redis behind it."""
