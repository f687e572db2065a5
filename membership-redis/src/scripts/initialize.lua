-- The version row of a new table, if the cluster has no version row and no rows. Clauses T1, T12.
-- It also gives the other keys a content that means nothing: while a slot of Redis Cluster moves, commands of several keys are refused as
-- long as one of the keys is missing.
-- KEYS  version, rows, heartbeats, cell
-- ARGV  1 our layout; then fields and values of the version row
-- A replica refuses every write, also one that changes nothing: so only a master answers.
redis.call('HDEL', KEYS[1], '')
local version = redis.call('HGETALL', KEYS[1])
local rows = redis.call('HLEN', KEYS[2])
if #version > 0 then
  local v = redis.call('HMGET', KEYS[1], 'deleting', 'min_layout')
  if not v[1] and (tonumber(v[2]) or 1e300) <= tonumber(ARGV[1]) then
    -- Older builds left them out. A user who may not write them can do without.
    if redis.pcall('EXISTS', KEYS[3]) == 0 then
      redis.pcall('HSET', KEYS[3], '', '')
    end
    if redis.pcall('EXISTS', KEYS[4]) == 0 then
      redis.pcall('SET', KEYS[4], '\0')
    end
  end
  return {0, version, rows}
end
if rows > 0 then
  return {2, redis.call('HRANDFIELD', KEYS[2])}
end
redis.call('HLEN', KEYS[3])
redis.call('GET', KEYS[4])
-- What an earlier table of this cluster left behind.
redis.call('UNLINK', KEYS[3], KEYS[4])
redis.call('HSET', KEYS[3], '', '')
redis.call('SET', KEYS[4], '\0')
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return {1}
