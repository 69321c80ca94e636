"""Null structs and structs of nulls, by three writers.

    nulls.py make DIR
    nulls.py copied DIR OUTPUT        the output of a merge
    nulls.py updated DIR MAIN INDEX   the output of a join with UpdateIfNull
    nulls.py schemas PATH...          these files have the same physical metric column
"""

import os
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tables import everywhere, physical

WRITERS = ["pyarrow", "polars", "duckdb"]
FIELDS = ["score", "passed", "error"]
NOTHING = dict.fromkeys(FIELDS)
# In turn: null struct, struct of nulls, a value, a value with nulls in it.
KINDS = [None, NOTHING, {"score": 1.5, "passed": True, "error": "e"}, {"score": None, "passed": True, "error": None}]
METRICS = [KINDS[row % 4] for row in range(12)]
KEYS = [f"k{row}" for row in range(12)]
STRANGERS = [f"stranger{row}" for row in range(5)]
# Without a null, so that a writer may say that there is none.
WHOLE = [{"score": row + 0.25, "passed": row > 1, "error": ""} for row in range(4)]
SHARDS = {
    "matched": (KEYS, METRICS),
    "unmatched": (STRANGERS, METRICS[: len(STRANGERS)]),
    "whole": ([f"whole{row}" for row in range(4)], WHOLE),
}

METRIC = pa.struct([("score", pa.float64()), ("passed", pa.bool_()), ("error", pa.string())])


def found(row):
    """What the index has: nothing for the last four keys, in two ways and a partial one."""
    if row < 8:
        return {"score": 100.0 + row, "passed": False, "error": None}
    return [None, NOTHING, {"score": 7.0, "passed": None, "error": None}, {"score": 8.0, "passed": None, "error": None}][row - 8]


def by_pyarrow(path, keys, metrics):
    pq.write_table(pa.table({"key": pa.array(keys, pa.string()), "metric": pa.array(metrics, METRIC)}), path)


def by_polars(path, keys, metrics):
    metric = pl.Struct({"score": pl.Float64, "passed": pl.Boolean, "error": pl.String})
    pl.DataFrame({"key": keys, "metric": metrics}, schema={"key": pl.String, "metric": metric}).write_parquet(path)


def by_duckdb(path, keys, metrics):
    with duckdb.connect() as connection:
        connection.execute("create table t (key varchar, metric struct(score double, passed boolean, error varchar))")
        connection.executemany("insert into t values (?, ?)", [list(row) for row in zip(keys, metrics)])
        connection.execute(f"copy t to '{path}' (format parquet)")


def write(writer, path, keys, metrics):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    {"pyarrow": by_pyarrow, "polars": by_polars, "duckdb": by_duckdb}[writer](path, keys, metrics)
    names, columns = everywhere(path)
    assert (names, columns) == (["key", "metric"], [keys, metrics]), f"{writer} does not keep the four kinds apart"


def make(root):
    os.makedirs(f"{root}/bare")
    for name, (keys, _) in SHARDS.items():
        pq.write_table(pa.table({"key": keys, "image": [b"pixels"] * len(keys)}), f"{root}/bare/{name}.parquet")
    for writer in WRITERS:
        for name, (keys, metrics) in SHARDS.items():
            write(writer, f"{root}/{writer}/{name}.parquet", keys, metrics)
        # Rows in another order: an index is looked up, not zipped.
        rows = list(reversed(range(12)))
        write(writer, f"{root}/index_{writer}.parquet", [KEYS[row] for row in rows], [found(row) for row in rows])


def value(metric):
    """What a row with this metric holds; none for both ways to hold nothing."""
    return None if metric is None or metric == NOTHING else metric


def copied(root, output):
    """A merge takes the sibling's column; a column that main has is left alone."""
    for shard, (keys, metrics) in SHARDS.items():
        names, columns = everywhere(f"{root}/{output}/{shard}.parquet")
        assert (names, columns[0]) == (["key", "metric"], keys), names
        # In place of a null struct there is one of nulls, as in every other shard.
        assert columns[1] == [value(metric) or NOTHING for metric in metrics], columns[1]


def updated(root, main, index):
    name = f"{root}/updated_{main}_{index}"
    names, columns = everywhere(f"{name}/matched.parquet")
    wanted = [value(METRICS[row]) or value(found(row)) or NOTHING for row in range(12)]
    assert (names, columns) == (["key", "metric"], [KEYS, wanted]), columns
    for shard in "unmatched", "whole":
        keys, metrics = SHARDS[shard]
        names, columns = everywhere(f"{name}/{shard}.parquet")
        wanted = [value(metric) or NOTHING for metric in metrics]
        assert (names, columns) == (["key", "metric"], [keys, wanted]), columns
    for shard in SHARDS:
        path = f"{name}/{shard}.parquet"
        assert pq.ParquetFile(path).read().column("metric").null_count == 0
        assert pl.read_parquet(path).get_column("metric").null_count() == 0
        assert duckdb.sql(f"select count(*) from '{path}' where metric is null").fetchall() == [(0,)]


def schemas(*paths):
    first = physical(paths[0], ["metric"])
    assert len(first) == len(FIELDS), first
    for path in paths:
        assert physical(path, ["metric"]) == first, (path, physical(path, ["metric"]), first)


if __name__ == "__main__":
    {"make": make, "copied": copied, "updated": updated, "schemas": schemas}[sys.argv[1]](*sys.argv[2:])
