"""The guard beside a backend: it admits as many requests as there are slots."""
