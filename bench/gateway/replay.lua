-- wrk: send the request in a file as it is; print one JSON line at the end.
-- BENCH_USERS: that many users in turn, in the place of "user-0042".
-- BENCH_NEW_HEAD: every call has a trace id of its own, so no head comes twice.
local from = assert(io.open(os.getenv("BENCH_REQUEST"), "rb"))
local raw = from:read("*a")
from:close()

local users = tonumber(os.getenv("BENCH_USERS") or "1")
local new_head = os.getenv("BENCH_NEW_HEAD") == "1"

function init()
  wrk.format = function() return raw end -- asked once, where the request never changes
end

if users > 1 or new_head then
  local line_end = raw:find("\r\n", 1, true) + 2
  local first = raw:sub(1, line_end - 1)
  local user = raw:find("user-0042", line_end, true) or #raw + 1
  local before, after = raw:sub(line_end, user - 1), raw:sub(user + 9)
  local named = user <= #raw
  local count = 0
  function request()
    count = count + 1
    local trace = new_head and string.format("traceparent: 00-%032x-0123456789abcdef-01\r\n", count) or ""
    return first .. trace .. before .. (named and string.format("user-%04d", count % users) or "") .. after
  end
end

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %.4f, "status_errors": %d, "socket_errors": %d, ' ..
    '"p50_us": %d, "p99_us": %d}\n',
    summary.requests, summary.duration / 1e6, e.status, e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
