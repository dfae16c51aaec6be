"""Keys for tests of who may see what; tests set the variables."""

OPERATIONS_AND_TEAM = """
[[keys]]
name = "operations"
key = "env:EDGE_TEST_OPERATIONS"
observe = true
[[keys]]
name = "team"
key = "env:EDGE_TEST_TEAM"
"""
"""One key that may observe, and one that sees its own runs alone."""
