"""The HTTP surface that composes everything: routes, errors to statuses, keys, metrics."""
