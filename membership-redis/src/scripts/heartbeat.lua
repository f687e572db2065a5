-- One silo's heartbeat. Clauses T7, T8.
-- KEYS  version, rows, heartbeats
-- ARGV  1 our layout; 2 the row's key; 3 the counter; 4 the heartbeat as text
local v = redis.call('HMGET', KEYS[1], 'deleting', 'min_layout')
if v[1] or (tonumber(v[2]) or 1e300) > tonumber(ARGV[1]) or redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then
  -- A replica refuses every write, also one that changes nothing: so only a master answers.
  redis.call('HDEL', KEYS[1], '')
  return {0, redis.call('HGETALL', KEYS[1]), redis.call('HLEN', KEYS[2])}
end
-- A late, older heartbeat changes nothing.
local old = redis.call('HGET', KEYS[3], ARGV[2])
if not old or (tonumber(string.match(old, '^%d+')) or 0) <= tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[3], ARGV[2], ARGV[4])
end
return 1
