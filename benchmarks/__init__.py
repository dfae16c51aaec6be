"""What the gateway costs, measured beside floors in the same run (see README.md)."""
