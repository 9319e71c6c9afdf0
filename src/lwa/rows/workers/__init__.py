"""Rows that workers hold: Parquet files in ranges of rows, each read by a worker."""
