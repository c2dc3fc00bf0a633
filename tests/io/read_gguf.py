"""Prints as JSON what the Python package gguf finds in a file: fields, and tensors with their data.

usage: read_gguf.py FILE [--no-data]
"""

import json
import sys

from gguf import GGUFReader


def main() -> None:
    reader = GGUFReader(sys.argv[1])
    with_data = "--no-data" not in sys.argv[2:]
    # The reader adds its own fields (GGUF.version, ...) for the preamble.
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    tensors = []
    for tensor in reader.tensors:
        entry = {
            "name": tensor.name,
            "type": tensor.tensor_type.name,
            "shape": [int(n) for n in tensor.shape],
            "offset": int(tensor.data_offset),
            "bytes": int(tensor.n_bytes),
        }
        if with_data:
            entry["data"] = tensor.data.tobytes().hex()
        tensors.append(entry)
    json.dump({"fields": fields, "tensors": tensors}, sys.stdout)


if __name__ == "__main__":
    main()
