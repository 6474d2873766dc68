"""Models built by hand, each with the proof that it is right: one layer, one head, one or two RoPE planes, no MLP.

`t_index` follows integers back by counting places, `t_retrieval` finds pairs by matching letters: the constructions of paper
B, section 3.4, with softmax at a finite temperature. Their ids are those of the number and of the letter task. `h_pos`,
`h_sym` and `h_mix` are those of paper A, section 5, for the canonical tasks; `h_single` is our own. All pass their queries and
keys to `on_heads` like any model, so every measure applies to them.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from ..heads import Heads
from ..rope import Rope
from ..theory import aimed_gap, index_gaps, latest_gap, retrieval_least, single_best, single_gap
from .gptj import OnHeads

SMALLEST_GAP = 1e-12
"""The smallest difference of two logits that double precision can resolve here."""


class OneHead(nn.Module):
    """A model of one head: embedding, three linear maps, causal softmax attention, and the largest output as the answer.

    embedding  (vocabulary, width)
    query      (width, 2 per plane), and so is key
    value      (width, answers): what attention adds to the output; answers are tokens or, in pair tasks, attributes
    residual   (width, answers): what a position adds to its own output
    rope       the rotation
    beta       inverse temperature: the scale of logits

    Token ids (B, T) become (B, T, answers). `on_heads` is called with 0 and the layer's `Heads`.

    Raises ValueError if beta is not a positive number.

    >>> import torch, ropescope as rs
    >>> model = rs.t_index(letters=26, integers=9, longest=6)
    >>> ids = torch.tensor([[2, 0, 19, 18, 27]])  # c a t s, and the integer 2
    >>> int(model(ids)[0, -1].argmax())  # two places before it: t
    19
    """

    def __init__(
        self,
        embedding: Float[Tensor, "V width"],
        query: Float[Tensor, "width d"],
        key: Float[Tensor, "width d"],
        value: Float[Tensor, "width answers"],
        residual: Float[Tensor, "width answers"],
        rope: Rope,
        beta: float,
    ) -> None:
        super().__init__()
        if not (math.isfinite(beta) and beta > 0):
            raise ValueError(f"beta must be a positive number, not {beta}")
        self.rope, self.beta = rope, beta
        # A linear map of an embedding is a table with a row per token: looked up, not multiplied, for every position.
        for name, matrix in (("query", query), ("key", key), ("value", value), ("residual", residual)):
            self.register_buffer(name, embedding @ matrix)

    def forward(self, ids: Int[Tensor, "B T"], on_heads: OnHeads | None = None) -> Float[Tensor, "B T answers"]:
        """The output of every position; its largest coordinate is the answer."""
        queries, keys, values, residual = (
            F.embedding(ids, self.get_buffer(name)) for name in ("query", "key", "value", "residual")
        )
        if on_heads is not None:
            on_heads(0, Heads(queries[:, None], keys[:, None], self.rope, scale=self.beta))
        positions = torch.arange(ids.shape[1], device=ids.device)
        attended = F.scaled_dot_product_attention(
            self.rope.rotate(queries, positions), self.rope.rotate(keys, positions), values, is_causal=True, scale=self.beta
        )
        return residual + attended


def heads_of(model: OneHead, tokens: Int64[np.ndarray, "B T"]) -> Heads:
    """Queries and keys of the model's one head on these inputs."""
    handed: list[Heads] = []
    model(torch.from_numpy(tokens), on_heads=lambda _, heads: handed.append(heads))
    return handed[0]


def sufficient_beta(longest: int, logit_gap: float, value_norm: float, readout_gap: float) -> float:
    """An inverse temperature at which softmax gives the answers of hard attention: ln(2 sqrt(2) V (n - 1) / delta) / lambda.

    longest      n, the most keys of any input
    logit_gap    lambda, the smallest difference between the largest logit of an input and any other
    value_norm   V, the largest norm of a value
    readout_gap  delta, the smallest lead of the right coordinate of the output over any other under hard attention

    Proof (lemma F.1 of paper B, with its constant). Each of at most n - 1 other keys has at most exp(-beta lambda) times the
    weight w of the best one, so 1 - w <= (n - 1) exp(-beta lambda) w < (n - 1) exp(-beta lambda). Against hard attention the
    output moves by the sum over other keys of w_j (v_j - v_best), which is at most (1 - w) 2 V long, and the difference of
    two of its coordinates by at most sqrt(2) times that. At this beta it is less than delta, so the right coordinate stays
    ahead.
    """
    if longest < 2:
        return 1.0  # one key has all the weight at any temperature
    return max(1.0, math.log(2 * math.sqrt(2) * value_norm * (longest - 1) / readout_gap)) / logit_gap


