"""What watches runs and can never hold one: ledger, metrics and logs."""
