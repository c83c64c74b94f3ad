"""Tests of `forebay.jobs.idle`."""
