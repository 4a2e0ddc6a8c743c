"""What SQLite, Postgres, D1 and Durable Objects share."""
