"""Tables as Python values, read by each of three programs."""

import math
import os

import duckdb
import polars as pl
import pyarrow.parquet as pq


def plain(value):
    """The value without what differs between programs but means the same."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if hasattr(value, "timestamp"):
        return ("time", value.timestamp())
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def by_pyarrow(path):
    table = pq.ParquetFile(path).read()
    return table.column_names, [[plain(value) for value in column.to_pylist()] for column in table.columns]


def by_polars(path):
    frame = pl.read_parquet(path)
    return frame.columns, [[plain(value) for value in column.to_list()] for column in frame.get_columns()]


def by_duckdb(path):
    with duckdb.connect() as connection:
        result = connection.execute("select * from read_parquet(?)", [path])
        names = [column[0] for column in result.description]
        rows = result.fetchall()
    return names, [[plain(row[position]) for row in rows] for position in range(len(names))]


READERS = {"pyarrow": by_pyarrow, "polars": by_polars, "duckdb": by_duckdb}


def everywhere(path):
    """Names and columns, on which all readers have to agree. (DuckDB renames what differs in
    case only, so it is asked for values alone.)"""
    names, columns = by_pyarrow(path)
    for reader in (by_polars, by_duckdb):
        other_names, other_columns = reader(path)
        assert reader is by_duckdb or other_names == names, (path, other_names, names)
        assert len(other_columns) == len(columns), (path, reader.__name__)
        for name, column, other in zip(names, columns, other_columns):
            assert column == other, (path, reader.__name__, name, column, other)
    return names, columns


def shards(root):
    """Relative paths of all shards, sorted."""
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names if name.endswith(".parquet")]
    return sorted(found)


def physical(path, names):
    """The physical columns of the roots `names`: paths, types, levels and annotations."""
    schema = pq.ParquetFile(path).schema
    columns = [schema.column(position) for position in range(len(schema))]
    return [
        (column.path, column.physical_type, str(column.logical_type), column.max_definition_level, column.max_repetition_level)
        for column in columns
        if any(column.path == name or column.path.startswith(name + ".") for name in names)
    ]
