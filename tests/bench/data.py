"""The data that is measured on: made once, kept in a cache folder.

    J/main J/metrics J/score_dqm ...   what the baseline's gen.py makes
    R/a                                the index made of J/metrics by stage_a.py, 2.0 M keys
    R/a10                              ten times as many keys, of which the new ones match nothing
    T/main T/index                     10,000 shards of a few rows
    I/main                             300 images of about one megapixel in 4 shards
    G/main                             512 images of 5 MB in one row group
"""

import pathlib
import shutil
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

GENERATE = ["--parts", "main,metrics,scores", "--shards", "200", "--rows", "1022", "--index-keys", "2000000",
            "--tiny-images", "--edge-shards"]
TINY_SHARDS = 10_000
IMAGES = ["--parts", "main", "--shards", "4", "--rows", "75", "--row-group", "75", "--image-pool", "300",
          "--image-mp", "1.0"]
LARGE_IMAGES = 512


def make(folder, name, work):
    """Lets `work` fill a folder under another name first, so that a half made one never counts."""
    target = folder / name
    if target.exists():
        return target
    print(f"bench: making {target} (once)", flush=True)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    work(partial)
    partial.rename(target)
    return target


def baseline(python, program, *arguments):
    subprocess.run([python, "-B", program, *arguments], check=True, stdout=subprocess.DEVNULL)


def joined(folder, peers, python):
    made = make(folder, "J", lambda out: baseline(python, peers / "gen.py", "--out", out, *GENERATE))
    index = make(folder, "R/a", lambda out: baseline(
        python, peers / "stage_a.py", "--metrics", made / "metrics", "--out", out))
    return made, index


def larger_index(folder, index, factor=10):
    def work(out):
        for path in sorted(index.glob("*.parquet")):
            enlarge(path, out / path.name, factor)
    return make(folder, f"R/a{factor}", work)


def enlarge(source, target, factor):
    """Puts factor - 1 new keys before each key, in its neighbourhood, so the order stays sorted."""
    reader = pq.ParquetFile(source)
    options = {"compression": "zstd", "compression_level": 3, "use_dictionary": ["source"]}
    with pq.ParquetWriter(target, reader.schema_arrow, **options) as writer:
        for batch in reader.iter_batches(batch_size=13_000):
            table = pa.Table.from_batches([batch])
            rows = np.repeat(np.arange(table.num_rows), factor)
            suffixes = [f"-{n}" for n in range(1, factor)] + [""]
            suffix = pa.array(suffixes * table.num_rows)
            table = table.take(pa.array(rows))
            keys = table.column("s3_path").combine_chunks()
            stem = pc.utf8_slice_codeunits(keys, 0, -4)
            extension = pc.utf8_slice_codeunits(keys, -4)
            keys = pc.binary_join_element_wise(stem, suffix, extension, "")
            at = table.column_names.index("s3_path")
            writer.write_table(table.set_column(at, table.schema.field(at), keys), row_group_size=130_000)


def tiny_shards(folder, made, index):
    """Ten thousand shards, all with the same four rows: only the number of files counts."""
    def work(out):
        shard = next(iter(sorted((made / "main").rglob("*.parquet"))))
        four = pq.ParquetFile(shard).read().slice(0, 4)
        first = out / "four.parquet"
        pq.write_table(four, first, compression="zstd")
        content = first.read_bytes()
        first.unlink()
        for number in range(TINY_SHARDS):
            path = out / "main" / f"{number % 40:02}" / f"shard-{number:06}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (out / "index").mkdir()
        keys = four.column("s3_path")
        for path in sorted(pathlib.Path(index).glob("*.parquet")):
            table = pq.read_table(path, filters=pc.field("s3_path").isin(keys.to_pylist()))
            pq.write_table(table, out / "index" / path.name, compression="zstd")
    return make(folder, "T", work)


def images(folder, peers, python):
    return make(folder, "I", lambda out: baseline(python, peers / "gen.py", "--out", out, *IMAGES))


def large_row_group(folder, made):
    """A row group of 512 images of 5 MB each: JPEGs with a comment of noise after the header."""
    def work(out):
        shard = next(iter(sorted((made / "main").rglob("*.parquet"))))
        jpegs = [image for image in pq.read_table(shard, columns=["image"])["image"].to_pylist()
                 if image and image[:2] == b"\xff\xd8"]
        noise = np.random.default_rng(1).bytes(65_533)
        comments = (b"\xff\xfe\xff\xff" + noise) * 76
        rows = [jpegs[row % len(jpegs)] for row in range(LARGE_IMAGES)]
        table = pa.table({
            "s3_path": [f"s3://bucket/source_a/{row:06}.jpg" for row in range(LARGE_IMAGES)],
            "image": pa.array([row[:2] + comments + row[2:] for row in rows], pa.binary()),
        })
        (out / "main").mkdir()
        pq.write_table(table, out / "main/shard-000000.parquet", row_group_size=LARGE_IMAGES,
                       use_dictionary=False, compression="zstd")
    return make(folder, "G", work)
