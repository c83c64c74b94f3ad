"""The three things that the store must do in one step. Mechanics only: no policy is written here.

Times are the store's own, so that the replicas' clocks may say what they like.
"""

BEAT = """
-- KEYS lease, epoch, members, about, own stream, stream to the leader
-- ARGV member, token ('' when not leading), lease in ms, highest epoch known, may lead (0, 1),
--      about, linger in ms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = tonumber(ARGV[3])
-- First what needs memory: a script that has written something may go on writing in a full store,
-- and a lease that is taken there would be a lease under which nothing can be sent.
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[6])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - lease)) do
  redis.call('ZREM', KEYS[3], gone)
  redis.call('HDEL', KEYS[4], gone)
end
redis.call('PEXPIRE', KEYS[5], ARGV[7])
redis.call('PEXPIRE', KEYS[6], ARGV[7])
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[2] and string.sub(holder, -#ARGV[1] - 1) == ':' .. ARGV[1] then
  redis.call('DEL', KEYS[1])  -- it led, and has given up meanwhile
  holder = false
end
if holder and holder == ARGV[2] then
  redis.call('PEXPIRE', KEYS[1], lease)
elseif not holder and ARGV[5] == '1' then
  local epoch = math.max(tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(ARGV[4])) + 1
  holder = string.format('%d:%s', epoch, ARGV[1])
  redis.call('SET', KEYS[2], string.format('%d', epoch))
  redis.call('SET', KEYS[1], holder, 'PX', lease)
end
return {holder or '', redis.call('PTTL', KEYS[1]), redis.call('HVALS', KEYS[4])}
"""

SEND = """
-- KEYS lease, streams...   ARGV token, entries kept, linger in ms, last words (0, 1), payloads...
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
for i = 2, #KEYS do
  redis.call('XADD', KEYS[i], 'MAXLEN', '~', ARGV[2], '*', 'd', ARGV[i + 3])
  redis.call('PEXPIRE', KEYS[i], ARGV[3])
end
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[1])
end
return 1
"""

LEAVE = """
-- KEYS members, about, own stream   ARGV member
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
"""
