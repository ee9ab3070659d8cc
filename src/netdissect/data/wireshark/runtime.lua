-- What reads the tables below: the walker of netdissect, in Lua. It runs in stock Wireshark 4.x.

local floor, huge = math.floor, math.huge

-- Expressions over earlier fields: a number, or nil where the field is not there.
local function T(x) return x ~= nil and x ~= false and x ~= 0 and x ~= "" end
local function B(x) return x and 1 or 0 end
local function N(x) return x == nil and 0 or x end
local function AND(a, b) if T(a) then return b end return a end
local function OR(a, b) if T(a) then return a end return b end
local function SHL(a, b) return a * 2 ^ b end
local function SHR(a, b) return floor(a / 2 ^ b) end
local function BITS(a, b, keep)
  local out, place = 0, 1
  while a > 0 or b > 0 do
    local x, y = a % 2, b % 2
    if keep(x, y) then out = out + place end
    a, b, place = (a - x) / 2, (b - y) / 2, place * 2
  end
  return out
end
local function BAND(a, b) return BITS(a, b, function(x, y) return x == 1 and y == 1 end) end
local function BOR(a, b) return BITS(a, b, function(x, y) return x == 1 or y == 1 end) end
local function BXOR(a, b) return BITS(a, b, function(x, y) return x ~= y end) end

local FAULT = {} -- what a field that cannot be read throws
local function fault(code, text, value)
  error(setmetatable({ code = code, text = text, value = value }, FAULT), 0)
end

-- Numbers of variable length: (tvb, place, end) -> value, place behind.
local function need(place, count, stop)
  if place + count > stop then fault("truncated", "a number runs past the end") end
end
local function u8(tvb, place) return tvb(place, 1):uint() end
local CODECS = {
  ["varint"] = function(tvb, place, stop)
    need(place, 1, stop)
    local first = u8(tvb, place)
    place = place + 1
    local value, weight, more = first % 64, 64, first >= 128
    for _ = 1, 4 do
      if not more then break end
      need(place, 1, stop)
      local octet = u8(tvb, place)
      place = place + 1
      value = value + (octet % 128) * weight
      weight, more = weight * 128, octet >= 128
    end
    value = value % 2 ^ 32
    if floor(first / 64) % 2 == 1 then value = 2 ^ 32 - 1 - value end
    if value >= 2 ^ 31 then value = value - 2 ^ 32 end
    return value, place
  end,
  ["VLE-1.7/8"] = function(tvb, place, stop)
    need(place, 1, stop)
    local low = u8(tvb, place)
    if low < 128 then return low, place + 1 end
    need(place, 2, stop)
    return low % 128 + u8(tvb, place + 1) * 128, place + 2
  end,
  ["VLE-1.7/1.7/16"] = function(tvb, place, stop)
    need(place, 1, stop)
    local low = u8(tvb, place)
    if low < 128 then return low, place + 1 end
    need(place, 2, stop)
    local middle = u8(tvb, place + 1)
    if middle < 128 then return low % 128 + middle * 128, place + 2 end
    need(place, 4, stop)
    return low % 128 + (middle % 128) * 128 + tvb(place + 2, 2):le_uint() * 16384, place + 4
  end,
  ["VLE-1.15/16"] = function(tvb, place, stop)
    need(place, 2, stop)
    local low = tvb(place, 2):le_uint()
    if low < 32768 then return low, place + 2 end
    need(place, 4, stop)
    return low % 32768 + tvb(place + 2, 2):le_uint() * 32768, place + 4
  end,
}

local function bit_at(tvb, bit) return floor(u8(tvb, floor(bit / 8)) / 2 ^ (bit % 8)) % 2 end

-- Reading. A reader `r` stands at bit `r.at` of `r.tvb` and must not pass octet `r.stop`.
local function octet(r)
  return floor((r.at + 7) / 8)
end

local function span(r, from)
  local first, last = floor(from / 8), octet(r)
  return r.tvb(first, math.max(0, math.min(last, r.tvb:len()) - first))
end

