function P.layer(r, first, stop)
  if first >= stop then return "RiptideEmpty" end
  local id = r.tvb(first, 1):uint()
  if r.dialect == "riptide-2.0" then return P.tables.BYTE_LAYERS_20[id] or "Riptide20Invalid" end
  if r.dialect == "riptide-2.1dev" then
    return P.tables.BYTE_LAYERS_21DEV[id] or "Riptide21devInvalid"
  end
  return P.tables.BIT_LAYERS[id % 16] or "RiptideInvalid"
end

P.choose.message = P.layer

-- Octets of the longest message with its length; programs can raise the limit.
P.most = 8 * P.tables.longest + 4

local function prefix(dialect) return dialect == "riptide-2.0" and 2 or 4 end

function P.pdu(tvb, at, size, dialect)
  local width = prefix(dialect)
  if at + width > size then return nil end
  return width + tvb(at, width):le_uint()
end

function P.read(r, walk, inner)
  if r.transport == "tcp" then
    local width = prefix(r.dialect)
    walk(r, width == 2 and "RiptideFrame20" or "RiptideFrame")
  else
    walk(r, P.layer(r, 0, r.stop))
  end
end
