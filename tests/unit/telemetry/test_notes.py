from rltrain.telemetry.notes import truncation_note


def test_a_note_says_what_it_means_that_every_sample_ends_by_length() -> None:
    note = truncation_note({"response/truncated": 1.0}, max_tokens=4)
    assert note is not None
    assert "every sample ended by length (rollout.max_tokens: 4)" in note
    assert "raise rollout.max_tokens" in note


def test_there_is_no_note_where_some_samples_end_by_themselves() -> None:
    assert truncation_note({"response/truncated": 0.99}, max_tokens=4) is None
    assert truncation_note({}, max_tokens=4) is None
