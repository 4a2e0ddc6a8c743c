"""Where agents live: executor, stores and server put together for one engine. The loop itself exists once."""
