"""What a request asks a model for, in the words of OpenTelemetry's conventions.

``chat``, ``text_completion`` and ``embeddings`` are theirs (``gen_ai.operation.name``), whichever
API's path it is; the conventions leave it to us to name what they have no word for. The words are
few, since they are values of a metric's label.
"""

from collections.abc import Mapping
from types import MappingProxyType

CHAT = "chat"
OTHER = "other"

_BY_PATH: Mapping[str, str] = MappingProxyType(
    {
        "/chat/completions": CHAT,
        "/messages": CHAT,
        "/responses": CHAT,
        "/completions": "text_completion",
        "/embeddings": "embeddings",
        "/audio/speech": "speech",
        "/audio/transcriptions": "transcription",
        "/audio/translations": "translation",
        "/classify": "classify",
        "/images/generations": "image",
        "/moderations": "moderation",
        "/rerank": "rerank",
        "/score": "score",
    }
)


def operation_of(path: str) -> str:
    """The operation that a path (behind ``/v1``, without its query) stands for."""
    return _BY_PATH.get(path, OTHER)
