"""The same times in different units, with and without a zone.

    times.py make DIR
    times.py check DIR
"""

import datetime
import os
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tables import everywhere, plain

UTC = datetime.timezone.utc
TIMES = [datetime.datetime(2026, 11, 29, 16, 20, 5, tzinfo=UTC), None, datetime.datetime(1600, 2, 29, tzinfo=UTC),
         datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
# Nanoseconds reach from 1677 to 2262.
NEAR = [datetime.datetime(2026, 11, 29, 16, 20, 5, 123456, tzinfo=UTC), None, datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
# Of 1,001 ns, 2,000 ns, none and -1 ns.
FITTING = [None, datetime.datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=UTC), None, None]
KEYS = ["now", "never", "then", "far"]


def without_zone(times):
    return [time and time.replace(tzinfo=None) for time in times]


def write(path, name, times, unit, zone=None, **options):
    values = pa.array(times if zone else without_zone(times), pa.timestamp(unit, zone))
    pq.write_table(pa.table({"key": KEYS, name: values}), path, **options)


def make(root):
    main = f"{root}/main"
    os.makedirs(main)
    for unit in "s", "ms", "us":
        write(f"{main}/{unit}.parquet", "when", TIMES, unit, "UTC")
        write(f"{main}/{unit}_naive.parquet", "when", TIMES, unit)
    write(f"{main}/zoned.parquet", "when", TIMES, "ms", "Asia/Tokyo")
    write(f"{main}/near_ns.parquet", "when", NEAR, "ns", "UTC")
    write(f"{main}/near_ns_naive.parquet", "when", NEAR, "ns")
    for name, times in ("polars", TIMES), ("polars_naive", without_zone(TIMES)):
        pl.DataFrame({"key": KEYS, "when": times}).write_parquet(f"{main}/{name}.parquet")
    with duckdb.connect() as connection:
        connection.register("times", pa.table({"key": KEYS, "when": pa.array(TIMES, pa.timestamp("us", "UTC"))}))
        connection.execute("set timezone = 'UTC'")
        connection.execute(f"copy times to '{main}/duckdb.parquet'")
        connection.execute(f"copy (select key, \"when\"::timestamp as \"when\" from times) to '{main}/duckdb_naive.parquet'")
    # What no declared type can hold: the column, or some of its values.
    write(f"{main}/int96.parquet", "when", TIMES, "us", use_deprecated_int96_timestamps=True)
    fine = pa.array([1_001, 2_000, None, -1], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"key": KEYS, "when": fine}), f"{main}/too_fine.parquet")
    write(f"{root}/index.parquet", "seen", TIMES, "ms", "UTC")
    write(f"{root}/index_naive.parquet", "seen_naive", TIMES, "us")
    write(f"{root}/index_int96.parquet", "seen", TIMES, "us", use_deprecated_int96_timestamps=True)


def check(root):
    shards = [name for name in sorted(os.listdir(f"{root}/out")) if name.endswith(".parquet")]
    assert len(shards) == 14, shards
    for shard in shards:
        path = f"{root}/out/{shard}"
        names, columns = everywhere(path)
        assert names == ["key", "when", "seen", "seen_naive"]
        wanted = NEAR if shard.startswith("near") else FITTING if shard.startswith("too_fine") else TIMES
        assert columns == [KEYS, plain(wanted), plain(TIMES), plain(TIMES)], (shard, columns)
        types = {pq.read_schema(path).field(name).type for name in names[1:]}
        assert types == {pa.timestamp("us", "UTC")}, (shard, types)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
