"""The Lua scripts of the distributed store. Redis runs each one as a whole, alone.

Keys, after the prefix, which is a hash tag, so that all keys are in one slot of a cluster:

- `:counters` hash: the last `position`, `change` and `token` of a lease; `open` deliveries
- `:m:POSITION` hash of a message: `e` envelope, `a` account, `u` id, `c` caller, `r` correlation,
  `i` its indexes, `n` its changes, `t` time in ms; for each recipient `d:NAME` the record of its
  delivery, `h:NAME` its attempts
- `:id:ACCOUNT NUL ID` its position, or 0 if it was deleted and the id may not be used yet
- `:x:NAME` sorted sets of positions: the indexes; `:times` one by time, of all accounts
- `:deliveries:N` streams of open deliveries, by partition; `:changes` stream for watches
- `:lease:N` `OWNER:TOKEN` of a partition; `:members` processes that share them, by expiry
- `:room:ACCOUNT NUL NAME` hash: members; `:rooms:ACCOUNT` set; `:agents` sorted set
"""

from typing import Final

_COMMON: Final = """
local p = KEYS[1]
local arg = 0
local function take()
  arg = arg + 1
  return ARGV[arg]
end
local function take_number() return tonumber(take()) end

local function note_change(position, account, correlation, kind)
  local change = redis.call('HINCRBY', p .. ':counters', 'change', 1)
  redis.call('XADD', p .. ':changes', change .. '-0',
    'p', position, 'a', account, 'c', correlation, 'k', kind)
  local m = p .. ':m:' .. position
  local earlier = redis.call('HGET', m, 'n')
  redis.call('HSET', m, 'n', earlier and (earlier .. ' ' .. change) or change)
end

local function take_message()
  local m = {account = take(), id = take(), caller = take(), time = take(), correlation = take(),
    envelope = take(), indexes = {}, deliveries = {}}
  for _ = 1, take_number() do table.insert(m.indexes, take()) end
  for _ = 1, take_number() do
    table.insert(m.deliveries, {recipient = take(), partition = take(), conversation = take(),
      priority = take(), record = take()})
  end
  return m
end

local function add_delivery(position, d)
  redis.call('XADD', p .. ':deliveries:' .. d.partition, '*',
    'p', position, 'r', d.recipient, 'c', d.conversation, 'u', d.priority)
  redis.call('HINCRBY', p .. ':counters', 'open', 1)
end

local function insert(m)
  local position = redis.call('HINCRBY', p .. ':counters', 'position', 1)
  local key = p .. ':m:' .. position
  redis.call('HSET', key, 'e', m.envelope, 'a', m.account, 'c', m.caller, 't', m.time, 'u', m.id,
    'r', m.correlation, 'i', cjson.encode(m.indexes))
  redis.call('SET', p .. ':id:' .. m.account .. '\\0' .. m.id, position)
  redis.call('ZADD', p .. ':times', m.time, position)
  for _, index in ipairs(m.indexes) do
    redis.call('ZADD', p .. ':x:' .. index, position, position)
  end
  for _, d in ipairs(m.deliveries) do
    redis.call('HSET', key, 'd:' .. d.recipient, d.record)
    add_delivery(position, d)
  end
  note_change(position, m.account, m.correlation, 'a')
  return position
end

local function find(m)
  return redis.call('GET', p .. ':id:' .. m.account .. '\\0' .. m.id)
end

-- Insert the messages that are new; return positions, with 0 for each message that is not new.
local function insert_new(messages)
  local positions = {}
  for _, m in ipairs(messages) do
    table.insert(positions, find(m) and 0 or insert(m))
  end
  return positions
end

local function take_messages()
  local messages = {}
  for _ = 1, take_number() do table.insert(messages, take_message()) end
  return messages
end

local function is_held(partition, lease)
  return redis.call('GET', p .. ':lease:' .. partition) == lease
end

local function is_open(record)
  local state = string.match(record, '^%d+')
  return state == '1' or state == '2'
end
"""

