-- What registers a protocol, and cuts its streams into messages.

local ROW, SEARCHED = 3, 16384 -- messages that are no coincidence; octets that are searched for them
local SYN = 1 -- of Wireshark's field `tcp.completeness`
local tcp_stream, tcp_seq = Field.new("tcp.stream"), Field.new("tcp.seq")
local tcp_len, tcp_completeness = Field.new("tcp.len"), Field.new("tcp.completeness")

-- The ends of the messages from a place on: so many, or fewer that the octets end with, or nil.
local function row_of(P, tvb, at, size, dialect, enough)
  local ends = {}
  while #ends < enough and at < size do
    local count = P.pdu(tvb, at, size, dialect)
    if count == nil or count > (P.most or size) or at + count > size then return nil end
    at = at + count
    ends[#ends + 1] = at
  end
  return ends
end

-- Where messages begin again: several in a row that read without a fault, or fewer that the octets
-- end with.
local function resumed(P, tvb, size)
  local places = P.places or function(_, from) return from end
  for _, dialect in ipairs(dialects_of(P)) do
    local from, enough = places(tvb, 0, dialect)
    while from and from < size do
      local at, ends = from, row_of(P, tvb, from, size, dialect, enough or ROW)
      for _, stop in ipairs(ends or {}) do
        local good, r = pcall(read, P, tvb(at, stop - at):tvb(), nil, dialect, "tcp", true)
        if not good or r.faults > 0 then ends = nil break end
        at = stop
      end
      if ends then return from end
      from = places(tvb, from + 1, dialect)
    end
  end
end

-- Returns what cuts the octets of a stream into messages, each of which `one` shows.
local function stream_reader(P, one)
  -- Streams out of step behind an impossible length or missing octets, by number and sender; and
  -- packets that begin so, because Wireshark reads a packet again when it is selected.
  local broken, begins_broken, follows = {}, {}, {}

  -- Whether octets before those of this packet are missing, or the stream began before the capture.
  local function misses(key)
    local seq, expected = tcp_seq().value, follows[key]
    local behind = (seq + tcp_len().value) % 2 ^ 32
    if expected == nil or (behind - expected) % 2 ^ 32 < 2 ^ 31 then follows[key] = behind end
    if expected == nil then return tcp_completeness().value % (2 * SYN) == 0 end
    return seq ~= expected and (seq - expected) % 2 ^ 32 < 2 ^ 31
  end

  return function(tvb, pinfo, tree)
    local at, size = 0, tvb:len()
    local key = tcp_stream().value .. " " .. pinfo.src_port
    if not pinfo.visited then
      -- What Wireshark put together begins where the dissector asked for it.
      if misses(key) and size == tcp_len().value then broken[key] = true end
      begins_broken[pinfo.number] = broken[key]
    end
    if begins_broken[pinfo.number] then
      at = resumed(P, tvb, size)
      if at == nil then
        if size < SEARCHED then
          pinfo.desegment_offset, pinfo.desegment_len = 0, DESEGMENT_ONE_MORE_SEGMENT
        end
        return size
      end
      broken[key] = nil
    end
    while at < size do
      local count = P.pdu(tvb, at, size, dialect_of(P, tvb, "tcp"))
      if P.most and count and count > P.most then
        note({ P = P, tree = tree:add(P.proto, tvb(at)), faults = 0 }, "malformed",
          "no length; the next message is looked for")
        broken[key] = true
        return size
      end
      if count == nil or at + count > size then
        pinfo.desegment_offset = at
        pinfo.desegment_len = count and at + count - size or DESEGMENT_ONE_MORE_SEGMENT
        return size
      end
      one(tvb(at, count):tvb(), pinfo, tree, "tcp")
      at = at + count
    end
    return size
  end
end

local function register(P)
  for name, read in pairs(P.codecs) do CODECS[name] = read end
  local proto = Proto(P.proto_name, P.title)
  P.proto, P.fields, P.experts = proto, {}, {}
  local makers = {
    int = ProtoField.int64, u64 = ProtoField.uint64, float = ProtoField.double,
    bytes = ProtoField.bytes, str = ProtoField.string,
  }
  for name, kind in pairs(P.kinds) do
    P.fields[name] = makers[kind](P.name .. "." .. name, name)
  end
  local all = {}
  for _, field in pairs(P.fields) do all[#all + 1] = field end
  proto.fields = all
  local experts = {}
  for code, row in pairs(P.codes) do
    local level = ({ error = expert.severity.ERROR, warn = expert.severity.WARN,
      note = expert.severity.NOTE, chat = expert.severity.CHAT })[row[1]]
    local made = ProtoExpert.new(P.proto_name .. "." .. code:gsub("-", "_"), row[2],
      expert.group.MALFORMED, level or expert.severity.WARN)
    P.experts[code] = made
    experts[#experts + 1] = made
  end
  proto.experts = experts
  proto.prefs.dialect = Pref.string("Dialect", "", "Dialect to read; empty = by content")
  proto.prefs.anywhere = Pref.bool("On any port", false,
    "Take whatever reads without a fault, on any port; otherwise on the usual ports alone")

  local function one(tvb, pinfo, tree, transport)
    local dialect = dialect_of(P, tvb, transport)
    local item = tree:add(proto, tvb())
    item:append_text(", " .. dialect)
    read(P, tvb, item, dialect, transport, false)
  end

  local stream = stream_reader(P, one)

  function proto.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = P.name
    if pinfo.port_type == 2 and P.pdu then return stream(tvb, pinfo, tree) end
    one(tvb, pinfo, tree, "udp")
    return tvb:len()
  end

  local function heuristic(transport)
    return function(tvb, pinfo, tree)
      local usual = proto.prefs.anywhere
      for _, port in ipairs(P.ports) do
        usual = usual or pinfo.src_port == port or pinfo.dst_port == port
      end
      if not usual or tvb:len() == 0 then return false end
      local part = tvb
      if transport == "tcp" then
        local count = P.pdu(tvb, 0, tvb:len(), P.dialects[1])
        if count == nil or count > tvb:len() then return false end
        part = tvb(0, count):tvb()
      end
      local _, faults = dialect_of(P, part, transport)
      if faults > 0 then return false end
      pinfo.conversation = proto
      proto.dissector(tvb, pinfo, tree)
      return true
    end
  end
  for _, transport in ipairs(P.transports) do
    proto:register_heuristic(transport, heuristic(transport))
    DissectorTable.get(transport .. ".port"):add_for_decode_as(proto)
  end
end
