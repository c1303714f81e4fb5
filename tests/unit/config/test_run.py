"""Times as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from rltrain.config.run import RunConfig

HOURS = timedelta(hours=4)


@pytest.mark.parametrize("value", [14400, 14400.0, "04:00:00", "PT4H", HOURS])
def test_a_time_is_seconds_or_hours_or_as_iso_8601_has_it(value: object) -> None:
    assert RunConfig.model_validate({"steps": 1, "max_wall_time": value}).max_wall_time == HOURS


@pytest.mark.parametrize("value", [0, -5, 0.5, 1e9, 1e300, float("nan"), "", "four hours", "-PT4H", "P2000D", True, []])
def test_what_is_no_time_or_out_of_range_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        RunConfig.model_validate({"steps": 1, "max_wall_time": value})


def test_it_is_dumped_as_it_can_be_read() -> None:
    run = RunConfig.model_validate({"steps": 1, "max_wall_time": 14400})
    assert RunConfig.model_validate(run.model_dump(mode="json")) == run
