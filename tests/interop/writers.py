"""One table by many writers, and an index by each of four.

    writers.py make DIR
    writers.py check DIR
"""

import datetime
import os
import sys

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tables import everywhere, physical, plain

ROWS = 40
KEYS = [f"s3://bucket/{row:04}/ключ {row}.jpg" for row in range(ROWS)]
TEXTS = [None if row % 7 == 3 else ("" if row % 7 == 4 else f"text {row % 5}") for row in range(ROWS)]
NUMBERS = [None if row % 6 == 5 else row * 1_000_000_007 - 9_000_000_000 for row in range(ROWS)]
REALS = [None if row % 5 == 2 else row / 3 for row in range(ROWS)]
TAGS = [None if row % 8 == 7 else [None if tag == 2 else f"tag {tag}" for tag in range(row % 4)] for row in range(ROWS)]
TIMES = [datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(hours=row, seconds=row) for row in range(ROWS)]
FAR = [datetime.datetime(9999, 12, 31, 23, 59, row) for row in range(ROWS)]
IMAGES = [b"\xff\xd8 pixels %d" % row for row in range(ROWS)]
FOUND = range(3, 30)

TIME = pa.timestamp("us", "UTC")


def table(text=pa.string(), key=pa.string(), time=TIME, **more):
    columns = {
        "key": pa.array(KEYS).cast(key),
        "text": pa.array(TEXTS).cast(text),
        "number": pa.array(NUMBERS, pa.int64()),
        "real": pa.array(REALS, pa.float64()),
        "tags": pa.array(TAGS, pa.list_(pa.string())),
        "time": pa.array(TIMES, time),
        "image": pa.array(IMAGES),
    }
    return pa.table({**columns, **more})


def duck(path, arrow, options):
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("arrow_table", arrow)
        connection.execute(f"copy (select * from arrow_table) to '{path}' (format parquet, {options})")


def pandas_frame():
    # fastparquet has no lists.
    text = pd.Series(TEXTS, dtype=object)
    return pd.DataFrame({
        "key": pd.Series(KEYS, dtype=object), "text": text, "number": pd.array(NUMBERS, dtype="Int64"),
        "real": REALS, "time": pd.to_datetime(TIMES, utc=True), "image": IMAGES,
    })


def make_main(main):
    os.makedirs(main)

    def arrow(name, content, **options):
        pq.write_table(content, f"{main}/{name}.parquet", row_group_size=17, **options)

    arrow("pyarrow", table())
    arrow("large_string", table(pa.large_string(), pa.large_string()))
    arrow("string_view", table(pa.string_view(), pa.string_view()))
    arrow("dictionary", table(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.string())))
    arrow("no_arrow_schema", table(pa.large_string()), store_schema=False)
    arrow("no_dictionary", table(), use_dictionary=False)
    arrow("list_item", table(), use_compliant_nested_type=False)
    arrow("seconds", table(time=pa.timestamp("s", "UTC")), coerce_timestamps="ms")
    arrow("int96", table(far=pa.array(FAR, pa.timestamp("us"))), use_deprecated_int96_timestamps=True)
    for codec in "zstd", "snappy", "gzip", "lz4", "none":
        for version in "1.0", "2.0":
            arrow(f"{codec}_v{version[0]}", table(), compression=codec, data_page_version=version, data_page_size=128, write_batch_size=4)
    arrow("delta", table(), use_dictionary=False, column_encoding={"key": "DELTA_BYTE_ARRAY", "text": "DELTA_LENGTH_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED", "real": "BYTE_STREAM_SPLIT"})
    frame = pl.from_arrow(table())
    for codec in "zstd", "snappy", "gzip", "lz4", "uncompressed":
        frame.write_parquet(f"{main}/polars_{codec}.parquet", compression=codec, row_group_size=17)
    for codec in "zstd", "snappy", "gzip", "lz4_raw", "uncompressed":
        for version in "v1", "v2":
            duck(f"{main}/duckdb_{codec}_{version}.parquet", table(), f"codec {codec}, parquet_version {version}")
    for codec in "ZSTD", "SNAPPY", "GZIP", "UNCOMPRESSED":
        fastparquet.write(f"{main}/fastparquet_{codec.lower()}.parquet", pandas_frame(), compression=codec, row_group_offsets=17)


