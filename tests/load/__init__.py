"""Tests of what loads a server: pure parts by properties, sockets for real."""
