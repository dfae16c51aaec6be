"""What a request obliges the answer to be: the tools it offers and the shape it asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

ToolChoice: TypeAlias = Literal["auto", "none", "required", "named"]


@dataclass(frozen=True, slots=True)
class Tool:
    """One offered function.

    Attributes:
        parameters: its JSON Schema as the client sent it (``{}`` where it sent none).
        strict: the client's ``strict`` flag.
    """

    name: str
    parameters: Mapping[str, Any]
    description: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """``response_format``: ``schema`` is None for json_object (any JSON object will do)."""

    kind: Literal["json_object", "json_schema"]
    schema: Mapping[str, Any] | None = None
    name: str = ""


NO_TOOLS: Mapping[str, Tool] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Contract:
    """What the answer must keep.

    Attributes:
        tools: offered tools by name, in the client's order.
        tool_choice: ``named`` when the client demands one of ``allowed``.
        allowed: names that may be called; empty means every offered tool.
        parallel: whether more than one call is allowed.
        response_format: demanded shape of the text, or None.
        xml_completion_tool: name of the tool that a plain-text answer is wrapped in
            (agents whose tools are XML in the prompt), or empty.
        xml_tools: names of the tools that the prompt describes as XML, where they are known.
        strict: whether text beside what was demanded makes the answer invalid.
    """

    tools: Mapping[str, Tool] = field(default_factory=lambda: NO_TOOLS)
    tool_choice: ToolChoice = "auto"
    allowed: frozenset[str] = frozenset()
    parallel: bool = True
    response_format: ResponseFormat | None = None
    xml_completion_tool: str = ""
    xml_tools: frozenset[str] = frozenset()
    strict: bool = False

    @property
    def demands_nothing(self) -> bool:
        """Whether any text at all keeps this contract."""
        return not self.tools and self.response_format is None and not self.xml_completion_tool
