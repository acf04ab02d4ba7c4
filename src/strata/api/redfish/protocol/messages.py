"""What the service says in ``@Message.ExtendedInfo``: the standard's Base messages that are used, and Strata's own.

One table serves both the answers and the registry that clients look messages up in.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

Json = dict[str, Any]
Grade = Literal["OK", "Warning", "Critical"]

BASE = "Base.1.18"
STRATA = "Strata.1.0"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a registry; ``%1`` and so on stand for its arguments."""

    text: str
    severity: Grade = "Warning"
    resolution: str = "None."


def _read(text: str) -> dict[str, Template]:
    """Messages by key: a key (and a severity other than Warning), its text, its resolution. What is indented further
    goes on with the line before."""
    found = {}
    for key, severity, message, resolution in re.findall(
        r"^(\w+)(?:, (\w+))?\n    (\S.*(?:\n        .*)*)\n    (\S.*(?:\n        .*)*)$", text, re.MULTILINE
    ):
        said, advice = (part.replace("\n        ", " ") for part in (message, resolution))
        found[key] = Template(text=said, severity=severity or "Warning", resolution=advice)
    return found


BASE_MESSAGES = _read("""
GeneralError
    A general error has occurred.  See Resolution for information on how to resolve the error, or
        @Message.ExtendedInfo if Resolution is not provided.
    None.
InternalError, Critical
    The request failed due to an internal service error.  The service is still operational.
    Look for the X-Request-Id of the answer in the service's log.
MalformedJSON, Critical
    The request body submitted was malformed JSON and could not be parsed by the receiving service.
    Ensure that the request body is valid JSON and resubmit the request.
UnrecognizedRequestBody
    The service detected a malformed request body that it was unable to interpret.
    Send a JSON object as application/json.
NoOperation
    The request body submitted contain no data to act upon and no changes to the resource took place.
    Add properties in the JSON object and resubmit the request.
PropertyUnknown
    The property %1 is not in the list of valid properties for the resource.
    Remove the unknown property from the request body and resubmit the request.
PropertyNotWritable
    The property %1 is a read-only property and cannot be assigned a value.
    Remove the property from the request body and resubmit the request.
PropertyMissing
    The property %1 is a required property and must be included in the request.
    Include the property in the request body with a valid value and resubmit the request.
PropertyValueTypeError
    The value '%1' for the property %2 is not a type that the property can accept.
    Correct the value for the property in the request body and resubmit the request.
PropertyValueNotInList
    The value '%1' for the property %2 is not in the list of acceptable values.
    Choose a value from the list that the schema or the resource gives.
PropertyValueError
    The value provided for the property %1 is not valid.
    Correct the value for the property in the request body and resubmit the request.
ActionParameterUnknown
    The action %1 was submitted with the invalid parameter %2.
    Correct the invalid parameter and resubmit the request.
ActionParameterNotSupported
    The parameter %1 for the action %2 is not supported on the target resource.
    Remove the parameter supplied and resubmit the request.
ActionParameterValueFormatError
    The value '%1' for the parameter %2 in the action %3 is not a format that the parameter can accept.
    Correct the value for the parameter in the request body and resubmit the request.
ActionParameterMissing, Critical
    The action %1 requires the parameter %2 to be present in the request body.
    Supply the action with the required parameter in the request body.
ActionParameterValueTypeError
    The value '%1' for the parameter %2 in the action %3 is not a type that the parameter can accept.
    Correct the value for the parameter in the request body and resubmit the request.
ActionParameterValueNotInList
    The value '%1' for the parameter %2 in the action %3 is not in the list of acceptable values.
    Choose a value from the list that the action gives.
ResourceMissingAtURI, Critical
    The resource at the URI '%1' was not found.
    Place a valid resource at the URI or correct the URI and resubmit the request.
ResourceAlreadyExists, Critical
    The requested resource of type %1 with the property %2 with the value '%3' already exists.
    Do not repeat the create operation as the resource has already been created.
OperationNotAllowed, Critical
    The HTTP method is not allowed on this resource.
    The Allow header lists what would be accepted.
InsufficientPrivilege, Critical
    There are insufficient privileges for the account or credentials associated with the current session to perform
        the requested operation.
    Use an account or token whose role has the right.
NoValidSession, Critical
    There is no valid session established with the implementation.
    Establish a session before attempting any operations.
PasswordChangeRequired, Critical
    The password provided for this account must be changed before access is granted.  PATCH the Password property for
        this account located at the target URI '%1' to complete this process.
    Change the password for this account using a PATCH to the Password property at the URI provided.
PreconditionFailed, Critical
    The ETag supplied did not match the ETag required to change this resource.
    Read the resource again, and try the operation with the ETag that it has now.
HeaderInvalid
    Header '%1' is invalid.
    Resubmit the request with a valid value in the request header.
QueryNotSupported
    Querying is not supported by the implementation.
    ProtocolFeaturesSupported in the service root lists what is supported.
QueryNotSupportedOnResource
    Querying is not supported on the requested resource.
    Remove the query parameters and resubmit the request.
QueryCombinationInvalid
    Two or more query parameters in the request cannot be used together.
    Remove one or more of the query parameters and resubmit the request.
QueryParameterValueFormatError
    The value '%1' for the parameter %2 is not a format that the parameter can accept.
    Correct the value for the query parameter in the request and resubmit the request.
QueryParameterOutOfRange
    The value '%1' for the query parameter %2 is out of range %3.
    Reduce the value for the query parameter to a value that is within range.
ServiceTemporarilyUnavailable, Critical
    The service is temporarily unavailable.  Retry in %1 seconds.
    Wait for the indicated retry duration and retry the operation.
SessionLimitExceeded, Critical
    The session establishment failed due to the number of simultaneous sessions exceeding the limit of the
        implementation.
    Reduce the number of other sessions before trying to establish the session.
""")

