"""Conversations with a FIFO of their own: backpressure, events, branches, a ledger."""