ACCEPT: Final = (
    _COMMON
    + """
-- limit; the number of messages that the caller knows to be stored, and their ids; messages
local limit = take_number()
local checked = {}
for _ = 1, take_number() do checked[take()] = true end
local messages = take_messages()
local known, count = {}, 0
for index, m in ipairs(messages) do
  local position = find(m)
  if not position then
    count = count + #m.deliveries
  elseif not checked[m.account .. '\\0' .. m.id] then
    table.insert(known, index)
    table.insert(known, position)
  end
end
if #known > 0 then return {'known', known} end
local open = tonumber(redis.call('HGET', p .. ':counters', 'open') or 0)
if count > 0 and open + count > limit then return {'full'} end
return {'stored', insert_new(messages)}
"""
)

# partition, lease, position, recipient, the record as it was read, the new one, attempts
UPDATE: Final = (
    _COMMON
    + """
local partition, lease, position, recipient = take(), take(), take(), take()
local expected, new, attempts = take(), take(), take()
if not is_held(partition, lease) then return {'fenced'} end
local m = p .. ':m:' .. position
local current = redis.call('HGET', m, 'd:' .. recipient)
if current == new then return {'stored'} end
if current ~= expected then
  return {'changed', current or '', redis.call('HGET', m, 'h:' .. recipient) or ''}
end
redis.call('HSET', m, 'd:' .. recipient, new, 'h:' .. recipient, attempts)
return {'stored'}
"""
)

# As UPDATE; then group, stream entry, replies
END: Final = (
    _COMMON
    + """
local partition, lease, position, recipient = take(), take(), take(), take()
local expected, new, attempts = take(), take(), take()
local group, entry = take(), take()
if not is_held(partition, lease) then return {'fenced'} end
local m = p .. ':m:' .. position
local current = redis.call('HGET', m, 'd:' .. recipient)
if current ~= expected then
  return {'changed', current or '', redis.call('HGET', m, 'h:' .. recipient) or ''}
end
redis.call('HSET', m, 'd:' .. recipient, new, 'h:' .. recipient, attempts)
redis.call('XACK', p .. ':deliveries:' .. partition, group, entry)
redis.call('XDEL', p .. ':deliveries:' .. partition, entry)
redis.call('HINCRBY', p .. ':counters', 'open', -1)
local owner = redis.call('HMGET', m, 'a', 'r')
note_change(position, owner[1], owner[2], 'e')
return {'stored', insert_new(take_messages())}
"""
)

# owner, lease in ms, number of partitions, group, the leases of the owner: partition, lease
SHARE: Final = (
    _COMMON
    + """
local owner, ttl, total, group = take(), take_number(), take_number(), take()
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', p .. ':members', '-inf', now)
redis.call('ZADD', p .. ':members', now + ttl, owner)
local target = math.ceil(total / redis.call('ZCARD', p .. ':members'))
local held, result, count = {}, {}, 0
while arg < #ARGV do
  local partition, lease = take(), take()
  if is_held(partition, lease) then
    if count < target then
      redis.call('PEXPIRE', p .. ':lease:' .. partition, ttl)
      count = count + 1
      held[partition] = true
      table.insert(result, partition)
      table.insert(result, lease)
    else
      redis.call('DEL', p .. ':lease:' .. partition)
      held[partition] = true
    end
  end
end
for n = 0, total - 1 do
  local partition = tostring(n)
  if count < target and not held[partition] then
    local lease = redis.call('GET', p .. ':lease:' .. partition)
    -- A lease of this owner that it does not name: the answer with that lease was lost.
    if not lease or string.sub(lease, 1, #owner + 1) == owner .. ':' then
      lease = owner .. ':' .. redis.call('HINCRBY', p .. ':counters', 'token', 1)
      redis.call('SET', p .. ':lease:' .. partition, lease, 'PX', ttl)
      redis.pcall('XGROUP', 'CREATE', p .. ':deliveries:' .. partition, group, '0', 'MKSTREAM')
      count = count + 1
      table.insert(result, partition)
      table.insert(result, lease)
    end
  end
end
return result
"""
)

# owner, the leases of the owner: partition, lease
RELEASE: Final = (
    _COMMON
    + """
redis.call('ZREM', p .. ':members', take())
while arg < #ARGV do
  local partition, lease = take(), take()
  if is_held(partition, lease) then redis.call('DEL', p .. ':lease:' .. partition) end
end
"""
)

