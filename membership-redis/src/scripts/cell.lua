-- The cluster's own cell.
-- KEYS  version, rows, cell
-- ARGV  1 our layout; 2 the text
local v = redis.call('HMGET', KEYS[1], 'deleting', 'min_layout')
if v[1] or (tonumber(v[2]) or 1e300) > tonumber(ARGV[1]) then
  -- A replica refuses every write, also one that changes nothing: so only a master answers.
  redis.call('HDEL', KEYS[1], '')
  return {0, redis.call('HGETALL', KEYS[1]), redis.call('HLEN', KEYS[2])}
end
redis.call('SET', KEYS[3], ARGV[2])
return 1
