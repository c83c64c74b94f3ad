"""Tests of `forebay.jobs.runner`."""
