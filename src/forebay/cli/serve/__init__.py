"""The verbs that run a server: `serve`, `node`, `sim-node` and `demo`."""
