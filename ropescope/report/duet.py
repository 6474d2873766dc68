"""The live picture at the top of a page: two heads of one model on a short prompt, of which one stays and the other follows.

Which two, is computed from `playground.json` of a run folder: the heads whose attention to sentences is clearest when one
sentence moves. Only their queries and keys go to the page, where a browser makes their `M`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

Array = np.ndarray
FEWEST, MOST = 3, 9
"""Sentences of a prompt that can be shown at a glance."""
CLEAR = 0.1
"""Least clarity of both heads; a page whose models have none shows no such picture."""


def duet(played: Mapping[str, Mapping[str, Any]], kinds: Mapping[str, Mapping[str, str]]) -> dict[str, Any] | None:
    """Return the two heads that show best what it is to stay and to follow, ready for a script; None if no prompt has both.

    played  contents of `playground.json` by the name of the run
    kinds   what heads mainly are over all prompts of a run, by names of runs and heads, as far as that is known
    """
    best: tuple[float, dict[str, Any]] = (CLEAR, {})
    for run, content in played.items():
        try:
            for subject in content["subjects"]:
                found = clearest(subject, kinds.get(run, {})) if FEWEST <= len(subject["blocks"]) <= MOST else {}
                if found and min(clarity for *_, clarity in found.values()) > best[0]:
                    best = (min(clarity for *_, clarity in found.values()), _cut(subject, found) | {"run": run})
        except (
            LookupError,
            ValueError,
            TypeError,
            AttributeError,
            ArithmeticError,
        ):  # changed by somebody, or of another version
            continue
    return best[1] or None


def clearest(subject: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, tuple[int, int, float]]:
    """The clearest positional and symbolic head of a prompt: index of the layer, head, and how clear it is; empty without both.

    Clarity is how much closer attention is to staying than to following (or the reverse) when the sentence that the head looks
    at most moves: a difference of cosines over sentences, averaged over all places, times the weight of that sentence.
    It counts twice for a symbolic head that looks at the sentence the prompt asks for. Heads that are mainly something else
    over all prompts are left out.
    """
    best: dict[str, tuple[int, int, float]] = {}
    asked = _asked(subject)
    for n, layer in enumerate(subject["layers"]):
        if layer["window"] is not None or layer["alibi"] is not None or layer["sinks"] is not None:
            continue  # what a sentence could move out of, or what would need a note
        for head, M in enumerate(logits(subject, n)):
            lean, heaviest = _lean(M, subject["blocks"])
            kind = "positional" if lean > 0 else "symbolic"
            clarity = abs(lean) * (2 if lean < 0 and heaviest == asked else 1)
            fits = kinds.get(f"L{layer['layer']} H{head}", kind) == kind
            if fits and clarity > best.get(kind, (0, 0, 0.0))[2]:
                best[kind] = (n, head, clarity)
    return best if len(best) == 2 else {}


def logits(subject: Mapping[str, Any], n: int) -> Iterator[Float[Array, "T T"]]:
    """`M` of every head of a stored layer: rows are contents, columns places."""
    layer, tokens = subject["layers"][n], len(subject["tokens"])
    table = subject["tables"][layer["table"]]
    planes, size = len(table["frequencies"]), layer["head_dim"]
    turns = _complex(_decoded(table["turns"]).reshape(tokens, 2 * planes))
    queries = _decoded(layer["queries"]).reshape(layer["heads"], size)
    keys = _decoded(layer["keys"]).reshape(layer["key_heads"], tokens, size)
    q, k = _complex(queries[:, : 2 * planes]), _complex(keys[..., : 2 * planes])
    if layer["turned"]:
        q, k = q / turns[-1], k / turns
    places = layer["scale"] * turns * turns[-1].conj()
    for head in range(layer["heads"]):
        group = head // (layer["heads"] // layer["key_heads"])
        M = np.einsum("cf,pf->cp", k[group] * q[head].conj(), places).real
        M = M + layer["scale"] * (keys[group, :, 2 * planes :] @ queries[head, 2 * planes :])[:, None]
        yield M if layer["soft_cap"] is None else layer["soft_cap"] * np.tanh(M / layer["soft_cap"])


def _asked(subject: Mapping[str, Any]) -> int | None:
    """The only sentence whose first word is in the last line of the prompt, if there is one."""
    tokens = subject["tokens"]
    line = "".join(tokens[subject["blocks"][-1][1] :]).splitlines()[-1:]
    words = ["".join(tokens[start:stop]).split()[:1] for start, stop in subject["blocks"]]
    found = [k for k, word in enumerate(words) if line and word and word[0] in line[0].split()]
    return found[0] if len(found) == 1 else None


def _lean(M: Float[Array, "T T"], blocks: Sequence[Sequence[int]]) -> tuple[float, int]:
    """How clearly a head stays (above 0) or follows (below 0) when the sentence it looks at most moves, and that sentence."""
    count = len(blocks)
    before = _on_blocks(M, blocks, list(range(count)))
    start = int(before.argmax())
    leans = []
    for stop in {*range(count)} - {start}:
        row = list(range(count))
        row.insert(stop, row.pop(start))
        after = _on_blocks(M, blocks, row)
        leans.append(_cosine(after, before) - _cosine(after, before[row]))
    return float(np.mean(leans)) * float(before.max()), start


def _on_blocks(M: Float[Array, "T T"], blocks: Sequence[Sequence[int]], row: Sequence[int]) -> Float[Array, " B"]:
    """The weight of each place for a sentence, when place k holds sentence row[k]."""
    order, slots = [], []
    at = 0
    for k, (start, _) in enumerate(blocks):
        between = range(blocks[k - 1][1] if k else 0, start)
        unit = range(*blocks[row[k]])
        order += [*between, *unit]
        at += len(between)
        slots.append(slice(at, at + len(unit)))
        at += len(unit)
    order += range(blocks[-1][1], len(M))
    found = M[order, range(len(M))]
    weights = np.exp(found - found.max())
    weights /= weights.sum()
    return np.array([weights[slot].sum() for slot in slots])


def _cosine(x: Float[Array, " B"], y: Float[Array, " B"]) -> float:
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def _cut(subject: Mapping[str, Any], found: Mapping[str, tuple[int, int, float]]) -> dict[str, Any]:
    """The subject with two layers of one head each: first the positional one, then the symbolic one."""
    layers: list[dict[str, Any]] = []
    for kind in ("positional", "symbolic"):
        n, head, _ = found[kind]
        layer = subject["layers"][n]
        group = head // (layer["heads"] // layer["key_heads"])
        one: dict[str, Any] = {"heads": 1, "key_heads": 1, "head": head, "table": len(layers)}
        one |= {
            "queries": _part(layer["queries"], head, layer["heads"]),
            "keys": _part(layer["keys"], group, layer["key_heads"]),
        }
        layers.append(layer | one)
    tables = [subject["tables"][subject["layers"][found[kind][0]]["table"]] for kind in ("positional", "symbolic")]
    if tables[0] is tables[1]:
        tables, layers[1]["table"] = tables[:1], 0
    heads = sum(layer["heads"] for layer in subject["layers"])
    all_heads = heads * len(subject["layers_of_model"]) // len(subject["layers"])
    return {**subject, "layers": layers, "tables": tables, "examples": {}, "heads_of_model": all_heads}


def _part(packed: Mapping[str, str], which: int, parts: int) -> dict[str, str]:
    raw = base64.b64decode(packed["base64"])
    size = len(raw) // parts
    return {"type": packed["type"], "base64": base64.b64encode(raw[which * size : (which + 1) * size]).decode()}


def _decoded(packed: Mapping[str, str]) -> Array:
    kind = "<f4" if packed["type"] == "float32" else "<f8"
    return np.frombuffer(base64.b64decode(packed["base64"]), kind).astype(np.float64)


def _complex(pairs: Array) -> Array:
    return np.ascontiguousarray(pairs).view(np.complex128)
