"""Unit tests of tidegate_bench: `python3 -m unittest` in `bench`."""
