function P.read(r, walk, inner)
  walk(r, P.tables.HEADERS[r.dialect] or P.tables.HEADERS["exodia-late"])
  if r.broken then return end
  local left = r.stop - r.at / 8
  if left ~= r.v.size then
    note(r, "eoudp-size-mismatch", "size field " .. r.v.size .. ", " .. left .. " octets of content")
    r.at = inner(r, "EoudpRaw", r.stop, "content").at
    return
  end
  local contents = P.tables.contents[r.dialect] or {}
  local rows = contents[r.v.cmd]
  if rows == nil and next(contents) then
    note(r, "eoudp-unknown-command", "command " .. r.v.cmd .. " is not defined")
  end
  local layer = "EoudpRaw"
  if rows then layer = rows[left <= 40 and left or 40 + left % 8] end
  if layer and left > 0 then
    local first, stop = octet(r), r.stop
    -- Of counters that are cut, the whole pairs are read; an index that is no digits is none.
    if layer == "EoudpPacketInfo" then stop = stop - left % 8 end
    if layer == "EoudpConnectAcceptText" and not r.tvb:raw(first, left):match("^%d+$") then
      layer = "EoudpRaw"
    end
    local child = inner(r, layer, stop, "content")
    r.at = child.at
  end
end
