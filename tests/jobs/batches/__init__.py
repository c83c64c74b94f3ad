"""Tests of `forebay.jobs.batches`."""
