"""What replicas say to each other: messages, their decoding, ids."""
