function P.pdu(tvb, at, size, dialect)
  if dialect == "netplay-text" then
    local octets = tvb:raw(at, size - at)
    local first = octets:find("\n", 1, true)
    return first and octets:find("\n", first + 1, true)
  end
  local head = dialect == "netplay-bin3" and 1 or 0
  if at + head + 2 > size then return nil end
  local length = tvb(at + head, 2):uint() + 2
  if head == 0 then return length end
  return length + math.max(1, math.ceil(length / 1023))
end

-- The next place where a message may begin behind missing octets, and how many must do so in a row
-- if one is enough. Of text it is a line: of its first one the beginning is unknown.
function P.places(tvb, from, dialect)
  if dialect ~= "netplay-text" then return from end
  return tvb:raw():find("\n[%a_$][%w_$.]*\n[%[{]", math.max(1, from)), 1
end

local function frame(r)
  local first = octet(r)
  local short = r.stop - first >= 2 and r.tvb(first, 2):uint() < 3
  return short and "NetplayShortFrame" or "NetplayFrame"
end

function P.read(r, walk, inner)
  if r.dialect == "netplay-text" then return walk(r, "NetplayText") end
  if r.dialect ~= "netplay-bin3" then return walk(r, frame(r)) end
  local data = ""
  while octet(r) < r.stop do
    local first = octet(r)
    local child = inner(r, "NetplayChunk", math.min(r.stop, first + 1024), "chunk")
    if octet(child) > first + 1 then
      data = data .. r.tvb(first + 1, octet(child) - first - 1):bytes():tohex()
    end
    r.at = math.max(child.at, r.at + 8)
  end
  if data == "" then return end
  local tvb = ByteArray.new(data):tvb("reassembled")
  local body = {
    P = P, tvb = tvb, at = 0, stop = tvb:len(), dry = r.dry, faults = 0, depth = 1, v = {},
    dialect = r.dialect, tree = r.tree,
  }
  inner(body, frame(body), body.stop, "message")
  r.faults = r.faults + body.faults
end
