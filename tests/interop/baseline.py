"""Our outputs against those of the Python baseline.

    baseline.py texts DATA OUT            the recaption sidecars as one Parquet and one JSON Lines file
    baseline.py equal OURS THEIRS         every shard: the same table apart from metadata
    baseline.py columns OURS THEIRS NAME  every shard: the same column, null where theirs lacks it
"""

import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from tables import shards


def read(path):
    # Not read_table, which looks for partitions in folder names.
    return pq.ParquetFile(path).read()


def texts(data, out):
    tables = [read(f"{data}/recaption/{shard}") for shard in shards(f"{data}/recaption")]
    # The one without rows has no types either.
    table = pa.concat_tables([table for table in tables if table.num_rows])
    os.makedirs(f"{out}/parquet")
    os.makedirs(f"{out}/lines")
    pq.write_table(table, f"{out}/parquet/recaption.parquet")
    with open(f"{out}/lines/recaption.jsonl", "w", encoding="utf-8") as file:
        for row in table.to_pylist():
            file.write(json.dumps(row) + "\n")


def equal(ours, theirs):
    assert shards(ours) == shards(theirs), (shards(ours), shards(theirs))
    rows = 0
    for shard in shards(ours):
        left, right = read(f"{ours}/{shard}"), read(f"{theirs}/{shard}")
        # Every shard of ours has one schema: what theirs lacks without a sibling is empty.
        for name in sorted(set(left.column_names) - set(right.column_names)):
            assert left.column(name).null_count == left.num_rows, (shard, name)
            left = left.drop_columns([name])
        # Declared columns come in the order of their declarations.
        left = left.select(right.column_names)
        # Theirs have no type where every value is null.
        for place, field in enumerate(right.schema):
            if pa.types.is_null(field.type):
                field = left.schema.field(field.name)
                right = right.set_column(place, field, right.column(field.name).cast(field.type))
        assert left.schema.equals(right.schema), (shard, left.schema, right.schema)
        for name in left.column_names:
            assert left.column(name).equals(right.column(name)), (shard, name)
            if pa.types.is_struct(left.schema.field(name).type) and name != "camera":
                assert left.column(name).null_count == 0, (shard, name)
        rows += left.num_rows
    assert rows > 500
    print(rows)


def columns(ours, theirs, *names):
    assert shards(ours) == shards(theirs)
    replaced = lacking = 0
    for shard in shards(ours):
        left, right = read(f"{ours}/{shard}"), read(f"{theirs}/{shard}")
        for name in names:
            values = left.column(name).to_pylist()
            wanted = right.column(name).to_pylist() if name in right.column_names else [None] * right.num_rows
            assert values == wanted, (shard, name)
            lacking += name not in right.column_names
            replaced += sum(value is not None and value.endswith(" (rewritten)") for value in values)
    assert replaced > 500 and lacking > 0, (replaced, lacking)


if __name__ == "__main__":
    {"texts": texts, "equal": equal, "columns": columns}[sys.argv[1]](*sys.argv[2:])
