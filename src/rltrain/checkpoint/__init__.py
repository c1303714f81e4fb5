"""A run's saved steps on disk: whole ones only, found again after whatever ended the run.

`steps`, `manifest` and `retention` load no torch.
"""
