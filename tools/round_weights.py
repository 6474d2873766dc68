"""Write a copy of a model whose matrices are rounded to a quantisation of GGUF, to compare it with the original.

    python tools/round_weights.py weights/stories15M Q4_1 --out weights/stories15M-q4_1

Every matrix but the embedding and the output matrix is quantised and unpacked again, as a GGUF file of that type would be. The
result is an ordinary `transformers` folder in float32.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file, save_file


def round_weights(folder: Path, form: str, out: Path) -> int:
    """How many matrices were rounded."""
    kind, rounded = GGMLQuantizationType[form], 0
    out.mkdir(parents=True)
    for path in folder.iterdir():
        if path.suffix != ".safetensors" and path.is_file() and path.name != "source.json":
            shutil.copyfile(path, out / path.name)
    for path in folder.glob("*.safetensors"):
        weights = load_file(path)
        for name, value in weights.items():
            if value.ndim == 2 and not ("embed" in name or "lm_head" in name):
                weights[name] = dequantize(quantize(value, kind), kind).reshape(value.shape).astype("float32")
                rounded += 1
        save_file(weights, out / path.name, metadata={"format": "pt"})
    return rounded


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("form", help="Q4_0, Q4_1, Q5_0, Q5_1 or Q8_0")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    print(f"{round_weights(given.folder, given.form, given.out)} matrices rounded")
