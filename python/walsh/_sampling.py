"""Types of the arguments that say how tokens are chosen."""
# Written by tools/sampling_table.cpp.
from typing import Mapping, Optional, Sequence, TypedDict


class SamplingOptions(TypedDict, total=False):
    """What is None or not given is what the model's files say, else the default."""

    #: Randomness; 0: always the best token (0 to 1000) [0.8]
    temperature: Optional[float]
    #: The temperature varies by this much, with the entropy of the tokens; 0: it is fixed (0 to
    #: 1000) [0]
    dynatemp_range: Optional[float]
    #: Power of the entropy's share of its maximum by which that temperature grows (0 to 100) [1]
    dynatemp_exponent: Optional[float]
    #: Keep the k best tokens; 0 and -1: all (a whole number of at least -1) [40]
    top_k: Optional[int]
    #: Keep the fewest tokens with this total probability; 1: all (0 to 1) [0.95]
    top_p: Optional[float]
    #: Keep tokens with at least this share of the best one's probability; 0: all (0 to 1) [0.05]
    min_p: Optional[float]
    #: Divides the positive logits of earlier tokens, also of the prompt; 1: none (1e-06 to 1000)
    #: [1]
    repeat_penalty: Optional[float]
    repetition_penalty: Optional[float]
    #: Latest tokens that repeat_penalty covers; 0: none, -1: all (a whole number of at least -1)
    #: [-1]
    repeat_last_n: Optional[int]
    #: Subtracted from the logits of generated tokens, once (-100 to 100) [0]
    presence_penalty: Optional[float]
    #: Subtracted from the logits of generated tokens, once per occurrence (-100 to 100) [0]
    frequency_penalty: Optional[float]
    #: Keep the most typical tokens with this total probability; 1: all (0 to 1) [1]
    typical_p: Optional[float]
    #: Keep tokens within so many standard deviations of the best logit; -1 and 0: all (-1 to 1000)
    #: [-1]
    top_n_sigma: Optional[float]
    #: How often all tokens above xtc_threshold except the least probable are dropped; 0: never (0
    #: to 1) [0]
    xtc_probability: Optional[float]
    #: The least probability of the tokens that xtc_probability may drop (0 to 1) [0.1]
    xtc_threshold: Optional[float]
    #: Penalty for continuing a repeated sequence; 0: none (0 to 1000) [0]
    dry_multiplier: Optional[float]
    #: Growth of that penalty per token of the sequence (1 to 1000) [1.75]
    dry_base: Optional[float]
    #: Sequences of up to this many tokens may be repeated (a whole number of at least 1) [2]
    dry_allowed_length: Optional[int]
    #: Latest tokens in which repetitions are looked for; 0: none, -1: all (a whole number of at
    #: least -1) [-1]
    dry_penalty_last_n: Optional[int]
    #: Texts that end a sequence; the flag once for each of them; none alone: no text (a list of
    #: texts) [line feed, colon, quotation mark, asterisk]
    dry_sequence_breakers: Optional[Sequence[str]]
    #: The sampling steps in their order; a step that is not named is skipped (a list of steps)
    #: [penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    samplers: Optional[Sequence[str]]
    #: Added to the logits of tokens, by their ids; as a flag 15043+1 or 15043-inf, once for each
    #: (for each token -100 to 100) [none]
    logit_bias: Optional[Mapping[int, float]]
    #: The same seed gives the same text again (a whole number of at least 0; -1: random) [random]
    seed: Optional[int]
    #: Continue after the token that ends a text (true, false) [false]
    ignore_eos: Optional[bool]
