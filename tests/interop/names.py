"""Columns with names that lead readers astray.

    names.py make DIR
    names.py check DIR
"""

import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from tables import by_duckdb, by_polars, by_pyarrow, physical

ROWS = 5


def numbers(first):
    return pa.array([first * 10 + row for row in range(ROWS)], pa.int64())


def structs(child, first):
    return pa.StructArray.from_arrays([numbers(first)], [child])


# `a` and `a.b` are columns of their own, and in the second shard so is the child b of a.
FIRST = {
    "a": numbers(1),
    "aa": numbers(2),
    "a.b": numbers(3),
    "a_": structs("b", 4),
    "Key": numbers(5),
    "key": pa.array([f"k{row}" for row in range(ROWS)]),
    "with space": numbers(6),
    "😀": numbers(7),
    "__index_level_0__": numbers(8),
    "image": pa.array([b"pixels"] * ROWS),
}
SECOND = {**FIRST, "a_": structs("Key", 4), "a": structs("b", 1)}
DROPPED = ["aa", "image"]
ADDED = ["new.column", "s", "s.t"]


def make(root):
    os.makedirs(f"{root}/main")
    for name, columns in ("first", FIRST), ("second", SECOND):
        pq.write_table(pa.table(columns), f"{root}/main/{name}.parquet")
    twice = pa.Table.from_arrays([FIRST["key"], numbers(1), numbers(2)], ["key", "x", "x"])
    pq.write_table(twice, f"{root}/main/twice.parquet")
    index = {
        "key": FIRST["key"],
        "s": pa.StructArray.from_arrays([pa.array([0.5] * ROWS)], ["t"]),
        "s.t": pa.StructArray.from_arrays([pa.array([1.5] * ROWS)], ["u.v"]),
        "new.column": pa.array([2.5] * ROWS),
    }
    pq.write_table(pa.table(index), f"{root}/index.parquet")


def check(root):
    for shard, main in ("first", FIRST), ("second", SECOND):
        path = f"{root}/out/{shard}.parquet"
        kept = [name for name in main if name not in DROPPED]
        wanted = [main[name].to_pylist() for name in kept]
        wanted += [[2.5] * ROWS, [{"t": 0.5}] * ROWS, [{"u.v": 1.5}] * ROWS]
        for reader in (by_pyarrow, by_polars, by_duckdb):
            names, columns = reader(path)
            # DuckDB has no two columns that differ in case only.
            assert reader is by_duckdb or names == kept + ADDED, (reader.__name__, names)
            assert columns == wanted, (reader.__name__, shard, columns)
        main_path = f"{root}/main/{shard}.parquet"
        assert physical(path, kept) == physical(main_path, kept)
        assert [column[0] for column in physical(path, ADDED)] == ["new.column", "s.t", "s.t.u.v"]


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