STRATA_MESSAGES: dict[str, Template] = {
    "Refused": Template(text="%1", resolution="See what brake is on, and whether it should be."),
    "BadRequest": Template(text="%1", resolution="Correct the request; nothing was changed."),
    "NotFound": Template(text="%1", resolution="Check the name."),
    "Denied": Template(text="%1", resolution="Ask an administrator."),
    "NotAuthenticated": Template(text="%1", resolution="Log in."),
    "Conflict": Template(text="%1", resolution="Read again, decide again."),
    "Unavailable": Template(text="%1", severity="Critical", resolution="Try again later; nothing was changed."),
    "DeviceError": Template(text="%1", severity="Critical", resolution="Look at the hardware that is named."),
    "OutcomeUnknown": Template(text="%1", severity="Critical", resolution="Look before trying again."),
    "Event": Template(text="%1", resolution="Look at the component that is named."),
    "TestEvent": Template(text="%1", severity="OK"),
}

_LONGEST = 400


def message(key: str, *args: str, about: str = "", resolution: str = "") -> Json:
    """One of the Base messages. ``about``: the property that it is of."""
    found = _message(BASE, BASE_MESSAGES[key], key, args, resolution)
    if about:
        found["RelatedProperties"] = [f"#/{about}"]
    return found


def own_message(key: str, text: str, *, resolution: str = "") -> Json:
    """One of Strata's own messages: each has its whole text as the argument."""
    return _message(STRATA, STRATA_MESSAGES[key], key, (text,), resolution)


def clean(text: str) -> str:
    """What a client or a device wrote, made short and printable."""
    cut = text[:_LONGEST] + ("…" if len(text) > _LONGEST else "")
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut)


def _message(registry: str, template: Template, key: str, args: tuple[str, ...], resolution: str) -> Json:
    said = [clean(arg) for arg in args]
    text = template.text
    for number, arg in reversed(list(enumerate(said, 1))):
        text = text.replace(f"%{number}", arg)
    found: Json = {
        "@odata.type": "#Message.v1_2_0.Message",
        "MessageId": f"{registry}.{key}",
        "Message": text,
        "MessageSeverity": template.severity,
        "Resolution": clean(resolution) or template.resolution,
    }
    if said:
        found["MessageArgs"] = said
    return found
