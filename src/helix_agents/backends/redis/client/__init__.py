"""Connections to Redis servers, and what their errors mean."""
