-- The Huffman code: leaves of the one tree, walked bit by bit from the lowest of each octet.
local function decompress(tvb, first, stop)
  local out, node = {}, P.tables.tree.root
  local zeros, ones = P.tables.tree.zeros, P.tables.tree.ones
  for bit = 8 * first, 8 * stop - 1 do
    node = (bit_at(tvb, bit) == 1 and ones or zeros)[node]
    if node == 256 then return table.concat(out) end
    if node < 256 then
      out[#out + 1] = string.format("%02x", node)
      node = P.tables.tree.root
    end
    if #out > 4096 then return nil end
  end
  return nil
end

local function message(family)
  return function(r, first, stop)
    if first >= stop then return "TwEmpty" end
    local good, head, after = pcall(CODECS["varint"], r.tvb, first, stop)
    if not good then return "TwUnknown" end
    if floor(head / 2) ~= 0 then return P.tables.MESSAGES[family][head] or "TwUnknown" end
    if after + 16 > stop then return "TwUnknownUuid" end
    return P.tables.UUID_MESSAGES[r.tvb(after, 16):bytes():tohex():lower()] or "TwUnknownUuid"
  end
end
P.choose._choose06, P.choose._choose07 = message("0.6"), message("0.7")

local function connless(family)
  return function(r, first, stop)
    if stop - first < 8 or (r.v.version or 1) ~= 1 then return "TwOpaque" end
    return P.tables.CONNLESS[family][r.tvb(first, 8):bytes():tohex():lower()] or "TwOpaque"
  end
end
P.choose._connless06, P.choose._connless07 = connless("0.6"), connless("0.7")

local function control(r, tvb, first, stop, dialect)
  if first >= stop then return "TwControlEmpty" end
  local id = tvb(first, 1):uint()
  if dialect == "ddnet-0.6" and id == 4 and stop - first == 5 then
    local reason = tvb(first + 1, 3):raw()
    if tvb(first + 4, 1):uint() ~= 0 or not reason:match("^[ -~]+$") then
      return "TwDdnetControlCloseBare"
    end
  end
  return P.tables.CONTROLS[dialect][id] or "TwControlUnknown"
end

function P.read(r, walk, inner)
  local first = r.stop > 0 and r.tvb(0, 1):uint() or 0
  if floor(first / 32) % 2 == 1 then
    return walk(r, r.dialect == "teeworlds-0.7" and "Tw07Connless" or "Tw06Connless")
  end
  walk(r, P.tables.ROOTS[r.dialect])
  if r.broken then return end
  local short = r.dialect:gsub("^teeworlds%-", "")
  local body, start, tvb = r, octet(r), r.tvb
  if T(r.v.compressed_flag) then
    local plain = decompress(tvb, start, r.stop)
    if plain == nil then
      r.at = 8 * r.stop
      return note(r, "teeworlds-huffman", "no Huffman code")
    end
    tvb = ByteArray.new(plain):tvb("decompressed")
    body = {
      P = P, tvb = tvb, at = 0, stop = tvb:len(), dry = r.dry, faults = 0, depth = 1, v = r.v,
      dialect = r.dialect, tree = r.tree,
    }
  end
  local layer
  if T(r.v.control_flag) then
    layer = control(r, tvb, octet(body), body.stop, short)
  else
    layer = ({ ["0.7"] = "Tw07Chunks", ["ddnet-0.6"] = "TwDdnetChunks" })[short] or "Tw06Chunks"
  end
  local child = inner(body, layer, body.stop, "body")
  left_over(child, body.stop)
  r.faults, r.at = r.faults + (body ~= r and child.faults or 0), 8 * r.stop
end
