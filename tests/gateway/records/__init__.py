"""Tests of what the gateway keeps."""
