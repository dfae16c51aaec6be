"""An OpenAI-compatible gateway whose answers are right and where nothing runs for nobody."""

__version__ = "0.1.0"
