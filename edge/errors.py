"""Every failure that a client can be told about, as one tree.

    EdgeError                       status  type
    ├── ClientError                         the request is at fault; another try changes nothing
    │   ├── InvalidRequest          400     invalid_request_error
    │   ├── Unauthorized            401     authentication_error
    │   ├── Forbidden               403     permission_error
    │   ├── NotFound                404     not_found_error
    │   ├── ModelNotFound           404     model_not_found
    │   ├── NoPath                  404     invalid_request_error: not for this model
    │   ├── MethodNotAllowed        405     invalid_request_error
    │   ├── RequestTimeout          408     invalid_request_error
    │   └── RequestTooLarge         413     invalid_request_error
    ├── Busy                                nobody is at fault; later it may work (Retry-After)
    │   ├── RateLimited             429     rate_limit_error
    │   └── Overloaded              503     overloaded_error
    ├── ProviderError               502     run_error: one attempt failed at a provider
    │   ├── ProviderUnreachable             no byte of an answer came
    │   ├── ProviderRefused                 it answered with an error status (kept for 4xx)
    │   ├── ProviderProtocolError           what it sent is no sound answer
    │   ├── ProviderStreamError             an error object inside a 200
    │   └── ProviderTimeout         504     run_timeout: connect, first token or idle deadline
    ├── ModelError                          the model's output does not keep the request's contract
    │   ├── ToolValidationError     502     tool_validation_error
    │   ├── OutputValidationError   502     output_validation_error
    │   └── ToolValidationRetryError 502    tool_validation_retry_error: no sound path for a retry
    ├── RunTimeout                  504     run_timeout
    ├── RunCancelled                499     run_cancelled: somebody cancelled the run by its id
    └── GatewayFault                500     server_error: a bug of ours

Anything that is not an :class:`EdgeError` is a bug; its text never reaches a client.
"""

from collections.abc import Sequence
from typing import Any, ClassVar


class EdgeError(Exception):
    """A failure with an HTTP status and an OpenAI-shaped body.

    Attributes:
        status: the HTTP status while headers are still open.
        type: ``error.type`` of the body.
        code: ``error.code`` of the body, or None.
        param: path of the offending value (``messages[2].tool_calls[0].id``), or None.
        retry_after_s: what ``Retry-After`` says, or None.
        again: whether another *attempt* of the same run may succeed.
        spent: whether attempts of ours were spent; the client is then told not to retry
            (``x-should-retry: false``).
    """

    status: int = 500
    type: str = "server_error"
    again: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        spent: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s
        self.spent = spent

    def body(self) -> dict[str, Any]:
        """The OpenAI error object, ``{"error": {"message", "type", "param", "code"}}``."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


class ClientError(EdgeError):
    """The request is at fault."""

    status = 400
    type = "invalid_request_error"


class InvalidRequest(ClientError):
    """Malformed or contradictory input; ``param`` names the place."""


class Unauthorized(ClientError):
    """No key, or an unknown one."""

    status = 401
    type = "authentication_error"


class Forbidden(ClientError):
    """A known key that may not do this."""

    status = 403
    type = "permission_error"


class NotFound(ClientError):
    """Nothing lives at this address."""

    status = 404
    type = "not_found_error"


class ModelNotFound(ClientError):
    """No route serves this model name."""

    status = 404
    type = "model_not_found"


class NoPath(ClientError):
    """The model is served, but by no provider that can serve this kind of request.

    So OpenAI's own API answers where a model is asked for at an endpoint it does not have.
    """

    status = 404


class MethodNotAllowed(ClientError):
    """The address exists, the method does not."""

    status = 405


class RequestTimeout(ClientError):
    """The client did not finish sending its request in time."""

    status = 408


class RequestTooLarge(ClientError):
    """The body is longer than ``server.max_body_bytes``."""

    status = 413


class Busy(EdgeError):
    """No room now; ``retry_after_s`` says when to come back."""

    status = 503
    type = "overloaded_error"


class RateLimited(Busy):
    """This key has used up its share."""

    status = 429
    type = "rate_limit_error"


class Overloaded(Busy):
    """The gateway or every provider of the route is full or down."""


class ProviderError(EdgeError):
    """One attempt failed at a provider; another one may succeed."""

    status = 502
    type = "run_error"
    again: ClassVar[bool] = True

    def __init__(self, message: str, *, provider: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.provider = provider


class ProviderUnreachable(ProviderError):
    """The connection could not be made, or broke before a byte of the answer came."""


class ProviderRefused(ProviderError):
    """The provider answered with an error status.

    A 4xx that speaks about the request keeps its status and body on the way to the client.

    Attributes:
        upstream_status: the provider's status.
        upstream_body: its body as it came (bounded).
        upstream_type: its content type.
        upstream_headers: its end-to-end headers, where it may be passed on as it is; else None.
    """

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int,
        upstream_body: bytes = b"",
        upstream_type: str = "",
        upstream_headers: Sequence[tuple[bytes, bytes]] | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message, **details)
        self.upstream_status = upstream_status
        self.upstream_body = upstream_body
        self.upstream_type = upstream_type
        self.upstream_headers = upstream_headers


class ProviderProtocolError(ProviderError):
    """Broken framing, broken JSON, HTML, or an answer that stops before its end."""


class ProviderStreamError(ProviderError):
    """The provider sent an error object inside a 200."""


class ProviderTimeout(ProviderError):
    """The connect, first-token or idle deadline passed."""

    status = 504
    type = "run_timeout"


class ModelError(EdgeError):
    """The model's output does not keep what the request asked for."""

    status = 502
    again: ClassVar[bool] = True


class ToolValidationError(ModelError):
    """Tool calls that are no sound calls of the offered tools."""

    type = "tool_validation_error"


class OutputValidationError(ModelError):
    """Text that breaks ``response_format`` or ``strict``."""

    type = "output_validation_error"


class ToolValidationRetryError(ModelError):
    """A retry was due and no provider offered a path on which it can be validated."""

    type = "tool_validation_retry_error"
    again: ClassVar[bool] = False


class RunTimeout(EdgeError):
    """``run_timeout_s`` passed."""

    status = 504
    type = "run_timeout"


class RunCancelled(EdgeError):
    """The run was cancelled by its id, or cut when the server's drain time was over."""

    status = 499
    type = "run_cancelled"


class GatewayFault(EdgeError):
    """A bug of ours; the message is generic."""


def forget_frames(error: BaseException) -> None:
    """Take the tracebacks off an error that has been dealt with, and off what it came from.

    Frames know the run and the run knows its error: with tracebacks every failure would leave a
    cycle of references, with everything the run held in it, for the collector to find.
    """
    left: list[BaseException] = [error]
    for each in left:
        each.__traceback__ = None
        found: list[BaseException | None] = [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            found += each.exceptions
        left += [one for one in found if one is not None and one not in left]
