"""Checks the rotation of a model, or of arrays that another runtime has dumped, against what is claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..rotations import Claim, Departure, Rotation, Scaling, agreement, anchored, departures, fit_rotation, name_scaling
from ..rotations.positions import coarse_turns, explained
from .adapter.turned import Turned, Turning
from .claimed import claim_of
from .dumps import Dump, read_dump
from .trained_pairing import WeightPairs, weight_pairs

Array = NDArray[np.float64]

TOKENS = 64
Claims = Callable[[int, str, int, int], Claim | None]
"""Maps a layer, "query" or "key", the dimensions of its heads and a length of inputs to the rotation that is claimed."""


@dataclass(frozen=True)
class Fit:
    """The rotation of the queries or keys of a layer in one pass, what is claimed, and how they differ."""

    part: str
    rotation: Rotation
    claim: Claim | None
    departures: list[Departure]


@dataclass(frozen=True)
class LayerCheck:
    """What one layer does.

    layer      its number
    fits       rotations of queries and keys, of near positions first
    departed   differences from what is claimed, with the part they are of; empty if there are none
    undecided  what the data do not show, in words; empty if everything was checked
    weights    for which pairing the weights were trained, as far as they tell; None for dumps and fused matrices

    >>> import ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    >>> (check,) = rs.check_rope(LlamaForCausalLM(LlamaConfig(**sizes)))
    >>> check.layer, check.departed, check.undecided, check.fits[0].rotation.pairing
    (0, [], '', 'half')
    """

    layer: int
    fits: list[Fit]
    departed: list[tuple[str, Departure]] = field(default_factory=list)
    undecided: str = ""
    weights: WeightPairs | None = None

    @property
    def scaling(self) -> Scaling:
        """The scaling of the frequencies, from the pass with the farthest positions of what is claimed for all lengths."""
        best = self.fits[-1].rotation
        claim = self.fits[-1].claim
        length = None if claim is None else claim.constants.get("original_max_position_embeddings")
        rates, errors = best.frequencies, best.errors
        if best.pairing == "interleaved" and len(turning := np.flatnonzero(best.turning)):
            rates, errors = rates[turning[0] : turning[-1] + 1], errors[turning[0] : turning[-1] + 1]
            if claim is not None and claim.planes is not None:  # how many planes there are shows in none that stands still
                rates, errors = (x[turning[0] :][: claim.planes.count] for x in (best.frequencies, best.errors))
        return name_scaling(rates, errors, length)

    @property
    def precision(self) -> str:
        """Which precisions of angles what was seen excludes."""
        fit = self.fits[-1]
        if fit.departures or fit.claim is None or not fit.rotation.turning.any():
            return "not decided"
        seen, rates = fit.rotation.seen, fit.rotation.frequencies
        ruled = [name for name in ("bfloat16", "float16") if explained(seen, coarse_turns(seen, rates, name), rates) > 1]
        return f"better than {ruled[-1]}" if ruled else "not decided"


def check_rope(
    source: nn.Module | str | Path, reference: nn.Module | str | Path | None = None, tokens: int = TOKENS
) -> list[LayerCheck]:
    """The check of the rotation (RoPE) of every layer, of a model or of queries and keys that another runtime has dumped.

    source     a model of `transformers`, or the path of a dump's manifest
    reference  what is right: by default what the configuration claims; or a model of `transformers`, or another manifest
    tokens     for models: tokens of a pass

    Every member has `layer`, `departed` (pairs of "query", "key" or both, and a departure with `cause`, one sentence, and
    `position`, from where on), `scaling`, `precision` and `fits`, which hold the fitted rotations. A layer is right if
    `departed` is empty and so is `undecided`.

    Raises ValueError if a model cannot be read or a manifest is not valid.

    >>> import ropescope as rs
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters={"rope_type": "default", "rope_theta": 5e5}))
    >>> [(check.layer, str(check.scaling), check.departed) for check in rs.check_rope(model)]
    [(0, 'none (base 500000)', []), (1, 'none (base 500000)', [])]
    >>> model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16().float()
    >>> print(rs.check_rope(model)[0].departed[0][1].cause)
    frequencies are rounded to bfloat16
    """
    claims = None
    if isinstance(reference, nn.Module):
        claims = fitted_claims(check_model(reference, None, tokens))
    elif reference is not None:
        claims = fitted_claims(check_dump(read_dump(Path(reference)), lambda *_: None))
    if isinstance(source, nn.Module):
        return check_model(source, claims, tokens)
    return check_dump(read_dump(Path(source)), claims)


def far_positions(context: int, tokens: int = TOKENS) -> list[int]:
    """Positions up to the end of the context: a quarter of them in a row, then ever farther apart, then the last two."""
    if context <= tokens:
        return list(range(context))
    near = max(2, tokens // 4)
    rest = np.geomspace(near, context - 3, tokens - near - 2)
    return sorted({*range(near), *(int(place) for place in rest), context - 2, context - 1})


def check_model(
    model: nn.Module, claims: Claims | None = None, tokens: int = TOKENS, farthest: int | None = None
) -> list[LayerCheck]:
    """The check of every layer of a `transformers` model, from two passes: over near positions, and over the whole context.

    claims    what is claimed for each layer; by default what the model's configuration says
    tokens    tokens of a pass
    farthest  the largest position; by default the end of the model's context, at most 131,071
    """
    reader = Turning(model)
    config: Any = reader.model.config
    claimed = claims or (lambda layer, part, size, length: claim_of(config, layer, size, length))
    found: dict[int, list[Fit]] = {layer: [] for layer in reader.layers}
    heads: dict[int, int] = {}

    def on_turned(turned: Turned) -> None:
        found[turned.layer].append(_fit_turned(turned, claimed))
        heads.setdefault(turned.layer, len(turned.after))  # those of queries, which come first

    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    last = min(farthest or (context if isinstance(context, int) and context > 0 else 2048) - 1, 131_071)
    reader.read(min(tokens, last + 1), on_turned)
    if reader.takes_positions and last >= tokens:
        reader.read(*_far(last, tokens, on_turned))
    weights = {
        layer: weight_pairs(module, heads[layer], found[layer][0].rotation)
        for layer, module in zip(reader.layers, reader.modules, strict=True)
    }
    return [replace(_checked(layer, fits), weights=weights[layer]) for layer, fits in found.items()]


def _far(last: int, tokens: int, on_turned: Callable[[Turned], None]) -> tuple[int, Callable[[Turned], None], Sequence[int]]:
    places = far_positions(last + 1, tokens)
    return len(places), on_turned, places


def _fit_turned(turned: Turned, claims: Claims) -> Fit:
    claim = claims(turned.layer, turned.part, turned.after.shape[-1], int(turned.positions.max()) + 1)
    rotation = fit_rotation(turned.after, None, turned.positions, turned.noise, None if claim is None else claim.planes)
    if turned.before is not None:
        rotation = anchored(rotation, turned.after, turned.before)
    wrong = [] if claim is None else departures(rotation, claim)
    if turned.lost is not None:
        wrong.append(Departure("precision", f"numbers are not finite from position {turned.lost:g} on", turned.lost))
    return Fit(turned.part, rotation, claim, wrong)


def _checked(layer: int, fits: list[Fit], undecided: str = "") -> LayerCheck:
    """All departures of a layer, each once, and those of queries from keys."""
    departed: list[tuple[str, Departure]] = []
    reported: set[tuple[str, str]] = set()
    for fit in fits:
        for each in fit.departures:
            if (fit.part, each.what) not in reported:
                departed.append((fit.part, each))
                reported.add((fit.part, each.what))
    for start in range(0, len(fits) - 1, 2):
        query, key = fits[start : start + 2]
        if (query.part, key.part) == ("query", "key") and not departed:
            departed += [("query and key", each) for each in agreement(query.rotation, key.rotation)]
    if not undecided and fits and all(fit.claim is None for fit in fits):
        undecided = "no rotation is claimed"
    return LayerCheck(layer, fits, departed, undecided)


# Dumps


def config_claims(config: Any, pairing: Any = None) -> Claims:
    """What a configuration claims, with another pairing where the runtime has one of its own."""

    def claims(layer: int, part: str, size: int, length: int) -> Claim | None:
        del part
        claim = claim_of(config, layer, size, length)
        return claim if claim is None or pairing is None or not len(claim.frequencies) else replace(claim, pairing=pairing)

    return claims


def fitted_claims(checks: Sequence[LayerCheck]) -> Claims:
    """What another check has found, as the claim for the same layers: in the pass whose length is nearest."""
    known: dict[tuple[int, str], list[Rotation]] = {}
    for check in checks:
        for fit in check.fits:
            known.setdefault((check.layer, fit.part), []).append(fit.rotation)

    def claims(layer: int, part: str, size: int, length: int) -> Claim | None:
        del size
        fitted = known.get((layer, part)) or known.get((layer, "key"))
        if not fitted:
            return None
        found = min(fitted, key=lambda each: abs(float(each.seen.positions.max()) + 1 - length))
        if found.pairing == "none" or not found.turning.any():
            return Claim(np.zeros(0))
        return Claim(found.frequencies, found.pairing, found.planes.first, found.factor, "", {})

    return claims


def dump_config(settings: dict[str, Any]) -> Any:
    """The configuration of `transformers` in a manifest; ValueError if it is none."""
    from transformers import AutoConfig  # noqa: PLC0415

    settings = dict(settings)
    family = settings.pop("model_type", None)
    try:
        return AutoConfig.for_model(family, **settings)
    except Exception as error:  # settings of strangers may be wrong in many ways
        raise ValueError(f"config cannot be read as a configuration of transformers: {str(error).splitlines()[0]}") from None


def check_dump(dump: Dump, claims: Claims | None = None) -> list[LayerCheck]:
    """The check of every layer that a dump holds.

    claims  what is claimed; by default what the configuration in the manifest says, and nothing without one

    With vectors before and after the rotation every layer is decided, from any text. With equal tokens too. Of rotated vectors
    of other texts, only the first layer is decided, from tokens that repeat.
    """
    if claims is None and dump.config is not None:
        claims = config_claims(dump_config(dump.config), dump.pairing)
    known = claims or (lambda layer, part, size, length: None)
    return [_dumped_layer(dump, layer, known) for layer in dump.layers]


def _dumped_layer(dump: Dump, layer: int, claims: Claims) -> LayerCheck:
    fits, why = [], ""
    for part in ("query", "key"):
        after, before = dump.read(layer, part, "after"), dump.read(layer, part, "before")
        if after is None:
            continue
        vectors, noise = after
        if before is None and not dump.equal and (dump.tokens is None or layer > 0):
            why = "rotated vectors of unequal tokens decide nothing but the first layer"
            continue
        fits.append(
            _fit_dumped(dump, layer, part, vectors, max(noise, 2.0**-24), None if before is None else before[0], claims)
        )
    if not fits:
        return LayerCheck(layer, [], [], why or "no vectors after the rotation")
    return _checked(layer, fits, why)


def _fit_dumped(dump: Dump, layer: int, part: str, after: Array, noise: float, before: Array | None, claims: Claims) -> Fit:
    places = dump.positions if dump.positions is not None else np.arange(after.shape[1], dtype=float)
    claim = claims(layer, part, after.shape[-1], int(places.max()) + 1)
    prefer = None if claim is None else claim.planes
    try:
        tokens = None if dump.equal or before is not None else dump.tokens
        drift = before is None and dump.equal and layer > 0  # hidden states of equal tokens differ by what layers add up
        noise = max(noise, _unequal(after)) if drift else noise
        rotation = fit_rotation(after, before, places, noise, prefer, tokens, drift)
    except ValueError as error:
        raise ValueError(f"{dump.path}: layer {layer}: {error}") from None
    return Fit(part, rotation, claim, [] if claim is None else departures(rotation, claim))


def _unequal(after: Array) -> float:
    """Rounding of one number, from how much lengths of equal tokens vary, which a rotation does not change.

    Independent errors of `d / 2` planes, each `e` times its length, change the length of a head by about `e / sqrt(d / 2)`.
    """
    lengths = np.sqrt((after**2).sum(-1))
    spread = np.sqrt((lengths.std(-1) ** 2).mean() / max(float((lengths**2).mean()), 1e-300))
    return float(spread * np.sqrt(after.shape[-1] / 2))


def is_manifest(source: str) -> bool:
    """Whether a name is that of a manifest, rather than of a model."""
    path = Path(source)
    return path.suffix == ".json" and path.is_file()


def open_dump(source: str) -> Dump:
    """The dump of a manifest."""
    return read_dump(Path(source))
