"""rltrain: a CLI-first trainer for RLHF and RL with verifiable rewards."""

__version__ = "0.1.0"
