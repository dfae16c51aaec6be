"""What several tests draw from."""

from hypothesis import strategies as st

KEYS = st.sampled_from(
    [
        *("choices", "index", "delta", "message", "content", "role", "tool_calls", "function"),
        *("finish_reason", "error", "code", "detail", "type", "object", "usage", "failed: x", "x"),
    ]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
"""JSON trees whose keys mean something in a provider's chunk."""
