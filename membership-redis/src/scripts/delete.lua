-- Everything of a cluster, unless it belongs to another program. One script: no reader sees a half-deleted cluster.
-- KEYS  version, rows, heartbeats, cell
-- ARGV  1 our layout
-- A replica refuses every write, also one that changes nothing: so only a master answers.
redis.call('HDEL', KEYS[1], '')
local v = redis.call('HMGET', KEYS[1], 'layout', 'min_layout')
redis.call('HLEN', KEYS[2])
redis.call('HLEN', KEYS[3])
redis.call('GET', KEYS[4])
if redis.call('EXISTS', KEYS[1]) == 1 and (not tonumber(v[1]) or (tonumber(v[2]) or 1e300) > tonumber(ARGV[1])) then
  return {0, redis.call('HGETALL', KEYS[1])}
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 1
