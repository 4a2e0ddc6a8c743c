"""The documentation site: pages of docs/, a reference made from the code, search without a network. See `__main__`."""
