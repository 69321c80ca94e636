"""Every column type that a writer can write, a shard each, and what readers make of it before and after.

    column_types.py make DIR
    column_types.py check DIR OUTPUT SIDE

A shard has its type three times: alone (v), in structs some of which are null (s), and in lists of structs some
of which are null (l), where the writer can do that.
"""

import datetime
import decimal
import os
import shutil
import sys
import uuid

os.environ["POLARS_IMPORT_INTERVAL_AS_STRUCT"] = "1"

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tables import plain

# By hyparquet-writer 0.17, which is JavaScript.
HYPARQUET = [os.path.join(os.path.dirname(__file__), f"hyparquet-{name}.parquet") for name in ("plain", "odd")]
ROWS = 60
KEYS = [f"k{row:04}" for row in range(ROWS)]
UTC = datetime.timezone.utc
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 58, 123000)


def some(values):
    return [None if row % 7 == 3 else value for row, value in enumerate(values)]


def structs(values):
    return [None if row % 5 == 2 else {"v": value, "n": None if row % 4 == 1 else row} for row, value in enumerate(values)]


def lists(values):
    return [[None, [], [{"v": value}, None], [None]][row % 4] for row, value in enumerate(values)]


NUMBERS = [row * 7 % 101 - 50 for row in range(ROWS)]
REALS = [float("nan") if row % 11 == 5 else row / 8 for row in range(ROWS)]
TEXTS = [f"text {row % 9} ä" for row in range(ROWS)]
BLOBS = [b"\x00\xff blob %d" % row for row in range(ROWS)]
DAYS = [datetime.date(1969, 12, 20) + datetime.timedelta(days=row * 400) for row in range(ROWS)]
TIMES = [datetime.time(row % 24, row, 1, 5000) for row in range(ROWS)]
MOMENTS = [MOMENT + datetime.timedelta(days=row, milliseconds=row) for row in range(ROWS)]
SPANS = [datetime.timedelta(days=row - 20, milliseconds=row) for row in range(ROWS)]
DECIMALS = [decimal.Decimal(row - 30) / 4 for row in range(ROWS)]
UUIDS = [uuid.UUID(int=row * 2**90 + 1).bytes for row in range(ROWS)]
PAIRS = [[("a", row), ("b", None)] if row % 3 else [] for row in range(ROWS)]

