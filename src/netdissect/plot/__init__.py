"""Pictures of a connection in time: what is drawn (`History`, `charts`), and the backends that draw
it (`terminal`, `svg`, `rows`). `plot`, `browse` and `report` share them.
"""
