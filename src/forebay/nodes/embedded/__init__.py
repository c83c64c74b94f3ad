"""The embedded node: llama.cpp in a child process."""
