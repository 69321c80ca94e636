"""Outputs as crashed, other and older writers leave them.

    half_written.py make DIR
    half_written.py spoil OUT OTHER
"""

import os
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 30


def make(root):
    os.makedirs(f"{root}/main/part")
    for shard in range(5):
        keys = [f"k{shard}-{row}" for row in range(ROWS)]
        table = pa.table({"key": keys, "image": [b"pixels"] * ROWS, "number": list(range(ROWS))})
        pq.write_table(table, f"{root}/main/part/{shard}.parquet", row_group_size=20)
    keys = [f"k{shard}-{row}" for shard in range(5) for row in range(0, ROWS, 2)]
    pq.write_table(pa.table({"key": keys, "label": [f"of {key}" for key in keys]}), f"{root}/index.parquet")


def rewrite(path, change):
    """Rewrites a shard by pyarrow, which carries our footer metadata along."""
    table = pq.ParquetFile(path).read()
    assert any(key.startswith(b"sidecarjob.") for key in table.schema.metadata), table.schema.metadata
    pq.write_table(change(table), path)
    assert any(key.startswith(b"sidecarjob.") for key in pq.ParquetFile(path).metadata.metadata)


def spoil(out, other):
    """Shard 0 stays right; 4 becomes that of another pipeline."""
    with open(f"{out}/part/1.parquet", "r+b") as file:
        file.truncate(os.path.getsize(file.name) * 6 // 10)
    rewrite(f"{out}/part/2.parquet", lambda table: table.slice(0, ROWS - 1))
    rewrite(f"{out}/part/3.parquet", lambda table: table.take(list(reversed(range(ROWS)))))
    shutil.copyfile(f"{other}/part/4.parquet", f"{out}/part/4.parquet")


if __name__ == "__main__":
    {"make": make, "spoil": spoil}[sys.argv[1]](*sys.argv[2:])
