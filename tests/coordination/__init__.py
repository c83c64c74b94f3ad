"""Several replicas: their parts one by one, and together on real stores."""
