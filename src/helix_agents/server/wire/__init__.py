"""What streams look like on the wire: frames and formats."""
