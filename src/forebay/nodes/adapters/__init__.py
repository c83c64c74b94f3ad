"""One adapter per kind of server: how it is recognised, and how its state is read."""
