"""What watches runs and can never hold one: ledger and logs."""
