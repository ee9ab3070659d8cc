"""Many captures as one dataset of Parquet tables: read by Dask's workers, asked by DuckDB."""