local function show(r, step, from, value)
  if r.dry then return end
  if step.flag then value = B(value ~= 0) end
  local kind, item = r.P.kinds[step.s], nil
  local where = span(r, from)
  local field = r.P.fields[step.s]
  if kind == "int" then item = r.tree:add(field, where, Int64.new(value))
  elseif kind == "u64" then
    item = r.tree:add(field, where, type(value) == "number" and UInt64.new(value) or value)
  elseif kind == "bytes" then
    item = r.tree:add(field, type(value) == "string" and where or value:tvb("re-aligned")())
  elseif kind == "float" then item = r.tree:add(field, where, value)
  else item = r.tree:add(field, where, type(value) == "string" and value or tostring(value)) end
  local name = step.names and step.names[value]
  if name then item:append_text(" (" .. name .. ")") end
end

local function note(r, code, text, from)
  r.faults = r.faults + 1
  if r.dry then return end
  local expert = r.P.experts[code] or r.P.experts["malformed"]
  r.tree:add_proto_expert_info(expert, code .. ": " .. text)
end

local function beyond(r, octets)
  local left = r.stop - octet(r)
  if octets < 0 or octets > left then return octets .. " octets wanted, " .. left .. " are left" end
end

local function want(r, octets)
  local short = beyond(r, octets)
  if short then fault("truncated", short) end
end

local walk

local function number(r, step)
  want(r, step.size)
  local where = r.tvb(octet(r), step.size)
  r.at = r.at + 8 * step.size
  if step.float then return step.le and where:le_float() or where:float() end
  if step.size == 8 then
    local big = step.le and where:le_uint64() or where:uint64()
    return big:tonumber(), big
  end
  if step.signed then return step.le and where:le_int() or where:int() end
  return step.le and where:le_uint() or where:uint()
end

local READ = {}

function READ.bits(r, step)
  if r.at + step.size > 8 * r.stop then fault("truncated", step.n .. " is cut short") end
  local value = 0
  for bit = r.at, r.at + step.size - 1 do
    value = value * 2 + floor(u8(r.tvb, floor(bit / 8)) / 2 ^ (7 - bit % 8)) % 2
  end
  r.at = r.at + step.size
  return value
end

function READ.lsb(r, step)
  if r.at + step.size > 8 * r.stop then fault("truncated", step.n .. " is cut short") end
  local value = 0
  for index = step.size - 1, 0, -1 do value = value * 2 + bit_at(r.tvb, r.at + index) end
  r.at = r.at + step.size
  if step.signed and value >= 2 ^ (step.size - 1) then value = value - 2 ^ step.size end
  return value
end

function READ.varulong(r, step)
  local value, weight = 0, 1
  for _ = 1, 10 do
    local group = 0
    if r.at + 8 > 8 * r.stop then
      for index = 8 * r.stop - r.at - 1, 0, -1 do group = group * 2 + bit_at(r.tvb, r.at + index) end
      if weight < 2 ^ step.keep then value = (value + (group % 128) * weight) % 2 ^ step.keep end
      fault("truncated", step.n .. " has no end", value)
    end
    for index = 7, 0, -1 do group = group * 2 + bit_at(r.tvb, r.at + index) end
    r.at = r.at + 8
    -- Above the bits that are kept a number of Lua would lose the lowest ones.
    if weight < 2 ^ step.keep then value = (value + (group % 128) * weight) % 2 ^ step.keep end
    weight = weight * 128
    if group < 128 then return value end
  end
  fault("overlong-varint", step.n .. " has more than ten groups", value)
end

