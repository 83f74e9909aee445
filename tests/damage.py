"""What can happen to a file, and what a stranger can put in its place."""

import io
import json
import os
import pickle
import random
import struct
import zipfile

import numpy as np


class Payload:
    """Whoever unpickles it leaves a mark."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def promising(shape, dtype="<f4"):
    """A `.npy` whose header promises what is not there."""
    header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def strangers(mark):
    """Files of another kind, by name."""
    payload = pickle.dumps(Payload(mark))
    objects = npy(np.array([Payload(mark)], dtype=object), allow_pickle=True)
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    return {
        "nothing": b"",
        "a pickle": payload,
        "an array of objects": objects,
        "an archive of objects": zipped(indptr=objects, indices=objects, y=objects, x=objects),
        "a pickle in an archive": zipped(indptr=payload, indices=payload, y=payload),
        "an array that promises": promising((2**40,)),
        "an array of another shape": npy(np.zeros((3, 2, 2))),
        "an array of a negative shape": promising((-5, 3)),
        "an array of a huge header": promising((1,) * 2000),
        "an array of text": npy(np.array(["a", "b"])),
        "an array of dates": npy(np.array(["2020-01-01"], dtype="datetime64[D]")),
        "an array of records": npy(np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])),
        "a tensor that promises": struct.pack("<Q", len(header)) + header,
        "a header that promises": struct.pack("<Q", 2**62) + b"{}",
        "a deep tree": b"[" * 100_000,
        "a deep table": b"a = " + b"[" * 5_000 + b"]" * 5_000,
        "a list": b"[1, 2]\n",
        "a number": b"1e999\n",
        "a long number": b'{"epoch": ' + b"9" * 5000 + b"}\n",
        "not UTF-8": b"\xff\xfe\x00{",
        "null bytes": b"\0" * 4096,
        "a line without an end": b"x" * 200_000,
    }


def cuts(raw):
    """Truncated at every kind of place: within magic bytes, headers, data, and before the last byte."""
    places = {1, 4, 8, 9, 10, 40, 64, 100, 127, 128, 129, 200, len(raw) // 2, len(raw) - 8, len(raw) - 1}
    return {f"cut at {place}": raw[:place] for place in sorted(places) if 0 < place < len(raw)}


def flipped(raw, seed, count):
    """The bytes with `count` random bits turned."""
    chosen = random.Random(seed)
    turned = bytearray(raw)
    for _ in range(count if raw else 0):
        # Every other one in the first bytes, where headers are.
        place = chosen.randrange(min(len(raw), 256) if chosen.random() < 0.5 else len(raw))
        turned[place] ^= 1 << chosen.randrange(8)
    return bytes(turned)