def _turned_back(steps: Int[Tensor, " V"], angle: float) -> Float[Tensor, "V 2"]:
    """The vector v = (1, 0), turned back by the given numbers of steps of an angle, in double precision."""
    turn = -angle * steps.double()
    return torch.stack((turn.cos(), turn.sin()), -1)


def t_index(
    letters: int = 120, integers: int = 16, angle: float = 0.8, longest: int = 17, beta: float | None = None
) -> OneHead:
    """A purely positional model: an integer `s` is replaced by the token `s` places before it, if that is a letter.

    letters, integers  tokens of each type; letters come first, and the integer s is token `letters + s - 1`
    angle              of the one plane, radians per position
    longest            most tokens of an input
    beta               inverse temperature; one that provably suffices unless given

    The embedding is one-hot with a constant 1 behind. Every key is v: the constant's. The query of a letter is v, that of the
    integer s is v turned back by s angle. Position j therefore gets the logit cos((n - j - s) angle), with s = 0 for a
    letter: the largest is at j = n - s, where the query should look, and is the only one as long as d angle is no multiple of
    2 pi for d = 1 ... longest - 1. Values are 2 on the coordinates of letters and 0 elsewhere, added to the position's own
    one-hot:

    - an integer that finds a letter has 2 there and 1 at itself: the letter wins;
    - an integer that finds an integer has 1 at itself and nothing else: it stays;
    - a letter finds itself and has 3: it stays.

    The lead is at least 1 and values are at most 2 long: `sufficient_beta` gives the temperature. An integer that points
    before the start has no right answer.

    Raises ValueError if a size is below 1 or the angle makes two places look alike.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import NumberTask
    >>> model, ids = rs.t_index(), torch.from_numpy(NumberTask().sample(64, seed=0).tokens)
    >>> answers = model(ids, on_heads=lambda _, heads: print(rs.swap_scores(rs.layer_logits(heads)).positional.min() > 0.9999))
    tensor(True)
    """
    _require_sizes(letters=letters, integers=integers, longest=longest)
    gap = float(index_gaps(longest - 1, angle)[-1]) if longest > 1 else 1.0
    if not gap > SMALLEST_GAP:
        raise ValueError(
            f"angle {angle} turns some distance below longest = {longest} by a multiple of 2 pi, so two keys look alike: "
            f"choose another angle or a smaller longest"
        )
    size = letters + integers
    one_hot, is_letter = torch.eye(size, size + 1, dtype=torch.float64), torch.arange(size) < letters
    embedding = one_hot.clone()
    embedding[:, -1] = 1
    back = (torch.arange(size) - letters + 1).clamp(min=0)
    query, key = torch.zeros(2, size + 1, 2, dtype=torch.float64)
    query[:size] = _turned_back(back, angle)
    key[-1, 0] = 1
    value = one_hot.T * (2.0 * is_letter)
    beta = sufficient_beta(longest, gap, value_norm=2, readout_gap=1) if beta is None else beta
    return OneHead(embedding, query, key, value, one_hot.T, Rope(frequencies=[angle]), beta)


