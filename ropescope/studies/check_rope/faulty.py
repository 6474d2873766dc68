"""Makes faults on purpose, and records what finds them: check-rope, greedy text, and differences of logits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...console import first_line
from ...models.adapter.turned import Turning
from ...models.claimed import claim_of
from ...models.load import load_model, quiet_loading
from ...models.rope_check import LayerCheck, check_model
from ...models.trained_pairing import WeightPairs, permuted
from ...rotations import Rotation
from ...runs import write_whole
from ..conformance.families import rope_variants, rotary_families, tiny
from ..study import Outcome, Work
from . import FaultSettings, files
from .faults import FAULTS, Fault, applies, faulty, permuted_weights
from .files import AS_IT_IS, PERMUTED, RIGHT

Row = dict[str, Any]

PRECISIONS = ("float32", "float16", "bfloat16")
TOKENS = (8, 16, 32, 64)
"""Tokens of a pass that are tried, fewest first."""
PROMPT = 16
"""Tokens of the prompt from which text is generated."""


def run(settings: FaultSettings, work: Work) -> Outcome:
    """A row for each fault of each model."""
    if settings.model == "tiny":
        return _tiny_models(settings, work)
    loaded = load_model(settings.model, "float32")
    lengths = [length for length in settings.lengths if loaded.context is None or length <= loaded.context]
    if not lengths:
        raise ValueError(f"lengths must have one within the context of {settings.model}, which is {loaded.context} tokens")
    config = asdict(settings) | {"model": loaded.about["source"], "weights": loaded.about["weights"]}
    journal, rows = Journal(work, config), list[Row]()
    for name, model in work.progress(_variants(loaded.model), 3, "variants"):
        rows += _trained(name, model, loaded.tokenizer, lengths, settings, work, journal)
    about = {"model": loaded.about, "lengths": lengths, "faults": len({row["fault"] for row in rows})}
    return Outcome(config, about | _counts(rows), {files.FAULTS: _text(rows)})


class Journal:
    """What has been computed so far, by name, in a file of the run folder: an interrupted run continues from there."""

    def __init__(self, work: Work, config: Mapping[str, Any]) -> None:
        work.resumed(config, __name__, "run of rope-faults", "faults of another model or other settings")
        self.path = work.folder / files.SO_FAR
        self.known: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def of(self, name: str, compute: Callable[[], Any]) -> Any:
        """What is stored under a name, or else what `compute` returns, which is then stored."""
        if name not in self.known:
            self.known[name] = compute()
            write_whole(self.path, json.dumps(self.known, allow_nan=False))
        return self.known[name]


def _text(rows: Sequence[Row]) -> str:
    return json.dumps(rows, indent=1, allow_nan=False) + "\n"


def _counts(rows: Sequence[Row]) -> dict[str, Any]:
    """How many faults there are, and of how many something is known; the right port in half precision is none."""
    names = ("detected", "layer_named", "cause_named")
    own = [row for row in rows if row["fault"] != RIGHT]
    return {"faulty": len(own)} | {name: sum(bool(row[name]) for row in own) for name in names}


# What check-rope finds


@dataclass(frozen=True)
class Subject:
    """A model that gets faults: its attention modules, and the layers that each fault applies to."""

    model: nn.Module
    modules: Mapping[int, nn.Module]
    layers: Mapping[str, list[int]]
    anchored: bool
    """Whether queries and keys before the rotation are known."""
    readable: Mapping[int, Rotation]
    """Rotations of layers that turn and whose weights of queries and keys can be read."""


def subject_of(model: nn.Module, clean: Sequence[LayerCheck]) -> Subject:
    """The model with what its own clean check says about it."""
    reader = Turning(model)
    sizes = {check.layer: check.fits[0].rotation.head_dim for check in clean}
    config: Any = model.config
    context = getattr(config.get_text_config(), "max_position_embeddings", None) or 2048
    found = {layer: claim_of(config, layer, sizes[layer], min(64, context)) for layer in reader.layers}
    claims = {layer: claim for layer, claim in found.items() if claim is not None}
    layers = {
        fault.name: [n for n, claim in claims.items() if applies(fault, claim, list(claims.values()), context)]
        for fault in FAULTS
    }
    known = all(fit.rotation.offset is not None for check in clean for fit in check.fits if fit.rotation.turning.any())
    readable = {check.layer: check.fits[0].rotation for check in clean if check.weights is not None}
    return Subject(model, dict(zip(reader.layers, reader.modules, strict=True)), layers, known, readable)


def possible(fault: Fault, subject: Subject) -> bool:
    """Whether the model can have the fault, and what is needed to see it is there."""
    needs_before = fault.parts == ("query",) or fault.needs == "factor"
    return bool(subject.layers[fault.name]) and (subject.anchored or not needs_before)


def judged(fault: Fault, subject: Subject, layers: Sequence[int], tokens: int = 64) -> Row:
    """Whether a check finds a fault in some layers, names just these, and names the cause in each."""
    with faulty(subject.model, fault, subject.modules, layers):
        checks = check_model(subject.model, tokens=tokens)
    wrong = [check for check in checks if check.departed]
    causes = sorted({each.cause for check in wrong for _, each in check.departed})
    named = [any(word in each.cause for _, each in check.departed for word in fault.words) for check in wrong]
    first = [each.position for check in wrong for _, each in check.departed if each.position is not None]
    return {
        "detected": bool(wrong),
        "layer_named": [check.layer for check in wrong] == list(layers),
        "cause_named": bool(named) and all(named),
        "position": min(first, default=None),
        "said": causes[:3],
    }


# Tiny models of every family


def _tiny_models(settings: FaultSettings, work: Work) -> Outcome:
    journal = Journal(work, asdict(settings))
    rows: list[Row] = []
    alarms: list[Row] = []
    names = [*rotary_families(), *(f"llama, {name}" for name in rope_variants())]
    for name in work.progress(iter(names), len(names), "families"):
        checked = journal.of(name, partial(_family, name, settings.seed))
        alarms += checked["alarms"]
        rows += checked["faults"]
    wrong = [each for each in alarms if each["alarm"] and not each["real"]]
    results = _counts(rows) | {
        "families": sorted({row["family"] for row in alarms}),
        "precisions": list(PRECISIONS),
        "clean_checks": len(alarms),
        "false_alarms": len(wrong),
        "called_permuted": sum(each["permuted"] for each in alarms),
        "weights_read": sum(each["weights_read"] for each in alarms),
        "real_alarms": [each for each in alarms if each["real"]],
        "missed": [row for row in rows if not row["detected"]],
        "by_fault": _by_fault(rows),
    }
    return Outcome(asdict(settings), results, {files.FAULTS: _text(rows), files.ALARMS: _text(alarms)})


def _family(name: str, seed: int) -> dict[str, list[Row]]:
    """Clean checks of a family in every precision, and its faults; nothing if it cannot be built or read."""
    found = [_alarm(name, precision, seed) for precision in PRECISIONS]
    return {
        "alarms": [each for each in found if each is not None],
        "faults": list(_tiny_faults(name, seed)) if found[0] else [],
    }


def _by_fault(rows: Sequence[Row]) -> list[Row]:
    found = []
    for fault in FAULTS:
        own = [row for row in rows if row["fault"] == fault.name]
        found.append({"fault": fault.name, "seen": fault.seen, **_counts(own)})
    return found


def _model(name: str, precision: str, seed: int) -> nn.Module:
    dtype = getattr(torch, precision)
    if name.startswith("llama, "):
        return rope_variants(seed, dtype)[name.removeprefix("llama, ")]
    return tiny(name, seed, dtype)


def _alarm(name: str, precision: str, seed: int) -> Row | None:
    """Whether a check of a clean model departs; None if the family cannot be built or read.

    An alarm is real if the same model has none once it is stored and loaded, as users load it: then the rotation of the model
    that was built in this precision differs from that of the same weights.
    """
    try:
        model = _model(name, precision, seed)
        checks = check_model(model)
    except Exception:  # whatever keeps a family from being built; the conformance run says what
        return None
    causes = sorted({each.cause for check in checks for _, each in check.departed})
    real = bool(causes) and not _reloaded(model, precision)
    told = {"weights_read": any(check.weights for check in checks), "permuted": permuted([check.weights for check in checks])}
    row = {
        "family": name,
        "precision": precision,
        "layers": len(checks),
        "alarm": bool(causes),
        "real": real,
        "said": causes[:2],
    }
    return row | told


def _reloaded(model: Any, precision: str) -> bool:
    """Whether a check of the stored and loaded model departs."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder, quiet_loading():
        model.save_pretrained(folder)
        again = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, precision))
        return any(check.departed for check in check_model(again))


