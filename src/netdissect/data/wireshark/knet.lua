-- The content of a message: by its flags, its id and its size (`P.tables.contents`).
P.choose.content = function(r, first, stop)
  local v = r.v
  local flags = (T(v.fragment) and 1 or 0) + (T(v.fragment_start) and 2 or 0) + (T(v.reliable) and 4 or 0)
  local rows = P.tables.contents[r.dialect] or P.tables.contents["knet-2.x"]
  local row = rows[flags]
  if type(row) == "string" then return row end
  local good, id, after = pcall(CODECS["VLE-1.7/1.7/16"], r.tvb, first, stop)
  if not good then return nil end
  local sizes = row[id]
  if sizes == nil then return row.other end
  return sizes[math.min(stop - after, 9)]
end

function P.pdu(tvb, at, size)
  local good, length, after = pcall(CODECS["VLE-1.7/1.7/16"], tvb, at, size)
  if not good then return nil end
  if length < 1 then return size - at end
  return after - at + length
end

function P.read(r, walk)
  if r.transport == "tcp" then return walk(r, P.tables.STREAMS[r.dialect] or "KnetStream") end
  if r.stop == 0 then return walk(r, "KnetEmpty") end
  if r.tvb:bytes():tohex() == "0000000000000000" then return walk(r, "KnetConnect") end
  local datagram = P.tables.DATAGRAMS[r.dialect] or "KnetDatagram"
  -- Text that is no datagram is what an application put into its connect datagram.
  if r.stop > 3 and r.tvb:raw():match("^[ -~]+$") then
    local trial = {
      P = P, tvb = r.tvb, at = 0, stop = r.stop, dry = true, faults = 0, depth = 0, v = {},
      dialect = r.dialect, transport = r.transport,
    }
    walk(trial, datagram)
    if trial.faults > 0 then datagram = "KnetConnect" end
  end
  return walk(r, datagram)
end
