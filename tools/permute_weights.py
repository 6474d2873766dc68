"""Write a copy of a model whose weights of queries and keys are ordered for the other pairing, as some conversions leave them.

    python tools/permute_weights.py weights/smollm2-135m --out out/smollm2-permuted
    ropescope check-rope out/smollm2-permuted

The rotation of the copy is right, and its text is not: nothing but the weights tells.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ropescope.models.load import load_model
from ropescope.models.rope_check import check_model
from ropescope.studies.check_rope.faults import permuted_weights
from ropescope.studies.check_rope.faulty import subject_of


def permute_weights(folder: Path, out: Path) -> int:
    """How many layers were changed."""
    loaded = load_model(str(folder), "float32")
    model = loaded.model
    subject = subject_of(model, check_model(model))
    layers = list(subject.readable)
    with permuted_weights([subject.modules[n] for n in layers], [subject.readable[n] for n in layers]):
        model.save_pretrained(out)
    if loaded.tokenizer is not None:
        loaded.tokenizer.save_pretrained(out)
    return len(layers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    print(f"{permute_weights(given.folder, given.out)} layers changed")
