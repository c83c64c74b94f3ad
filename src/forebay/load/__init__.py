"""Load for any OpenAI-compatible server: what to send and when, what came back, what it means.

Decisions and arithmetic are pure and seeded (`arrivals`, `mix`, `percentiles`, `fairness`,
`summary`, the drawings); sockets and timers are in `connection`, `pool` and `run`
alone. Nothing of the server is imported, so that what measures shares no fault with what is
measured.
"""
