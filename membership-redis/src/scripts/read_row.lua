-- One row with its heartbeat and the version. Clauses T6, T12, T16.
-- KEYS  version, rows, heartbeats
-- ARGV  1 our layout; 2 3 4 the known table id, version and commit, or ''; 5 the row's key
-- A replica refuses every write, also one that changes nothing: so only a master answers. PERSIST is a write that a user who may only
-- read can be given: the keys have no expiry. A user who may write need not have it. (The second text: since Redis 7.2, and Valkey.)
local master = redis.pcall('PERSIST', KEYS[1])
local refusal = type(master) == 'table' and master.err or ''
if string.find(refusal, 'user executing the script', 1, true) or string.find(refusal, 'ACL failure in script', 1, true) then
  master = redis.pcall('HDEL', KEYS[1], '')
end
if type(master) == 'table' and master.err then
  -- A master that takes no writes answers. Valkey says MISCONF on a replica, too: then the role decides, if the user may ask for it.
  local answers = string.find(master.err, 'NOREPLICAS', 1, true)
  if string.find(master.err, 'MISCONF', 1, true) then
    local info = redis.pcall('INFO', 'replication')
    answers = type(info) == 'string' and string.find(info, 'role:master', 1, true)
  end
  if not answers then
    return master
  end
end
local v = redis.call('HMGET', KEYS[1], 'table_id', 'version', 'commit', 'deleting', 'min_layout', 'row_count')
local rows = redis.call('HLEN', KEYS[2])
local row, beat = redis.call('HGET', KEYS[2], ARGV[5]), redis.call('HGET', KEYS[3], ARGV[5])
if ARGV[2] ~= '' and v[1] == ARGV[2] and v[2] == ARGV[3] and v[3] == ARGV[4] and not v[4]
  and (tonumber(v[5]) or 1e300) <= tonumber(ARGV[1]) and rows >= (tonumber(v[6]) or 1e300) then
  return {1, row, beat}
end
local version = redis.call('HGETALL', KEYS[1])
local orphan = false
if #version == 0 and rows > 0 then
  orphan = redis.call('HRANDFIELD', KEYS[2])
end
return {0, version, rows, orphan, row, beat}
