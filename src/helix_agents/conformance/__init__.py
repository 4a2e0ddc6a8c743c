"""The conformance kit: what every backend must do, as checks that you can run on your own store.

Write a `Harness` (see `harness.py`), then either `test_my_store = conformance_tests(MyHarness)` in a test file (see
`pytest.py`) or `helix conformance module:MyHarness` (see `run.py`). It imports contracts and core, never a backend.
"""
