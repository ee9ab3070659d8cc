"""Many captures as one dataset of Parquet tables: written by Dask workers, queried by DuckDB.

`sources` finds captures, `run` distributes them over workers, `work` turns one capture into rows,
`shares` does so with several workers for one large capture, `dataset` owns the folder, `tables` the
columns, and `show` the queries.
"""
