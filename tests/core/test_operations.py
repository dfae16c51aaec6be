"""Paths have the names of the conventions for what they ask of a model."""

import pytest

from edge.core.operations import operation_of


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/chat/completions", "chat"),
        ("/responses", "chat"),
        ("/completions", "text_completion"),
        ("/embeddings", "embeddings"),
        ("/rerank", "rerank"),
        ("/made/up/by/a/client", "other"),
    ],
)
def test_a_path_has_one_of_few_names(path: str, operation: str) -> None:
    assert operation_of(path) == operation
