"""Benchmarks: ratios side by side in one run; raw results kept in bench/results."""
