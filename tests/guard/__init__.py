"""Tests of the guard beside a backend."""
