"""Files with encrypted columns, as pyarrow writes them.

    encrypted.py make DIR
    encrypted.py check DIR
"""

import base64
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

ROWS = 60
TABLE = pa.table({
    "key": [f"k{row}" for row in range(ROWS)], "image": [b"pixels"] * ROWS, "place": [f"{row},{-row}" for row in range(ROWS)], "number": list(range(ROWS)),
})


class Kms(pe.KmsClient):
    def wrap_key(self, key, master):
        return base64.b64encode(key)

    def unwrap_key(self, wrapped, master):
        return base64.b64decode(wrapped)


def write(path, columns, plain_footer=True):
    configuration = pe.EncryptionConfiguration(footer_key="footer", column_keys={"column": columns}, plaintext_footer=plain_footer, double_wrapping=False)
    properties = pe.CryptoFactory(lambda _: Kms()).file_encryption_properties(pe.KmsConnectionConfig(), configuration)
    with pq.ParquetWriter(path, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE, row_group_size=25)


def make(root):
    os.makedirs(f"{root}/main")
    pq.write_table(TABLE, f"{root}/main/plain.parquet")
    pq.write_table(TABLE.select(["key", "number"]), f"{root}/index.parquet")
    write(f"{root}/main/image.parquet", ["image"])
    write(f"{root}/main/place.parquet", ["place"])
    write(f"{root}/main/key.parquet", ["key"])
    write(f"{root}/main/footer.parquet", ["place"], plain_footer=False)


def check(root):
    for name in "plain", "image":
        assert pq.read_table(f"{root}/out/{name}.parquet").equals(TABLE.drop_columns(["image"])), name
    for name in "plain", "image", "place":
        assert pq.read_table(f"{root}/dropped/{name}.parquet").equals(TABLE.drop_columns(["image", "place"])), name


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
