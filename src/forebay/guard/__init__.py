"""The guard beside a backend: exactly its slots through, a refusal at once for anything more."""
