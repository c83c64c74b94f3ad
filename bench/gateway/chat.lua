-- wrk: post the request file's body as a chat call; print one JSON line at the end.
local from = assert(io.open(os.getenv("BENCH_BODY"), "r"))
wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.body = from:read("*a")
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_KEY")
from:close()

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %.4f, "status_errors": %d, "socket_errors": %d}\n',
    summary.requests, summary.duration / 1e6, e.status, e.connect + e.read + e.write + e.timeout))
end
