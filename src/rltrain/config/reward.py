"""`reward:` named reward functions, each a variant with its own knobs, added up by weight."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from rltrain.config.section import Seconds, Section


class RewardFunction(Section):
    weight: float = Field(default=1.0, ge=-1e6, le=1e6)
    """Factor of this part in the sample's reward."""


class Exact(RewardFunction):
    """1 where the response equals the label, else 0."""

    kind: Literal["exact"] = "exact"
    strip: bool = True
    """Ignore white space around both."""


class PrefixMatch(RewardFunction):
    """Share of the label's characters that the response has at the same place."""

    kind: Literal["prefix_match"] = "prefix_match"


class LastNumber(RewardFunction):
    """1 where the last number in the response equals the label's number, else 0."""

    kind: Literal["last_number"] = "last_number"


class Math(RewardFunction):
    """1 where the last `\\boxed{}` (or the final answer) equals the label as mathematics, by math-verify, else 0.

    Exact numbers are compared exactly. A decimal may differ from what it stands for by 2e-6 of it and by less than its
    last digit. A box that was never closed, and different answers side by side (`12 or 13`), are wrong where the label
    is one number.
    """

    kind: Literal["math"] = "math"


class Custom(RewardFunction):
    """A function of the user's own, in a worker process that is killed when it is late."""

    kind: Literal["custom"] = "custom"
    function: str = Field(pattern=r"^[\w.]+:[A-Za-z_]\w*$")
    """`module:function`; the config file's directory is searched too."""
    per: Literal["sample", "group"] = "sample"
    """Called once a sample (returns a number) or once a group (returns a number for each sample). Numbers are finite
    ints, floats, bools (as 0 and 1) and scalars of numpy or torch; with anything else, as with an exception, the sample
    fails (status `reward_error`) and is masked."""
    value_key: str | None = None
    """Which key of a returned dict is the reward; the others become `reward/<part>/<key>` metrics."""
    kwargs: dict[str, JsonValue] = {}
    """Further keyword arguments of every call."""


RewardPart = Annotated[Exact | PrefixMatch | LastNumber | Math | Custom, Field(discriminator="kind")]


class RewardConfig(Section):
    parts: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], RewardPart] = Field(min_length=1)
    """Reward functions by the name that they have in metrics; the reward is their weighted sum."""
    workers: int = Field(default=1, ge=1, le=1024)
    """Processes for each `math` or `custom` part."""
    timeout_s: Seconds = 10.0
    """Longest a sample (with `per: group` a group) may take; then its worker is killed and replaced, and it masked."""
    max_failed_share: float = Field(default=0.5, ge=0, le=1)
    """Stop the run when more of a step's samples than this fail in generation or reward."""
