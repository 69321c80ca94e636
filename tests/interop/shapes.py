"""Files with no rows, no groups, no columns, no footer or no bytes.

    shapes.py make DIR
    shapes.py check DIR
    shapes.py mark ENDPOINT ACCESS SECRET PATH...   objects without bytes, as consoles make for folders
"""

import datetime
import hashlib
import hmac
import os
import sys
import urllib.request

import pyarrow as pa
import pyarrow.parquet as pq

from tables import everywhere, physical

SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("tags", pa.list_(pa.string())), ("image", pa.binary())])
INDEX = pa.schema([("key", pa.string()), ("label", pa.string())])


def table(first, rows):
    each = range(first, first + rows)
    columns = [[f"k{row}" for row in each], list(each), [["t"] * (row % 3) for row in each], [b"pixels"] * rows]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA)], schema=SCHEMA)


def write(path, tables):
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for part in tables:
            writer.write_table(part)


def groups(path):
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def make(root):
    main = f"{root}/main"
    os.makedirs(f"{main}/marker")
    os.makedirs(f"{main}/marker.parquet")
    write(f"{main}/empty_group.parquet", [table(0, 0)])
    write(f"{main}/no_groups.parquet", [])
    write(f"{main}/groups_5_0_7.parquet", [table(0, 5), table(5, 0), table(5, 7)])
    assert groups(f"{main}/empty_group.parquet") == [0]
    assert groups(f"{main}/no_groups.parquet") == []
    assert groups(f"{main}/groups_5_0_7.parquet") == [5, 0, 7]
    pq.write_table(pa.table({}), f"{main}/no_columns.parquet")
    with open(f"{main}/groups_5_0_7.parquet", "rb") as file:
        whole = file.read()
    for name, content in ("no_bytes", b""), ("magic_alone", b"PAR1"), ("cut", whole[:-1]):
        with open(f"{main}/{name}.parquet", "wb") as file:
            file.write(content)
    os.makedirs(f"{root}/index")
    pq.write_table(pa.table([["k3", "k6"], ["three", "six"]], schema=INDEX), f"{root}/index/index.parquet")


def check(root):
    for shard, rows in ("empty_group", 0), ("no_groups", 0), ("groups_5_0_7", 12):
        path = f"{root}/out/{shard}.parquet"
        names, columns = everywhere(path)
        assert names == ["key", "number", "tags", "label"], names
        labels = [{3: "three", 6: "six"}.get(row) for row in range(rows)]
        assert columns == [*table(0, rows).drop(["image"]).to_pydict().values(), labels], columns
        main = [rows for rows in groups(f"{root}/main/{shard}.parquet") if rows > 0]
        assert [rows for rows in groups(path) if rows > 0] == main
    shapes = ("empty_group", "no_groups", "groups_5_0_7")
    schemas = {tuple(physical(f"{root}/out/{shard}.parquet", names)) for shard in shapes}
    assert len(schemas) == 1, schemas


def mark(endpoint, access, secret, *paths):
    """PUTs by hand, signed as AWS Signature Version 4 says: clients refuse keys that end in /."""
    for path in paths:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        host, empty = endpoint.split("//")[1], hashlib.sha256(b"").hexdigest()
        names = "host;x-amz-content-sha256;x-amz-date"
        headers = f"host:{host}\nx-amz-content-sha256:{empty}\nx-amz-date:{now}\n"
        request = hashlib.sha256(f"PUT\n{path}\n\n{headers}\n{names}\n{empty}".encode()).hexdigest()
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        key = b"AWS4" + secret.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.new(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{request}".encode(), "sha256").hexdigest()
        sent = {
            "x-amz-content-sha256": empty,
            "x-amz-date": now,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}",
        }
        with urllib.request.urlopen(urllib.request.Request(endpoint + path, b"", sent, method="PUT")) as answer:
            assert answer.status == 200, answer.status


if __name__ == "__main__":
    {"make": make, "check": check, "mark": mark}[sys.argv[1]](*sys.argv[2:])
