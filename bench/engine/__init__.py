"""The batching queue inside a real engine, on a GPU: transformers' own scheduler against ours."""
