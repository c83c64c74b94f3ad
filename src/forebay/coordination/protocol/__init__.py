"""The protocol between replicas: messages, their decoding, ids."""
