"""Generators of the reference pages, the example file, the schemas and the Grafana dashboard.

`make reference` writes all of them; a test fails where one is not what the code says.
"""
