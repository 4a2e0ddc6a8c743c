"""The state store: the contract, the commit as a value, and the policy that every backend shares."""