# partition, lease, group, consumer, count, where to continue
CLAIM: Final = (
    _COMMON
    + """
local partition, lease, group, consumer = take(), take(), take(), take()
local count, start = take(), take()
if not is_held(partition, lease) then return {'fenced'} end
local stream = p .. ':deliveries:' .. partition
local claimed = redis.call('XAUTOCLAIM', stream, group, consumer, 0, start, 'COUNT', count)
if claimed[1] == '0-0' then
  -- Earlier owners have nothing left.
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local fields = {}
    for i = 1, #info, 2 do fields[info[i]] = info[i + 1] end
    if fields.name ~= consumer and fields.pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', stream, group, fields.name)
    end
  end
end
return {'read', claimed[1], claimed[2]}
"""
)

# group, consumer, count, then partition and lease of each
READ: Final = (
    _COMMON
    + """
local group, consumer, count = take(), take(), take_number()
local result = {}
while arg < #ARGV do
  local partition, lease = take(), take()
  local stream = p .. ':deliveries:' .. partition
  if not is_held(partition, lease) then
    table.insert(result, {partition, 'fenced'})
  else
    local entries = {}
    if count > 0 then
      local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count,
        'STREAMS', stream, '>')
      if read then entries = read[1][2] end
      count = count - #entries
    end
    table.insert(result, {partition, 'read', entries})
  end
end
return result
"""
)

# partition, lease, group, stream entry
DROP: Final = (
    _COMMON
    + """
local partition, lease, group, entry = take(), take(), take(), take()
if not is_held(partition, lease) then return 'fenced' end
redis.call('XACK', p .. ':deliveries:' .. partition, group, entry)
redis.call('XDEL', p .. ':deliveries:' .. partition, entry)
return 'stored'
"""
)

# number of deliveries: position, recipient, partition, conversation, priority, record, new
REDRIVE: Final = (
    _COMMON
    + """
local count = 0
for _ = 1, take_number() do
  local position = take()
  local d = {recipient = take(), partition = take(), conversation = take(), priority = take()}
  local expected, new = take(), take()
  local m = p .. ':m:' .. position
  if redis.call('HGET', m, 'd:' .. d.recipient) == expected then
    redis.call('HSET', m, 'd:' .. d.recipient, new)
    add_delivery(position, d)
    local owner = redis.call('HMGET', m, 'a', 'r')
    note_change(position, owner[1], owner[2], 'r')
    count = count + 1
  end
end
return count
"""
)

# deduplication in ms, positions
DELETE: Final = (
    _COMMON
    + """
local deduplication = take_number()
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local count = 0
while arg < #ARGV do
  local position = take()
  local key = p .. ':m:' .. position
  local flat = redis.call('HGETALL', key)
  local fields, is_ended = {}, #flat > 0
  for i = 1, #flat, 2 do
    fields[flat[i]] = flat[i + 1]
    if string.sub(flat[i], 1, 2) == 'd:' and is_open(flat[i + 1]) then is_ended = false end
  end
  if is_ended then
    for _, index in ipairs(cjson.decode(fields.i)) do
      redis.call('ZREM', p .. ':x:' .. index, position)
    end
    redis.call('ZREM', p .. ':times', position)
    for change in string.gmatch(fields.n, '%d+') do
      redis.call('XDEL', p .. ':changes', change .. '-0')
    end
    local id = p .. ':id:' .. fields.a .. '\\0' .. fields.u
    local until_time = math.floor(tonumber(fields.t)) + deduplication
    if until_time > now then
      redis.call('SET', id, '0', 'PX', until_time - now)
    else
      redis.call('DEL', id)
    end
    redis.call('DEL', key)
    count = count + 1
  end
end
return count
"""
)

# account, room, member, time, join or leave, messages
MEMBERSHIP: Final = (
    _COMMON
    + """
local account, room, member, time, event = take(), take(), take(), take(), take()
local key = p .. ':room:' .. account .. '\\0' .. room
local changed
if event == 'join' then
  changed = redis.call('HSETNX', key, member, time)
  redis.call('SADD', p .. ':rooms:' .. account, room)
else
  changed = redis.call('HDEL', key, member)
  if redis.call('HLEN', key) == 0 then redis.call('SREM', p .. ':rooms:' .. account, room) end
end
if changed == 1 then insert_new(take_messages()) end
return redis.call('HGETALL', key)
"""
)

ACKNOWLEDGED: Final = frozenset({ACCEPT, UPDATE, END, REDRIVE, DELETE, MEMBERSHIP})
"""The scripts whose writes must not be lost once their callers have the answer."""
