-- The version row of a new table, if the cluster has no version row and no rows. Clauses T1, T12.
-- KEYS  version, rows, heartbeats, cell
-- ARGV  fields and values of the version row
-- A replica refuses every write, also one that changes nothing: so only a master answers.
redis.call('HDEL', KEYS[1], '')
local version = redis.call('HGETALL', KEYS[1])
local rows = redis.call('HLEN', KEYS[2])
if #version > 0 then
  return {0, version, rows}
end
if rows > 0 then
  return {2, redis.call('HRANDFIELD', KEYS[2])}
end
redis.call('HLEN', KEYS[3])
redis.call('GET', KEYS[4])
-- What an earlier table of this cluster left behind.
redis.call('UNLINK', KEYS[3], KEYS[4])
redis.call('HSET', KEYS[1], unpack(ARGV))
return {1}