def _tiny_faults(name: str, seed: int) -> Iterator[Row]:
    """Every fault in the last layer that can have it."""
    model = _model(name, "float32", seed)
    try:
        subject = subject_of(model, check_model(model))
    except Exception as error:  # of families that are built but cannot be read
        yield {"family": name, "fault": first_line(error)[:80], "detected": False, "layer_named": False, "cause_named": False}
        return
    for fault in FAULTS:
        if possible(fault, subject):
            yield {"family": name, "fault": fault.name, **judged(fault, subject, subject.layers[fault.name][-1:])}


# Trained models


def _variants(model: Any) -> Iterator[tuple[str, nn.Module]]:
    """The model as it is, and with scalings that its configuration claims, so that faults of scaling can be made in it."""
    yield AS_IT_IS, model
    config: Any = model.config
    settings = dict(getattr(config, "rope_parameters", None) or {})
    rotary: Any = getattr(model.get_decoder(), "rotary_emb", None)
    if rotary is None or not settings:
        return
    before = config.rope_parameters
    for name, scaled in _scalings(settings, int(config.max_position_embeddings)).items():
        config.rope_parameters = scaled
        model.get_decoder().rotary_emb = type(rotary)(config)
        yield name, model
    config.rope_parameters = before
    model.get_decoder().rotary_emb = rotary


