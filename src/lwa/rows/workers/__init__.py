"""Rows that workers hold: Parquet files, a part per worker."""
