"""The base of every config section: frozen, and closed to keys it does not know."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

LEAST_FLOAT = 1e-30
"""Least size of a number that isn't 0: models compute in float32, which has nothing below 1e-38."""

Seconds = Annotated[float, Field(ge=0.01, le=30 * 24 * 3600)]
"""A time limit: 10 ms to 30 days."""


class Section(BaseModel):
    """A read-only mapping of the YAML file; an unknown key, a wrong type or a repeated key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @field_validator("*")
    @classmethod
    def _has_a_float32(cls, value: Any) -> Any:
        if isinstance(value, float) and 0 < abs(value) < LEAST_FLOAT:
            raise ValueError(f"must be 0 or at least {LEAST_FLOAT:g}")
        return value
