import numpy as np
import pytest

from rltrain.types.batch import Ragged


def test_rows_come_back_as_they_went_in():
    rows = [np.array([1, 2]), np.array([], dtype=np.int64), np.array([3])]
    ragged = Ragged.of(rows, np.int32)
    assert [ragged[i].tolist() for i in range(len(ragged))] == [[1, 2], [], [3]]
    assert ragged.lengths.tolist() == [2, 0, 1]


def test_sums_of_empty_rows_are_zero():
    ragged = Ragged.of([np.array([]), np.array([1.5, 2.5]), np.array([])], np.float32)
    assert ragged.sums().tolist() == [0.0, 4.0, 0.0]


def test_no_rows():
    assert len(Ragged.of([], np.int32)) == 0


def test_offsets_that_do_not_span_the_values_are_refused():
    with pytest.raises(ValueError, match="span"):
        Ragged(np.zeros(3), np.array([0, 2]))
