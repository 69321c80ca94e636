"""Images for the test of filters against the reference, and the comparison of its tables.

    oracle.py formats FOLDER        shards with images of every kind that can be written here
    oracle.py compare REFERENCE OURS     fails by an exception that names what differs
"""

import io
import math
import os
import sys

import cv2
import numpy
import pyarrow
import pyarrow.parquet
from PIL import Image

# Fields of single precision sums; everything else agrees to a billionth.
LOOSE = {"local_std": 1e-5}


def picture(generator, width, height):
    """Slopes, a disc and noise."""
    rows, columns = numpy.mgrid[0:height, 0:width]
    base = numpy.stack([rows * 2 + columns, rows + columns * 3, 255 - rows - columns], axis=2)
    disc = (rows - height // 2) ** 2 + (columns - width // 3) ** 2 < (min(width, height) // 4) ** 2
    base[disc] += 70
    noisy = base + generator.normal(0, generator.uniform(0, 12), base.shape)
    return numpy.clip(noisy, 0, 255).astype(numpy.uint8)


def encoded(image, **options):
    buffer = io.BytesIO()
    image.save(buffer, **options)
    return buffer.getvalue()


def by_opencv(extension, array, *options):
    done, buffer = cv2.imencode(extension, array, list(options))
    assert done, extension
    return buffer.tobytes()


def images():
    generator = numpy.random.default_rng(11)
    for width, height in [(1, 1), (1, 9), (13, 1), (8, 8), (9, 17), (31, 33), (64, 48), (121, 75)]:
        rgb = picture(generator, width, height)
        bgr = rgb[:, :, ::-1].copy()
        gray = rgb[:, :, 1].copy()
        image = Image.fromarray(rgb)
        alpha = generator.integers(0, 256, (height, width), dtype=numpy.uint8)
        deep = generator.integers(0, 65536, (height, width, 3)).astype(numpy.uint16)
        rgba = numpy.dstack([rgb, alpha])
        yield "png rgb", encoded(image, format="png")
        yield "png gray", encoded(Image.fromarray(gray), format="png")
        yield "png gray alpha", encoded(Image.merge("LA", [Image.fromarray(gray), Image.fromarray(alpha)]), format="png")
        yield "png rgba", encoded(Image.fromarray(rgba), format="png")
        yield "png palette", encoded(image.quantize(40), format="png")
        for colors, bits in [(2, 1), (4, 2), (16, 4)]:
            yield f"png palette {bits}", encoded(image.quantize(colors), format="png", bits=bits)
        yield "png 1 bit", encoded(Image.fromarray(gray).convert("1"), format="png")
        yield "png rgb 16", by_opencv(".png", deep)
        yield "png gray 16", by_opencv(".png", deep[:, :, 0].copy())
        yield "png rgba 16", by_opencv(".png", numpy.dstack([deep, deep[:, :, 0]]))
        yield "bmp rgb", encoded(image, format="bmp")
        yield "bmp gray", encoded(Image.fromarray(gray), format="bmp")
        yield "bmp palette", encoded(image.quantize(40), format="bmp")
        yield "bmp 1 bit", encoded(Image.fromarray(gray).convert("1"), format="bmp")
        yield "bmp 32", by_opencv(".bmp", numpy.dstack([bgr, alpha]))
        yield "webp lossless", encoded(image, format="webp", lossless=True)
        yield "webp lossy", encoded(image, format="webp", quality=70)
        yield "gif", encoded(image.quantize(64), format="gif")
        yield "tiff", encoded(image, format="tiff")
        yield "tiff lzw", encoded(image, format="tiff", compression="tiff_lzw")
        yield "tiff deflate", encoded(image, format="tiff", compression="tiff_adobe_deflate")
        yield "tiff gray", encoded(Image.fromarray(gray), format="tiff")
        for quality in (20, 75, 97):
            for sampling in (0, 1, 2):
                yield f"jpeg {quality} {sampling}", encoded(image, format="jpeg", quality=quality, subsampling=sampling)
        yield "jpeg gray", encoded(Image.fromarray(gray), format="jpeg", quality=80)
        yield "jpeg progressive", encoded(image, format="jpeg", quality=80, progressive=True)
        yield "jpeg progressive gray", encoded(Image.fromarray(gray), format="jpeg", progressive=True)
        yield "jpeg restarts", by_opencv(".jpg", bgr, cv2.IMWRITE_JPEG_RST_INTERVAL, 2)
        yield "jpeg 4:4:0", by_opencv(".jpg", bgr, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440)
        yield "jpeg 4:1:1", by_opencv(".jpg", bgr, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411)
        whole = encoded(image, format="jpeg", quality=90)
        yield "jpeg cut", whole[: len(whole) - 3]
        yield "png cut", encoded(image, format="png")[:40]
    yield "nothing", b""
    yield "null", None
    yield "text", b"<html>404</html>"
    yield "jpeg start", b"\xff\xd8\xff"


def formats(folder):
    kinds, contents = zip(*images())
    keys = [f"{row:04}/{kind}" for row, kind in enumerate(kinds)]
    table = pyarrow.table(
        {"s3_path": keys, "image": pyarrow.array(contents, pyarrow.binary()), "kind": list(kinds)}
    )
    os.makedirs(folder, exist_ok=True)
    pyarrow.parquet.write_table(table, f"{folder}/formats.parquet", row_group_size=97)


def shards(folder):
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".parquet"):
                yield os.path.relpath(os.path.join(parent, name), folder)


def is_close(field, left, right):
    if left == right:
        return True
    if not isinstance(left, float) or not isinstance(right, float):
        return False
    allowed = LOOSE.get(field, 1e-9 * abs(left))
    return math.isclose(left, right, rel_tol=0, abs_tol=allowed)


def compare(reference, ours):
    values = 0
    for shard in sorted(shards(reference)):
        theirs = pyarrow.parquet.read_table(os.path.join(reference, shard))
        made = pyarrow.parquet.read_table(os.path.join(ours, shard))
        keys = theirs["s3_path"].to_pylist()
        assert made["s3_path"].to_pylist() == keys, shard
        for column in theirs.column_names:
            if not column.startswith("filter_"):
                assert made[column].to_pylist() == theirs[column].to_pylist(), (shard, column)
                continue
            assert made[column].null_count == 0, (shard, column)
            rows = zip(keys, theirs[column].to_pylist(), made[column].to_pylist())
            for key, left, right in rows:
                assert left.keys() == right.keys(), (column, left, right)
                for field in left:
                    values += 1
                    assert is_close(field, left[field], right[field]), (
                        f"{shard} {key} {column}.{field}: reference {left[field]}, ours {right[field]}"
                    )
    print(values)


{"formats": formats, "compare": compare}[sys.argv[1]](*sys.argv[2:])