ARROW = {
    "null": (pa.null(), [None] * ROWS),
    "bool": (pa.bool_(), [row % 3 == 0 for row in range(ROWS)]),
    **{f"{sign}int{bits}": (getattr(pa, f"{sign}int{bits}")(), [number + 50 if sign else number for number in NUMBERS]) for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "half": (pa.float16(), REALS), "float": (pa.float32(), REALS), "double": (pa.float64(), REALS),
    "string": (pa.string(), TEXTS), "large_string": (pa.large_string(), TEXTS), "view": (pa.string_view(), TEXTS),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "binary": (pa.binary(), BLOBS), "fixed": (pa.binary(16), UUIDS), "uuid": (pa.uuid(), UUIDS),
    "json": (pa.json_(), [f'{{"a": {row}}}' for row in range(ROWS)]),
    "decimal32": (pa.decimal32(7, 2), DECIMALS), "decimal64": (pa.decimal64(15, 3), DECIMALS),
    "decimal128": (pa.decimal128(38, 10), DECIMALS), "decimal256": (pa.decimal256(70, 20), DECIMALS),
    "date32": (pa.date32(), DAYS), "date64": (pa.date64(), DAYS),
    "time32": (pa.time32("ms"), TIMES), "time64": (pa.time64("ns"), TIMES), "time64us": (pa.time64("us"), TIMES),
    **{f"timestamp_{unit}": (pa.timestamp(unit), [moment.replace(microsecond=0) if unit == "s" else moment for moment in MOMENTS]) for unit in ("s", "ms", "us", "ns")},
    "timestamp_utc": (pa.timestamp("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]),
    "duration": (pa.duration("us"), SPANS),
    "list": (pa.list_(pa.int64()), [some(range(row % 4)) for row in range(ROWS)]),
    "large_list": (pa.large_list(pa.string()), [[TEXTS[row]] * (row % 3) for row in range(ROWS)]),
    "fixed_list": (pa.list_(pa.float32(), 3), [[row, None, -row] for row in range(ROWS)]),
    "map": (pa.map_(pa.string(), pa.int64()), PAIRS),
    "nested": (pa.struct([("a", pa.struct([("b", pa.int64())])), ("c", pa.list_(pa.list_(pa.date32())))]),
               [{"a": None if row % 3 else {"b": None if row % 2 else row}, "c": [None, [], [DAYS[row], None]][: row % 4]} for row in range(ROWS)]),
}

POLARS = {
    "bool": (pl.Boolean, [row % 3 == 0 for row in range(ROWS)]), "i8": (pl.Int8, NUMBERS),
    "u64": (pl.UInt64, [number + 50 for number in NUMBERS]), "f32": (pl.Float32, REALS), "f64": (pl.Float64, REALS),
    "string": (pl.String, TEXTS), "binary": (pl.Binary, BLOBS), "categorical": (pl.Categorical, TEXTS), "enum": (pl.Enum(sorted(set(TEXTS))), TEXTS),
    "date": (pl.Date, DAYS), "time": (pl.Time, TIMES), "ms": (pl.Datetime("ms"), MOMENTS), "us": (pl.Datetime("us"), MOMENTS), "ns": (pl.Datetime("ns"), MOMENTS),
    "utc": (pl.Datetime("us", "UTC"), [moment.replace(tzinfo=UTC) for moment in MOMENTS]), "duration": (pl.Duration("us"), SPANS),
    "decimal": (pl.Decimal(20, 4), DECIMALS), "list": (pl.List(pl.Int16), [some(range(row % 4)) for row in range(ROWS)]), "array": (pl.Array(pl.Int32, 2), [[row, -row] for row in range(ROWS)]),
}

DUCK = {
    "interval": "to_months((i % 40)::INTEGER) + to_days((i % 31)::INTEGER) + to_milliseconds(i * 1001)",
    "uuid": "('a0eebc99-9c0b-4ef8-bb6d-6bb9bd38' || lpad(i::VARCHAR, 4, '0'))::UUID", "bool": "i % 2 = 0",
    **{kind.lower(): f"(i % 100)::{kind}" for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "BIT", "BIGNUM")},
    "dec4": "(i * 0.5)::DECIMAL(4, 1)", "dec9": "(i * 7.25)::DECIMAL(9, 2)", "dec18": "(i * 7.25)::DECIMAL(18, 3)", "dec38": "(-i * 7.25)::DECIMAL(38, 10)",
    "date": "DATE '1960-01-01' + (i * 300)::INTEGER", "time": "make_time(i % 24, i % 60, (i % 60)::DOUBLE)", "timetz": "make_time(i % 24, i % 60, 1.5::DOUBLE)::TIMETZ", "time_ns": "make_time(i % 24, i % 60, 1.5::DOUBLE)::TIME_NS",
    **{kind.lower(): f"make_timestamp(i * 86400000000::BIGINT)::{kind}" for kind in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ")},
    "blob": "encode('b' || i)", "text": "'t' || (i % 7)", "enum": "(CASE WHEN i % 2 = 0 THEN 'red' ELSE 'blue' END)::ENUM_T",
    "list": "[i, NULL, -i]", "array": "[i, -i]::BIGINT[2]", "map": "MAP {'a' || i: i, 'b': NULL}", "union": "union_value(num := i)", "json": "('{\"a\": ' || i || '}')::JSON",
    "nested": "{'a': CASE WHEN i % 2 = 0 THEN {'b': to_months((i % 25)::INTEGER)} END, 'c': [[i], NULL, []]}", "variant": "i::VARIANT",
}


def by_pyarrow(path, group, kind, values):
    struct, values = pa.struct([("v", kind), ("n", pa.int32())]), some(values)
    columns = {"key": KEYS, "v": pa.array(values, kind)}
    # Without a conversion from Python, where there is none within others.
    if not isinstance(kind, pa.BaseExtensionType) and kind != pa.string_view():
        columns["s"], columns["l"] = pa.array(structs(values), struct), pa.array(lists(values), pa.list_(pa.struct([("v", kind)])))
    pq.write_table(pa.table(columns), path, row_group_size=group, store_decimal_as_integer=group % 2 == 1, use_dictionary=group % 2 == 0)


def by_polars(path, group, kind, values):
    values = some(values)
    columns = {"key": pl.Series(KEYS), "v": pl.Series(values, dtype=kind), "s": pl.Series(structs(values), dtype=pl.Struct({"v": kind, "n": pl.Int32})),
               "l": pl.Series(lists(values), dtype=pl.List(pl.Struct({"v": kind})))}
    pl.DataFrame(columns).write_parquet(path, row_group_size=group)


def by_duckdb(path, group, expression):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'; CREATE TYPE ENUM_T AS ENUM ('red', 'blue')")
        # DuckDB writes variants as columns alone.
        more = "" if expression.endswith("VARIANT") else f""",
            CASE WHEN i % 5 <> 2 THEN {{'v': CASE WHEN i % 7 <> 3 THEN v END, 'n': CASE WHEN i % 4 <> 1 THEN i END}} END AS s,
            CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN [] WHEN 2 THEN [{{'v': v}}, NULL] ELSE [NULL] END AS l"""
        connection.execute(f"""COPY (SELECT key, CASE WHEN i % 7 <> 3 THEN v END AS v{more}
            FROM (SELECT i, 'k' || lpad(i::VARCHAR, 4, '0') AS key, {expression} AS v FROM range({ROWS}) t(i)) ORDER BY i)
            TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {group})""")


def by_fastparquet(path, group):
    frame = pd.DataFrame({
        "key": pd.Series(KEYS, dtype=object), "i8": pd.array(NUMBERS, dtype="int8"), "u32": pd.array([number + 50 for number in NUMBERS], dtype="uint32"),
        "int64": pd.array(some(NUMBERS), dtype="Int64"), "f32": pd.array(REALS, dtype="float32"), "flag": pd.array(some([True, False] * 30), dtype="boolean"),
        "text": pd.Series(some(TEXTS), dtype=object), "blob": pd.Series(some(BLOBS), dtype=object), "category": pd.Categorical(TEXTS),
        "when": pd.to_datetime(MOMENTS).astype("datetime64[ns]"), "span": pd.to_timedelta(SPANS), "document": pd.Series([{"a": row} for row in range(ROWS)], dtype=object),
    })
    fastparquet.write(path, frame, row_group_offsets=group, object_encoding={"key": "utf8", "text": "utf8", "blob": "bytes", "document": "json"})


def make(root):
    # The groups of main, and others.
    for folder, group in ("same", 17), ("other", 25):
        side = f"{root}/{folder}"
        os.makedirs(side)
        for name, (kind, values) in ARROW.items():
            by_pyarrow(f"{side}/pyarrow-{name}.parquet", group, kind, values)
        for name, (kind, values) in POLARS.items():
            by_polars(f"{side}/polars-{name}.parquet", group, kind, values)
        for name, expression in DUCK.items():
            by_duckdb(f"{side}/duckdb-{name}.parquet", group, expression)
        by_fastparquet(f"{side}/fastparquet-all.parquet", group)
        for path in HYPARQUET:
            shutil.copy(path, side)
    os.makedirs(f"{root}/main")
    for name in os.listdir(f"{root}/same"):
        sizes = [17, 17, 17, 9]
        if name.startswith(("duckdb", "fastparquet")):
            groups = pq.ParquetFile(f"{root}/same/{name}").metadata
            sizes = [groups.row_group(group).num_rows for group in range(groups.num_row_groups)]
        with pq.ParquetWriter(f"{root}/main/{name}", pa.schema([("key", pa.string())])) as writer:
            start = 0
            for size in sizes:
                writer.write_table(pa.table({"key": KEYS[start:start + size]}))
                start += size


def pyarrow_values(path, columns):
    table = pq.ParquetFile(path).read(columns=columns)
    return {name: table.column(name).to_pylist() for name in columns}


def polars_values(path, columns):
    frame = pl.read_parquet(path, columns=columns)
    return {name: frame.get_column(name).to_list() for name in columns}


def duckdb_values(path, columns):
    # As text, too: Python's interval has no months.
    wanted = ", ".join(f'"{name}", "{name}"::VARCHAR' for name in columns)
    rows = DUCKDB.execute(f"SELECT {wanted} FROM read_parquet(?)", [path]).fetchall()
    return {name: [row[position * 2:position * 2 + 2] for row in rows] for position, name in enumerate(columns)}


def readable(values, path, columns, unreadable):
    """What a reader makes of a file: of all columns at once, or of those that it can read."""
    try:
        return values(path, columns)
    except (Exception, pl.exceptions.PanicException) as error:
        if len(columns) == 1:
            unreadable.append((os.path.basename(path), columns, values.__name__, str(error)[:90]))
            return {}
        return {name: found for column in columns for name, found in readable(values, path, [column], unreadable).items()}


DUCKDB = duckdb.connect()
DUCKDB.execute("SET TimeZone = 'UTC'")
READERS = {"pyarrow": pyarrow_values, "polars": polars_values, "duckdb": duckdb_values}


def fields(path):
    """Columns with the names of their fields, if they are structs."""
    schema = pq.ParquetFile(path).schema_arrow
    return {field.name: [child.name for child in field.type] if pa.types.is_struct(field.type) else [] for field in schema}


def physical(path, column):
    schema = pq.ParquetFile(path).schema
    leaves = [schema.column(position) for position in range(len(schema))]
    return [(leaf.path, leaf.physical_type, leaf.length, str(leaf.logical_type), leaf.converted_type, leaf.max_definition_level, leaf.max_repetition_level)
            for leaf in leaves if leaf.path == column or leaf.path.startswith(column + ".")]


def expected(reader, values, names):
    """What a merge makes of a column: a row's null struct becomes one of nulls."""
    if not names:
        return values
    nothing = dict.fromkeys(names)
    if reader != "duckdb":
        return [nothing if value is None else value for value in values]
    text = "{" + ", ".join(f"'{name}': NULL" for name in names) + "}"
    return [(nothing, text) if value is None else (value, words) for value, words in values]


def stored(value):
    """Values as Parquet has them: that days have no time, integers are durations and some texts are JSON is said by
    metadata of Arrow's own."""
    if isinstance(value, dict):
        return {name: stored(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [stored(item) for item in value]
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, str):
        return value.encode()
    return value // datetime.timedelta(microseconds=1) if isinstance(value, datetime.timedelta) else value


def check(root, output, side):
    compared, unreadable = dict.fromkeys(READERS, 0), []
    for shard in sorted(os.listdir(f"{root}/{side}")):
        before, after = f"{root}/{side}/{shard}", f"{root}/{output}/{shard}"
        schema = fields(before)
        assert list(fields(after)) == list(schema), shard
        for column in schema:
            assert column == "key" or physical(after, column) == physical(before, column), (shard, physical(before, column), physical(after, column))
        for reader, values in READERS.items():
            # Polars knows decimals this wide by Arrow's metadata alone.
            if (shard, reader) == ("pyarrow-decimal256.parquet", "polars"):
                continue
            # What a reader can't make of the input it need not make of the output.
            wanted = readable(values, before, [column for column in schema if column != "key"], unreadable)
            found = values(after, list(wanted)) if wanted else {}
            for column in wanted:
                # A scaffold's structs are main's, and a variant is one value.
                stays = output == "scaffold" or shard == "duckdb-variant.parquet"
                left, right = expected(reader, wanted[column], [] if stays else schema[column]), found[column]
                if shard.endswith(("-duration.parquet", "-date64.parquet", "-json.parquet")):
                    left, right = stored(left), stored(right)
                differ = [row for row in range(ROWS) if plain(left[row]) != plain(right[row])]
                assert len(right) == ROWS and not differ, (shard, column, reader, differ[0], left[differ[0]], right[differ[0]])
                compared[reader] += 1
    print(compared, unreadable)
    assert min(compared.values()) >= 150, (compared, unreadable)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
