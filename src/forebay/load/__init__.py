"""Load for any OpenAI-compatible server: what to send and when, what came back, what it means.

Decisions and arithmetic are pure and seeded (`plan`, `statistics`, `summary`, `report`); sockets
and timers are in `connections` and `run` alone. No code of the server is imported, so that what
measures shares no fault with what is measured; only the look of the report and its charts are the
dashboard's.
"""
