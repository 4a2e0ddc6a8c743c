"""An independent, slow and obvious model of the StateStore contract, and random walks that compare a store with it.

Must not import `stores.base` or `state`'s merge: an oracle that shares code with a store repeats its mistakes.
"""
