"""The sidecars DIR/*/out have the columns of DIR/*/main, wherever pyarrow can read those.

    corpus.py DIR
"""

import glob
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq


def same(left, right):
    # NaN is not equal to itself, but is written the same.
    return left.equals(right) or str(left.to_pylist()) == str(right.to_pylist())


def check(root):
    compared = 0
    for out in glob.glob(f"{root}/*/out/shard.parquet"):
        main = os.path.join(os.path.dirname(out), "..", "main", "shard.parquet")
        try:
            wanted = pq.ParquetFile(main).read()
        except (pa.ArrowException, OSError):
            continue
        made = pq.ParquetFile(out).read()
        assert made.column_names == [*wanted.column_names, "added"], (main, made.column_names)
        assert made.column("added").null_count == made.num_rows
        for name in wanted.column_names:
            assert same(made.column(name), wanted.column(name)), (main, name)
        compared += 1
    assert compared > 40, compared


if __name__ == "__main__":
    check(sys.argv[1])