-- The octets as they were written: begun anew at their first bit.
function READ.lsbtail(r)
  local shift, first, parts = r.at % 8, floor(r.at / 8), {}
  for place = first, r.stop - 1 do
    local octets = floor(u8(r.tvb, place) / 2 ^ shift)
    if shift > 0 and place + 1 < r.stop then
      octets = octets + (u8(r.tvb, place + 1) * 2 ^ (8 - shift)) % 256
    end
    parts[#parts + 1] = string.format("%02x", octets)
  end
  r.at = 8 * r.stop
  local hex = table.concat(parts)
  return hex, hex ~= "" and shift > 0 and ByteArray.new(hex) or nil
end
function READ.lsbpad(r, step)
  local value, bits = 0, -r.at % 8
  for index = bits - 1, 0, -1 do value = value * 2 + bit_at(r.tvb, r.at + index) end
  r.at = r.at + bits
  if bits == 0 then return nil end
  if value ~= 0 then note(r, "nonzero-padding", "padding is not zero") end
  return value
end

function READ.int(r, step) return number(r, step) end
READ.float = READ.int

function READ.varint(r, step)
  local place
  local value
  value, place = CODECS[step.codec](r.tvb, octet(r), r.stop)
  r.at = 8 * place
  return value
end

function READ.bounded(r, step)
  local value = READ.varint(r, step)
  if value < step.low or value > step.high then fault(step.code, step.n .. " is " .. value, value) end
  return value
end

local function raw(r, count)
  local where = r.tvb(octet(r), count)
  r.at = r.at + 8 * count
  return where:len() > 0 and where:bytes():tohex(true) or ""
end

-- Where a length states more octets than are left, those that are left are its value.
local function leading(r, count)
  local short = beyond(r, count)
  if short then fault("length-beyond-end", short, raw(r, r.stop - octet(r))) end
end

-- What stands between the end of a layer and that of its octets.
local function left_over(r, stop)
  local first = octet(r)
  if first >= stop then return end
  note(r, "trailing-bytes", (stop - first) .. " octets after the end")
  show(r, { s = "trailing" }, 8 * first, raw(r, stop - first))
end

local SEQUENCES = {
  "^[\194-\223][\128-\191]", "^\224[\160-\191][\128-\191]", "^\237[\128-\159][\128-\191]",
  "^[\225-\236\238\239][\128-\191][\128-\191]", "^\240[\144-\191][\128-\191][\128-\191]",
  "^[\241-\243][\128-\191][\128-\191][\128-\191]", "^\244[\128-\143][\128-\191][\128-\191]",
}

-- Text with NUL and the octets that are no UTF-8 as \xNN: Wireshark would cut the text off there.
local function well_formed(octets)
  local parts, at, bad = {}, 1, false
  while at <= #octets do
    local from, last = octets:find("^[^\128-\255]+", at)
    for _, sequence in ipairs(last and {} or SEQUENCES) do
      from, last = octets:find(sequence, at)
      if last then break end
    end
    local part = last and octets:sub(at, last):gsub("\\", "\\\\")
    bad = bad or not last
    parts[#parts + 1] = part or string.format("\\x%02x", octets:byte(at))
    at = (last or at) + 1
  end
  return ((bad and table.concat(parts) or octets):gsub("\0", "\\x00"))
end

local function text(r, count)
  local where = r.tvb(octet(r), count)
  r.at = r.at + 8 * count
  return where:len() > 0 and well_formed(where:raw()) or ""
end

function READ.sized(r, step)
  local count = step.len(r.v)
  leading(r, count)
  return (step.text and text or raw)(r, count)
end

function READ.fixed(r, step)
  local count = step.size
  if step.lenient then count = math.min(count, r.stop - octet(r)) else want(r, count) end
  return raw(r, count)
end

function READ.tail(r, step)
  local count = r.stop - octet(r) - (step.keep or 0)
  want(r, count)
  return (step.text and text or raw)(r, count)
end

function READ.until_(r, step)
  local first = octet(r)
  for place = first, r.stop - 1 do
    if u8(r.tvb, place) == step.mark then
      local found = text(r, place - first)
      r.at = r.at + 8
      return found
    end
  end
  local rest = (step.endless_text and text or raw)(r, r.stop - first)
  fault(step.code, step.n .. " has no end", rest)
end

function READ.nul(r)
  want(r, 1)
  if u8(r.tvb, octet(r)) ~= 0 then fault("unterminated-string", "a NUL is wanted") end
  r.at = r.at + 8
  return 0
end

function READ.digits(r, step)
  local found = text(r, r.stop - octet(r))
  if not found:match("^%d+$") or #found > 20 then fault("eoudp-content", step.n) end
  return tonumber(found)
end

function READ.array(r, step)
  local count = step.count and step.count(r.v) or huge
  local index = 0
  while index < count and (step.count or octet(r) < r.stop) do
    local from = r.at
    local value, big = READ[step.item.k](r, step.item)
    show(r, step, from, big or value)
    index = index + 1
  end
  return nil
end

local function inner(r, layer, stop, title)
  local child = {
    P = r.P, tvb = r.tvb, at = r.at, stop = stop, dry = r.dry, faults = 0, dialect = r.dialect,
    v = setmetatable({}, { __index = r.v }), depth = r.depth + 1, transport = r.transport,
    outer = r,
  }
  if not r.dry then
    local first = octet(r)
    child.tree = r.tree:add(r.P.proto, r.tvb(first, math.max(0, stop - first)), title)
  end
  walk(child, layer)
  if child.tree then child.tree:set_len(math.max(0, octet(child) - floor(r.at / 8))) end
  r.faults = r.faults + child.faults
  return child
end

-- The layer that begins here and ends before `stop`, by the octet at one place and its size.
local function chosen(rows, r, stop)
  local first, at = octet(r), octet(r) + rows.at
  local name
  for _, row in ipairs(at < stop and rows[u8(r.tvb, at)] or rows.other) do
    if name == nil or row[1] <= stop - first then name = row[2] end
  end
  return name
end

function READ.embedded(r, step)
  local count = step.len and step.len(r.v) or r.stop - octet(r)
  leading(r, count)
  if r.depth > 60 then return nil end
  local stop = octet(r) + count
  local layer
  if step.rows then layer = chosen(step.rows, r, stop)
  else layer = r.P.choose[step.choose](r, octet(r), stop) end
  if layer == nil then fault("truncated", step.n .. " is cut short", raw(r, count)) end
  local child = inner(r, layer, stop, step.s)
  r.v[step.n] = child.v
  left_over(child, stop)
  r.at = 8 * stop
  return nil
end

function READ.items(r, step)
  local wanted = step.count and step.count(r.v) or huge
  local edge, found = r.stop - (step.reserve or 0), 0
  while found < wanted do
    if octet(r) >= edge then
      if step.count then note(r, "list-short", step.n .. " has fewer items than stated") end
      break
    end
    local child = inner(r, step.rows and chosen(step.rows, r, edge) or step.item, edge, step.s)
    r.at = math.max(child.at, r.at + 8)
    found = found + 1
  end
  r.v[step.n] = found
  return nil
end

-- Reads one layer; a field that cannot be read ends it.
walk = function(r, name)
  local layer = r.P.layers[name]
  if layer == nil then error("no layer " .. tostring(name)) end
  if r.tree and layer.title then r.tree:append_text(" (" .. layer.title .. ")") end
  local step, from
  local good, failed = pcall(function()
    for _, each in ipairs(layer) do
      step = each
      local there = not step.c or T(step.c(r.v))
      if there and step.left then there = 8 * r.stop - r.at >= step.left end
      if there then
        from = r.at
        local value, big = READ[step.k](r, step)
        if value ~= nil then
          r.v[step.n] = value
          if not (r.skip and r.skip[step.n]) then show(r, step, from, big or value) end
        end
      end
    end
  end)
  if not good then
    if getmetatable(failed) ~= FAULT then error(failed, 0) end
    note(r, failed.code, failed.text)
    r.at, r.broken = 8 * r.stop, true
    -- The octets of a layer that is cut have a name of their own; of a list its items are shown.
    local called = step.k == "embedded" and { s = step.n } or step
    if failed.value ~= nil and failed.value ~= "" and step.k ~= "array" then
      show(r, called, from, failed.value)
    end
  end
  for _, check in ipairs(layer.checks or {}) do
    local fine, hit = pcall(check.when, r.v)
    if fine and hit and not r.broken then
      note(r, check.code, (check.text:gsub("{([%w_]+)[^}]*}", function(field)
        local value = r.v[field]
        return value == nil and "?" or tostring(value)
      end)))
    end
  end
end

-- One message or datagram. Returns the reader, whose `faults` say how well it went.
local function read(P, tvb, tree, dialect, transport, dry)
  local r = {
    P = P, tvb = tvb, at = 0, stop = tvb:len(), tree = tree, dry = dry, faults = 0, depth = 0,
    v = {}, dialect = dialect, transport = transport,
  }
  if P.read then P.read(r, walk, inner) else walk(r, chosen(P.roots[dialect], r, r.stop)) end
  left_over(r, r.stop)
  return r
end

-- The dialects that octets may be of.
local function dialects_of(P)
  local wanted = P.proto.prefs.dialect
  for _, name in ipairs(P.dialects) do
    if wanted == name or wanted == name:sub(#P.name + 2) then return { name } end
  end
  return P.dialects
end

-- The dialect of a preference, or the first in which the octets read without a fault.
local function dialect_of(P, tvb, transport)
  local best, fewest = nil, huge
  local names = dialects_of(P)
  if #names == 1 then return names[1], 0 end
  for _, name in ipairs(names) do
    local good, r = pcall(read, P, tvb, nil, name, transport, true)
    if good and r.faults < fewest then best, fewest = name, r.faults end
    if fewest == 0 then break end
  end
  return best or P.dialects[1], fewest
end