def t_retrieval(
    alphabet: int = 8, digits: int = 8, angle: float = 0.0027, longest: int = 17, beta: float | None = None
) -> OneHead:
    """A symbolic model, purely so at angle 0: a pair `xy` is replaced by the token that begins with `y`; a target stays.

    alphabet  letters
    digits    a letter and a digit make a target, two letters a pair
    angle     of the one plane, radians per position
    longest   most tokens of an input
    beta      inverse temperature; one that provably suffices unless given

    Letters are numbered and stand omega = 2 pi / alphabet apart on the circle. The key of a token is v turned back by its
    first letter, the query of a pair by its second letter, that of a target by its first. A key `d` positions back whose
    letter is k after the one sought gets the logit cos(k omega + d angle): the right one cos(d angle), any other at most
    cos(omega - d angle). With both distances below `longest` the right one is larger if 2 longest angle < omega (proof in
    `theory.retrieval_least`, with the exact gap). The value is the token itself, and there is no other output.

    Right wherever exactly one token begins with the letter sought. Where several do, hard attention takes the nearest
    if the angle is positive, by a lead of 1 - cos(angle) or more, too little for the default beta; without turning, they
    share.

    Raises ValueError if a size is below 1 or the angle is too large for the length.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import LetterTask
    >>> model, ids = rs.t_retrieval(angle=0.0), torch.from_numpy(LetterTask().sample(64, seed=0).tokens)
    >>> answers = model(ids, on_heads=lambda _, heads: print(rs.swap_scores(rs.layer_logits(heads)).symbolic.min() > 0.9999))
    tensor(True)
    """
    _require_sizes(alphabet=alphabet - 1, digits=digits, longest=longest)
    omega = 2 * math.pi / alphabet
    if not 0 <= angle < omega / (2 * longest):
        raise ValueError(
            f"angle must be at least 0 and below 2 pi / alphabet / (2 longest) = {omega / (2 * longest):.6g}, not {angle}: "
            f"a place would count as much as a letter"
        )
    first, sought = letters_of_pairs(alphabet, digits)
    one_hot = torch.eye(len(first), dtype=torch.float64)
    gap = retrieval_least(longest, angle, alphabet) if longest > 1 else 1.0
    beta = sufficient_beta(longest, gap, value_norm=1, readout_gap=1) if beta is None else beta
    query, key = _turned_back(sought, omega), _turned_back(first, omega)
    return OneHead(one_hot, query, key, one_hot, 0 * one_hot, Rope(frequencies=[angle]), beta)


def uniform_retrieval(alphabet: int = 8, digits: int = 8) -> OneHead:
    """A model that solves retrieval with uniform attention: all positions have the same weight, and the read-out searches.

    The output of attention is the relative frequency of each token. The position itself adds 1 to every token that begins
    with the letter it seeks. Of those, the one that occurs has more than 1, the others have 1, and no other token has more
    than 1 - 1/n. So it is right at every length and temperature where one token begins with the letter sought, though its
    logits are constant: such a head is positional as much as symbolic. What a positional head cannot do is to put its weight
    on the right key.
    """
    _require_sizes(alphabet=alphabet - 1, digits=digits)
    first, sought = letters_of_pairs(alphabet, digits)
    one_hot = torch.eye(len(first), dtype=torch.float64)
    nothing = torch.zeros(len(first), 2, dtype=torch.float64)
    wanted = (sought[:, None] == first).double()
    return OneHead(one_hot, nothing, nothing, one_hot, wanted, Rope(frequencies=[0.0]), beta=1.0)


def letters_of_pairs(alphabet: int, digits: int) -> tuple[Int[Tensor, " V"], Int[Tensor, " V"]]:
    """First letter of every token of the letter task, and the letter that it seeks: its second, or a target's first."""
    letters = torch.arange(alphabet)
    first = torch.cat((letters.repeat_interleave(digits), letters.repeat_interleave(alphabet)))
    return first, torch.cat((letters.repeat_interleave(digits), letters.repeat(alphabet)))


# Canonical tasks


def h_pos(items: int = 16, symbols: int = 8, angle: float = 0.4, beta: float | None = None) -> OneHead:
    """A model that solves index by a purely positional head, in one plane: paper A's H_POS, with the ids of `IndexTask`.

    items    places of an input before the query
    symbols  letters
    angle    of the plane, radians per position
    beta     inverse temperature; one that provably suffices unless given

    The key of every letter is v, that of a query is nothing. The query j, which stands at place n = `items`, is v turned back
    by (n - j) angle, so place p gets the logit cos((p - j) angle), and the query's own place 0. The largest is 1, at p = j
    alone as long as d angle is no multiple of 2 pi for d = 1 ... n - 1. A letter's value is its one-hot; there is no other
    output.

    Raises ValueError if a size is below 1 or the angle makes two places look alike.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import IndexTask
    >>> samples = IndexTask(items=16, symbols=8).sample(256, seed=0)
    >>> answers = rs.h_pos()(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> bool((answers == torch.from_numpy(samples.answer)).all())
    True
    """
    _require_sizes(items=items, symbols=symbols)
    gap = min(1.0, float(index_gaps(items - 1, angle)[-1])) if items > 1 else 1.0
    if not gap > SMALLEST_GAP:
        raise ValueError(
            f"angle {angle} turns some distance below items = {items} by a multiple of 2 pi, so two places look alike: "
            f"choose another angle"
        )
    size, places = symbols + items, torch.arange(items)
    query, key = torch.zeros(2, size, 2, dtype=torch.float64)
    query[symbols:] = _turned_back(items - places, angle)
    key[:symbols, 0] = 1
    value = torch.eye(size, symbols, dtype=torch.float64)
    return _canonical(query, key, value, [angle], items, gap, beta)


