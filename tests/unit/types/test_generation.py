import pickle

import numpy as np

from rltrain.types.generation import Completion, GenerateResult
from rltrain.types.sample import FinishReason, VersionSpan


def completion(index: int, ids: list[int]) -> Completion:
    return Completion(
        index=index,
        token_ids=np.array(ids, np.int32),
        logprobs=-np.arange(len(ids), dtype=np.float32),
        finish_reason=FinishReason.STOP if ids else FinishReason.NO_ROOM,
        version_spans=(VersionSpan(3, 0, len(ids)),) if ids else (),
    )


def test_a_result_crosses_processes_whole():
    result = GenerateResult(
        request_id="r", completions=(completion(0, [1, 2, 3]), completion(1, []), completion(2, [4]))
    )
    found = pickle.loads(pickle.dumps(result))  # noqa: S301
    assert found.request_id == "r" and found.error is None
    for before, after in zip(result.completions, found.completions, strict=True):
        assert after.token_ids.tolist() == before.token_ids.tolist()
        assert after.logprobs.tolist() == before.logprobs.tolist()
        assert after.token_ids.dtype == np.int32 and after.logprobs.dtype == np.float32
        assert (after.index, after.finish_reason, after.version_spans) == (
            before.index,
            before.finish_reason,
            before.version_spans,
        )


def test_an_error_crosses_processes_too():
    found = pickle.loads(pickle.dumps(GenerateResult(request_id="r", error="too long")))  # noqa: S301
    assert (found.completions, found.error) == ((), "too long")
