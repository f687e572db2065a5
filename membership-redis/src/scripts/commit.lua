-- All changes of a commit and the next version; or nothing, and the table as it is. Clauses T1 to T5, T8, T16.
-- Every check comes before the first write, because Redis keeps what a failing script has written.
-- KEYS  version, rows, heartbeats
-- ARGV  1 our layout; 2 3 4 the expected table id, version and commit; 5 the next version; 6 the commit's id; 7 the field of its record;
--       8 its record; 9 how many rows it adds; 10 how many rows fit; 11 settings, or ''; 12 '=' and the core's cell, or '';
--       13 the channel of hints; 14 '1': replicas are asked to confirm; 15 16 17 how many inserts, updates, removes; then
--       key and body of each insert and each update, and the key of each remove
local v = redis.call('HMGET', KEYS[1], 'table_id', 'version', 'commit', 'deleting', 'min_layout', 'row_count', 'layout', ARGV[7])
local ours = v[1] == ARGV[2] and not v[4] and (tonumber(v[5]) or 1e300) <= tonumber(ARGV[1])
if ours and v[8] == ARGV[8] and (tonumber(v[2]) or 0) >= tonumber(ARGV[5]) then
  -- It was sent before, and happened. If replicas must confirm, write once more: they confirm this connection's last write.
  redis.call('HDEL', KEYS[1], '')
  if ARGV[14] == '1' then
    redis.call('HSET', KEYS[1], ARGV[7], ARGV[8])
  end
  return 2
end
local count = tonumber(v[6]) or 1e300
local fits = ours and v[2] == ARGV[3] and v[3] == ARGV[4] and redis.call('HLEN', KEYS[2]) >= count
local inserts, updates, removes = tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[17])
if removes > 0 then
  -- Another program's key of this name ends the script here.
  redis.call('HLEN', KEYS[3])
end
local first_update = 18 + 2 * inserts
local first_remove = first_update + 2 * updates
local last_remove = first_remove + removes - 1
if fits then
  for i = 18, first_update - 1, 2 do
    fits = fits and redis.call('HEXISTS', KEYS[2], ARGV[i]) == 0
  end
  for i = first_update, first_remove - 1, 2 do
    fits = fits and redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1
  end
  for i = first_remove, last_remove do
    fits = fits and redis.call('HEXISTS', KEYS[2], ARGV[i]) == 1
  end
end
if not fits then
  -- A replica refuses every write, also one that changes nothing: so only a master answers.
  redis.call('HDEL', KEYS[1], '')
  return {0, redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
end
local adds = tonumber(ARGV[9])
if adds > 0 and count + adds > tonumber(ARGV[10]) then
  return 3
end
-- From here on only permissions or memory can be missing. Each kind of write is tried first where it changes nothing or everything: HDEL
-- on a missing field, HSET on the version. (Redis checks memory only before a script's first write, so no script stops half-way.)
if removes > 0 then
  redis.call('HDEL', KEYS[1], '')
end
local set = {'version', ARGV[5], 'commit', ARGV[6], ARGV[7], ARGV[8]}
if adds ~= 0 then
  set[#set + 1] = 'row_count'
  set[#set + 1] = string.format('%d', math.max(0, count + adds))
end
if ARGV[11] ~= '' then
  set[#set + 1] = 'settings'
  set[#set + 1] = ARGV[11]
end
if ARGV[12] ~= '' then
  set[#set + 1] = 'core'
  set[#set + 1] = string.sub(ARGV[12], 2)
end
if (tonumber(v[7]) or 0) < tonumber(ARGV[1]) then
  set[#set + 1] = 'layout'
  set[#set + 1] = ARGV[1]
end
redis.call('HSET', KEYS[1], unpack(set))
-- While a slot of Redis Cluster moves, a script may not touch a key that it has emptied, and would stop half-way (clause T2). So rows are
-- added before others are removed, and heartbeats, which may all be removed, may fail: there is nothing left to remove then.
for i = 18, first_remove - 1, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
for i = first_remove, last_remove do
  redis.call('HDEL', KEYS[2], ARGV[i])
  redis.pcall('HDEL', KEYS[3], ARGV[i])
end
-- A hint may be lost: a user who may not publish can still commit.
redis.pcall('PUBLISH', ARGV[13], ARGV[5])
return 1