def h_sym(items: int = 16, symbols: int = 16, attributes: int = 8, angle: float = 0.0, beta: float | None = None) -> OneHead:
    """A model that solves retrieval by a head that is purely symbolic at angle 0, in one plane: paper A's H_SYM.

    items       pairs of an input before the query
    symbols     first parts of pairs, which the query names
    attributes  second parts, which are the answers
    angle       of the plane, radians per position
    beta        inverse temperature; one that provably suffices unless given

    Ids are those of `RetrievalTask`. Symbols are omega = 2 pi / symbols apart on the circle; the key of a pair is that of its
    symbol, the key of a query zero. The query of a symbol has the symbol's direction, turned so that it meets its key at the
    middle c = (n - 1) / 2 of the input: the pair at place p whose symbol is k after the one sought gets the logit cos(k omega
    + (c - p) angle). At angle 0 the right pair has 1, any other at most cos omega, the query itself 0. While (n - 1) angle <
    omega the right pair still wins (`theory.aimed_gap`). The value of a pair is its attribute.

    Raises ValueError if a size is below 1 or the angle is too large for the number of items.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import RetrievalTask
    >>> samples = RetrievalTask(items=16, symbols=16, attributes=8).sample(256, seed=0)
    >>> answers = rs.h_sym()(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> bool((answers == torch.from_numpy(samples.answer)).all())
    True
    """
    _require_sizes(items=items, symbols=symbols - 1, attributes=attributes)
    omega = 2 * math.pi / symbols
    if not 0 <= (items - 1) * angle < omega:
        raise ValueError(
            f"angle must be at least 0 and below 2 pi / symbols / (items - 1), not {angle}: "
            f"a place would count as much as a symbol"
        )
    circle = _turned_back(torch.arange(symbols), omega)
    # The query stands n places behind the first item, (n + 1) / 2 behind the middle.
    query = Rope(frequencies=[angle]).rotate(circle, -(items + 1) / 2)
    key, value = _pairs(circle, attributes)
    query = torch.cat((torch.zeros_like(key[: symbols * attributes]), query))
    return _canonical(query, key, value, [angle], items, aimed_gap(items, symbols, angle), beta)


def h_mix(
    items: int = 16, symbols: int = 12, attributes: int = 8, angle: float | None = None, beta: float | None = None
) -> OneHead:
    """A model that solves partial induction in two planes, one that never turns and one of a moderate angle: paper A's H_MIX.

    Ids are those of `PartialInductionTask`; arguments as for `h_sym`, `angle` that of the second plane. The first plane
    matches symbols as in `h_sym`, with weight c. In the second every pair has the key v, and the query is turned so that
    place p gets sin((p - (n - 1) / 2) angle), which rises with p as long as (n - 1) angle <= pi. Of two pairs that match,
    the later one wins, by at least g, the smallest rise from a place to the next. A pair that does not match is at most R
    ahead by its place, R the whole rise, and c (1 - cos omega) behind by its symbol: with c = (R + g) / (1 - cos omega), or
    R / 2 + g if that is more, every other pair, and the query itself with its logit 0, is at least g behind the right one
    (`theory.latest_gap`). The default angle is pi / (2 n).

    Raises ValueError if a size is below 1 or the angle is not above 0 and at most pi / (items - 1).

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import PartialInductionTask
    >>> samples = PartialInductionTask(items=16, symbols=12, attributes=8).sample(256, seed=0)
    >>> answers = rs.h_mix()(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> bool((answers == torch.from_numpy(samples.answer)).all())
    True
    """
    _require_sizes(items=items, symbols=symbols - 1, attributes=attributes)
    angle = math.pi / (2 * items) if angle is None else angle
    if not 0 < (items - 1) * angle <= math.pi:
        raise ValueError(
            f"angle must be above 0 and at most pi / (items - 1) = {math.pi / max(1, items - 1):.6g}, not {angle}: "
            f"the latest place would not stand out"
        )
    omega, gap, rise = 2 * math.pi / symbols, latest_gap(items, angle), 2 * math.sin((items - 1) * angle / 2)
    weight = max((rise + gap) / (1 - math.cos(omega)), rise / 2 + gap)
    circle = _turned_back(torch.arange(symbols), omega)
    towards = math.pi / 2 - (items + 1) / 2 * angle  # sin(x) = cos(pi / 2 - x), and the middle is (n + 1) / 2 before the query
    late = torch.tensor([math.cos(towards), math.sin(towards)], dtype=torch.float64).expand(symbols, 2)
    always = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(symbols, 2)
    key, value = _pairs(_planes(circle, always), attributes)
    query = torch.cat((torch.zeros_like(key[: symbols * attributes]), _planes(weight * circle, late)))
    return _canonical(query, key, value, [0.0, angle], items, gap, beta)