def make_indexes(root):
    order = sorted(FOUND, key=lambda row: row * 7 % 31)
    labels, sizes = [f"label {row}" if row % 3 else None for row in order], [row if row % 4 else None for row in order]

    def columns(writer):
        return {"key": [KEYS[row] for row in order], f"label_{writer}": labels, f"size_{writer}": sizes}

    pq.write_table(pa.table(columns("pyarrow")), f"{root}/index_pyarrow.parquet", compression="lz4")
    pl.DataFrame(columns("polars")).write_parquet(f"{root}/index_polars.parquet", compression="zstd")
    duck(f"{root}/index_duckdb.parquet", pa.table(columns("duckdb")), "codec gzip")
    frame = pd.DataFrame({name: pd.array(values, dtype="Int64") if name.startswith("size") else pd.Series(values, dtype=object)
                          for name, values in columns("fastparquet").items()})
    fastparquet.write(f"{root}/index_fastparquet.parquet", frame, compression="SNAPPY")


def make(root):
    make_main(f"{root}/main")
    make_indexes(root)


def raw_chunk(path, name):
    """The stored bytes of a column, group by group."""
    metadata = pq.ParquetFile(path).metadata
    chunks = []
    with open(path, "rb") as file:
        for group in range(metadata.num_row_groups):
            columns = (metadata.row_group(group).column(number) for number in range(metadata.num_columns))
            column = next(column for column in columns if column.path_in_schema == name)
            file.seek(column.dictionary_page_offset or column.data_page_offset)
            chunks.append(file.read(column.total_compressed_size))
    return chunks


def check(root):
    labels = [f"label {row}" if row in FOUND and row % 3 else None for row in range(ROWS)]
    sizes = [row if row in FOUND and row % 4 else None for row in range(ROWS)]
    added = [name for writer in ("pyarrow", "polars", "duckdb", "fastparquet") for name in (f"label_{writer}", f"size_{writer}")]
    declared = ["text", "tags", *added]
    schemas = set()
    for shard in sorted(os.listdir(f"{root}/main")):
        path = f"{root}/out/{shard}"
        wanted = {"key": KEYS, "text": TEXTS, "number": NUMBERS, "real": REALS, "tags": TAGS, "time": plain(TIMES)}
        for name in added:
            wanted[name] = labels if name.startswith("label") else sizes
        if shard.startswith("fastparquet"):
            wanted["tags"] = [None] * ROWS
        if shard == "int96.parquet":
            check_int96(root, shard)
            # Readers disagree on INT96: its bytes were compared.
            table = pq.read_table(path, columns=list(wanted), coerce_int96_timestamp_unit="us")
            columns = {name: plain(table.column(name).to_pylist()) for name in wanted if name != "time"}
            wanted.pop("time")
        else:
            names, values = everywhere(path)
            columns = dict(zip(names, values))
            assert len(columns) == len(names)
        assert set(columns) == set(wanted), (shard, columns.keys())
        for name, values in wanted.items():
            assert columns[name] == values, (shard, name, columns[name], values)
        schemas.add(tuple(sorted(physical(path, declared))))
        codec = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
        assert codec == pq.ParquetFile(f"{root}/main/{shard}").metadata.row_group(0).column(0).compression, (shard, codec)
    assert len(schemas) == 1, schemas


def check_int96(root, shard):
    path, main = f"{root}/out/{shard}", f"{root}/main/{shard}"
    for name in "far", "time":
        assert [column[:2] for column in physical(path, [name])] == [(name, "INT96")]
        assert raw_chunk(path, name) == raw_chunk(main, name)
    read = pq.read_table(path, columns=["far"], coerce_int96_timestamp_unit="us").column("far").to_pylist()
    assert read == FAR, read


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
