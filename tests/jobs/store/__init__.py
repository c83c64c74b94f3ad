"""Tests of `forebay.jobs.store`."""
