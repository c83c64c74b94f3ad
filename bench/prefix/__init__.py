"""Time to first token of a conversation's later turns, on real llama.cpp nodes."""