def _scalings(settings: Mapping[str, Any], context: int) -> dict[str, dict[str, Any]]:
    """Settings of the rotation with scalings, by their names."""
    if "full_attention" in settings:  # the larger models of Gemma 3 scale layers without a window by 8
        return {"linear": {**settings, "full_attention": {**settings["full_attention"], "rope_type": "linear", "factor": 8.0}}}
    if "rope_theta" not in settings:
        return {}
    own = {"rope_theta": settings["rope_theta"], "original_max_position_embeddings": context // 4}
    return {
        "llama3": {"rope_type": "llama3", **own, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "yarn": {"rope_type": "yarn", **own, "factor": 4.0},
    }


def _trained(
    name: str,
    model: nn.Module,
    tokenizer: Any,
    lengths: Sequence[int],
    settings: FaultSettings,
    work: Work,
    journal: Journal,
) -> list[Row]:
    """A row for each fault of one variant of a model, and one for the right model in half precision."""
    subject = subject_of(model, check_model(model))
    chosen = [fault for fault in FAULTS if possible(fault, subject) and (name == AS_IT_IS or fault.needs)]
    if not chosen:
        return []
    if name != AS_IT_IS:  # another text has to be generated for each
        lengths = [length for length in lengths if length <= 200]
    text = journal.of(f"{name}: text", lambda: generated(model, tokenizer, max(lengths)).tolist())
    clean = Compared(model, torch.tensor(text), lengths)
    rows = []
    if name == AS_IT_IS:  # what a right port in half precision shows sets the bar for logits

        def port() -> Row:
            half = load_model(settings.model, "bfloat16").model
            return {"variant": name, "fault": RIGHT, "seen": "", **_fine(half), **clean.against(half)}

        rows.append(journal.of(f"{name}: {RIGHT}", port))
        if subject.readable:
            rows.append(journal.of(f"{name}: {PERMUTED}", partial(_permuted_row, name, subject, clean)))
    shown = work.progress(chosen, len(chosen), "faults")
    return rows + [journal.of(f"{name}: {fault.name}", partial(_fault_row, name, fault, subject, clean)) for fault in shown]


def _fault_row(name: str, fault: Fault, subject: Subject, clean: Compared) -> Row:
    """What finds one fault of a trained model."""
    layers = subject.layers[fault.name]
    one = layers[len(layers) // 2]
    least = next((tokens for tokens in TOKENS if judged(fault, subject, layers, tokens)["detected"]), None)
    every, alone = judged(fault, subject, layers), judged(fault, subject, [one])
    row = {"variant": name, "fault": fault.name, "seen": fault.seen, **every, "tokens": least, "layer": one}
    row |= {"layer_named": alone["layer_named"], "cause_named": alone["cause_named"] and every["cause_named"]}
    with faulty(subject.model, fault, subject.modules, layers):
        return row | clean.against(subject.model)


def _permuted_row(name: str, subject: Subject, clean: Compared) -> Row:
    """What finds weights that are ordered for the other pairing; no rotation shows them, so no tokens are needed."""
    every = list(subject.readable)
    one = every[len(every) // 2]

    def told(layers: Sequence[int]) -> dict[int, WeightPairs]:
        with permuted_weights([subject.modules[n] for n in layers], [subject.readable[n] for n in layers]):
            checks = check_model(subject.model, tokens=TOKENS[0])
        return {check.layer: check.weights for check in checks if check.weights is not None}

    clean_pairs, pairs, alone = told([]), told(every), told([one])
    detected = permuted([*pairs.values()]) and not permuted([*clean_pairs.values()])
    row = {"variant": name, "fault": PERMUTED, "seen": "", "detected": detected, "tokens": 0, "layer": one, "position": None}
    changed = [n for n, each in alone.items() if each.leaning == "other"]
    row |= {"layer_named": changed == [one], "cause_named": detected, "layers": len(every)}
    leaning = _leaning(pairs)
    row |= {"leaning": leaning, "clean_leaning": _leaning(clean_pairs)}
    row["said"] = [f"weights of {leaning['other']} of {len(every)} layers were trained for the other pairing"]
    with permuted_weights([subject.modules[n] for n in every], [subject.readable[n] for n in every]):
        return row | clean.against(subject.model)


def _leaning(pairs: Mapping[int, WeightPairs]) -> dict[str, int]:
    return {name: sum(each.leaning == name for each in pairs.values()) for name in ("own", "other", "neither")}


def _fine(model: nn.Module) -> Row:
    causes = sorted({each.cause for check in check_model(model) for _, each in check.departed})
    return {
        "detected": bool(causes),
        "layer_named": False,
        "cause_named": False,
        "said": causes[:3],
        "tokens": None,
        "position": None,
    }


@torch.inference_mode()
def generated(model: Any, tokenizer: Any, tokens: int) -> Tensor:
    """A prompt and the text that the model itself generates from it, greedily (1, T)."""
    start = "Once upon a time there was a small town by the sea, and in it lived a man who"
    ids = torch.tensor([tokenizer(start)["input_ids"][:PROMPT]])
    wanted = tokens - ids.shape[1]
    found: Tensor = model.generate(
        ids, max_new_tokens=wanted, min_new_tokens=wanted, do_sample=False, pad_token_id=0, attention_mask=torch.ones_like(ids)
    )
    return found[:, :tokens]


class Compared:
    """What a clean model computes on a text, to compare others with.

    Greedy text of `n` tokens is equal if and only if, on the clean model's own text, the likeliest next token is the same at
    every place up to `n`: until the first difference both have read the same. So one pass over it decides all lengths.
    """

    def __init__(self, model: nn.Module, text: Tensor, lengths: Sequence[int]) -> None:
        self.text, self.lengths = text, lengths
        self.best, self.logits = self._passed(model)

    @torch.inference_mode()
    def _passed(self, model: Any) -> tuple[Tensor, Tensor]:
        logits = model(input_ids=self.text, use_cache=False).logits[0]
        at = torch.tensor([length - 1 for length in self.lengths])
        return logits.argmax(-1), logits[at].float().log_softmax(-1)

    def against(self, model: nn.Module) -> Row:
        """Whether greedy text is the same up to each length, and how much the last token's log-probabilities differ at most."""
        best, logits = self._passed(model)
        same = (best == self.best)[PROMPT - 1 :]
        parts = int(same.logical_not().nonzero()[0]) + PROMPT if not bool(same.all()) else None
        apart = (logits - self.logits).abs().amax(-1)
        return {
            "text_parts": parts,
            "text_differs": [parts is not None and parts < length for length in self.lengths],
            "logit_difference": [float(f"{value:.4g}") if bool(value.isfinite()) else None for value in apart],
        }
