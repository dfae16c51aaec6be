"""From a decoded chat request to the contract that its answer must keep."""

from types import MappingProxyType
from typing import Any

from edge.core.contract import Contract, ResponseFormat, Tool
from edge.core.xml_completion import tools_in_prompt
from edge.wire.openai_chat import ChatRequest
from edge.wire.openai_demands import FunctionSpec, ResponseFormatSpec

_NO_SCHEMA: MappingProxyType[str, Any] = MappingProxyType({})


def contract_of(
    request: ChatRequest, *, xml_completion_tool: str = "", strict: bool = False
) -> Contract:
    """What ``request`` obliges its answer to be.

    Args:
        request: the client's request.
        xml_completion_tool: of the run's output policy.
        strict: of the run's output policy.
    """
    choice = request.tool_choice
    return Contract(
        tools=MappingProxyType({spec.name: _tool(spec) for spec in request.tools}),
        tool_choice=choice.mode,
        allowed=frozenset(choice.names),
        parallel=request.parallel_tool_calls,
        response_format=_response_format(request.response_format),
        xml_completion_tool=xml_completion_tool,
        xml_tools=tools_in_prompt(request.messages) if xml_completion_tool else frozenset(),
        strict=strict,
    )


def _tool(spec: FunctionSpec) -> Tool:
    return Tool(
        name=spec.name,
        parameters=_NO_SCHEMA if spec.parameters is None else spec.parameters,
        description=spec.description or "",
        strict=bool(spec.strict),
    )


def _response_format(spec: ResponseFormatSpec | None) -> ResponseFormat | None:
    return None if spec is None else ResponseFormat(spec.kind, spec.schema, spec.name)