def h_single(
    items: int = 16,
    symbols: int = 12,
    attributes: int = 8,
    angle: float | None = None,
    aim: float | None = None,
    beta: float | None = None,
) -> OneHead:
    """A model that solves partial induction in one plane of one small angle: a construction of our own.

    Paper A's corollary 1, as far as we know it, excludes this for pure heads; this head is symbolic on most inputs only.

    Ids are those of `PartialInductionTask`; arguments as for `h_sym`, and `aim` in radians. Symbols stand omega apart as in
    `h_sym`, but the query is turned by `aim` away from its symbol's keys, against the sense in which the plane turns. A pair
    d places before the last one whose symbol is k after the one sought gets cos(k omega + aim + d angle): a match loses with
    every place that it lies further back, and still beats all other symbols while 2 aim + (2 n - 3) angle < omega. So the
    latest match wins. Its lead is small, `theory.single_gap`, so it needs a low temperature, which a
    second plane would avoid. Unless given, angle and aim are those with the largest lead.

    Raises ValueError if a size is below 1, or angle and aim let a place count as much as a symbol.

    >>> import torch, ropescope as rs
    >>> from ropescope.tasks import PartialInductionTask
    >>> samples = PartialInductionTask(items=16, symbols=12, attributes=8).sample(256, seed=0)
    >>> answers = rs.h_single()(torch.from_numpy(samples.tokens))[:, -1].argmax(-1)
    >>> bool((answers == torch.from_numpy(samples.answer)).all())
    True
    """
    _require_sizes(items=items - 1, symbols=symbols - 1, attributes=attributes)
    best = single_best(items, symbols)
    angle, aim = best.angle if angle is None else angle, best.aim if aim is None else aim
    omega, gap = 2 * math.pi / symbols, single_gap(items, symbols, angle, aim)
    if not (angle > 0 and aim >= 0 and gap > SMALLEST_GAP):
        raise ValueError(
            f"angle must be positive, aim not negative, and 2 aim + (2 items - 3) angle below 2 pi / symbols = {omega:.6g}, "
            f"not {angle} and {aim}: a place would count as much as a symbol"
        )
    circle = _turned_back(torch.arange(symbols), omega)
    query = Rope(frequencies=[1.0]).rotate(circle, aim - angle)  # d = 0 is one place before the query
    key, value = _pairs(circle, attributes)
    query = torch.cat((torch.zeros_like(key[: symbols * attributes]), query))
    return _canonical(query, key, value, [angle], items, gap, beta)


def _pairs(symbol_keys: Float[Tensor, "K d"], attributes: int) -> tuple[Float[Tensor, "V d"], Float[Tensor, "V answers"]]:
    """Keys and values of all tokens of a pair task: a pair has the key of its symbol and the value of its attribute."""
    symbols = len(symbol_keys)
    key = torch.cat((symbol_keys.repeat_interleave(attributes, 0), torch.zeros_like(symbol_keys)))
    value = torch.eye(attributes, dtype=torch.float64).repeat(symbols, 1)
    return key, torch.cat((value, torch.zeros(symbols, attributes, dtype=torch.float64)))


def _planes(first: Float[Tensor, "K 2"], second: Float[Tensor, "K 2"]) -> Float[Tensor, "K 4"]:
    """Vectors of two planes as `Rope` pairs dimensions: 0 with 2, 1 with 3."""
    return torch.stack((first, second), -1).flatten(1)


def _canonical(
    query: Float[Tensor, "V d"],
    key: Float[Tensor, "V d"],
    value: Float[Tensor, "V answers"],
    angles: list[float],
    items: int,
    gap: float,
    beta: float | None,
) -> OneHead:
    """The model with these tables: n items and the query make n + 1 keys; values are one-hot, so the read-out leads by 1."""
    beta = sufficient_beta(items + 1, gap, value_norm=1, readout_gap=1) if beta is None else beta
    one_hot = torch.eye(len(query), dtype=torch.float64)
    return OneHead(one_hot, query, key, value, 0 * value, Rope(frequencies=angles), beta)


def _require_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            least = 2 if name == "alphabet" else 1
            raise ValueError(f"{name} must be at least {least}, not {size + least - 1}")
