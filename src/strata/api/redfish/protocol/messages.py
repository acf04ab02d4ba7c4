"""What the service says in ``@Message.ExtendedInfo``: the standard's Base messages that are used, and Strata's own.

One table serves both the answers and the registry that clients look messages up in.
"""

from __future__ import annotations

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


BASE_MESSAGES: dict[str, Template] = {
    "GeneralError": Template(
        text="A general error has occurred.  See Resolution for information on how to resolve the error, "
        "or @Message.ExtendedInfo if Resolution is not provided.",
    ),
    "InternalError": Template(
        text="The request failed due to an internal service error.  The service is still operational.",
        severity="Critical",
        resolution="Look for the X-Request-Id of the answer in the service's log.",
    ),
    "MalformedJSON": Template(
        text="The request body submitted was malformed JSON and could not be parsed by the receiving service.",
        severity="Critical",
        resolution="Ensure that the request body is valid JSON and resubmit the request.",
    ),
    "UnrecognizedRequestBody": Template(
        text="The service detected a malformed request body that it was unable to interpret.",
        resolution="Send a JSON object as application/json.",
    ),
    "NoOperation": Template(
        text="The request body submitted contain no data to act upon and no changes to the resource took place.",
        resolution="Add properties in the JSON object and resubmit the request.",
    ),
    "PropertyUnknown": Template(
        text="The property %1 is not in the list of valid properties for the resource.",
        resolution="Remove the unknown property from the request body and resubmit the request.",
    ),
    "PropertyNotWritable": Template(
        text="The property %1 is a read-only property and cannot be assigned a value.",
        resolution="Remove the property from the request body and resubmit the request.",
    ),
    "PropertyMissing": Template(
        text="The property %1 is a required property and must be included in the request.",
        resolution="Include the property in the request body with a valid value and resubmit the request.",
    ),
    "PropertyValueTypeError": Template(
        text="The value '%1' for the property %2 is not a type that the property can accept.",
        resolution="Correct the value for the property in the request body and resubmit the request.",
    ),
    "PropertyValueNotInList": Template(
        text="The value '%1' for the property %2 is not in the list of acceptable values.",
        resolution="Choose a value from the list that the schema or the resource gives.",
    ),
    "PropertyValueError": Template(
        text="The value provided for the property %1 is not valid.",
        resolution="Correct the value for the property in the request body and resubmit the request.",
    ),
    "ActionParameterUnknown": Template(
        text="The action %1 was submitted with the invalid parameter %2.",
        resolution="Correct the invalid parameter and resubmit the request.",
    ),
    "ActionParameterNotSupported": Template(
        text="The parameter %1 for the action %2 is not supported on the target resource.",
        resolution="Remove the parameter supplied and resubmit the request.",
    ),
    "ActionParameterValueFormatError": Template(
        text="The value '%1' for the parameter %2 in the action %3 is not a format that the parameter can accept.",
        resolution="Correct the value for the parameter in the request body and resubmit the request.",
    ),
    "ActionParameterMissing": Template(
        text="The action %1 requires the parameter %2 to be present in the request body.",
        severity="Critical",
        resolution="Supply the action with the required parameter in the request body.",
    ),
    "ActionParameterValueTypeError": Template(
        text="The value '%1' for the parameter %2 in the action %3 is not a type that the parameter can accept.",
        resolution="Correct the value for the parameter in the request body and resubmit the request.",
    ),
    "ActionParameterValueNotInList": Template(
        text="The value '%1' for the parameter %2 in the action %3 is not in the list of acceptable values.",
        resolution="Choose a value from the list that the action gives.",
    ),
    "ResourceMissingAtURI": Template(
        text="The resource at the URI '%1' was not found.",
        severity="Critical",
        resolution="Place a valid resource at the URI or correct the URI and resubmit the request.",
    ),
    "ResourceAlreadyExists": Template(
        text="The requested resource of type %1 with the property %2 with the value '%3' already exists.",
        severity="Critical",
        resolution="Do not repeat the create operation as the resource has already been created.",
    ),
    "OperationNotAllowed": Template(
        text="The HTTP method is not allowed on this resource.",
        severity="Critical",
        resolution="The Allow header lists what would be accepted.",
    ),
    "InsufficientPrivilege": Template(
        text="There are insufficient privileges for the account or credentials associated with the current session "
        "to perform the requested operation.",
        severity="Critical",
        resolution="Use an account or token whose role has the right.",
    ),
    "NoValidSession": Template(
        text="There is no valid session established with the implementation.",
        severity="Critical",
        resolution="Establish a session before attempting any operations.",
    ),
    "PasswordChangeRequired": Template(
        text="The password provided for this account must be changed before access is granted.  PATCH the Password "
        "property for this account located at the target URI '%1' to complete this process.",
        severity="Critical",
        resolution="Change the password for this account using a PATCH to the Password property at the URI provided.",
    ),
    "PreconditionFailed": Template(
        text="The ETag supplied did not match the ETag required to change this resource.",
        severity="Critical",
        resolution="Read the resource again, and try the operation with the ETag that it has now.",
    ),
    "HeaderInvalid": Template(
        text="Header '%1' is invalid.",
        resolution="Resubmit the request with a valid value in the request header.",
    ),
    "QueryNotSupported": Template(
        text="Querying is not supported by the implementation.",
        resolution="ProtocolFeaturesSupported in the service root lists what is supported.",
    ),
    "QueryNotSupportedOnResource": Template(
        text="Querying is not supported on the requested resource.",
        resolution="Remove the query parameters and resubmit the request.",
    ),
    "QueryCombinationInvalid": Template(
        text="Two or more query parameters in the request cannot be used together.",
        resolution="Remove one or more of the query parameters and resubmit the request.",
    ),
    "QueryParameterValueFormatError": Template(
        text="The value '%1' for the parameter %2 is not a format that the parameter can accept.",
        resolution="Correct the value for the query parameter in the request and resubmit the request.",
    ),
    "QueryParameterOutOfRange": Template(
        text="The value '%1' for the query parameter %2 is out of range %3.",
        resolution="Reduce the value for the query parameter to a value that is within range.",
    ),
    "ServiceTemporarilyUnavailable": Template(
        text="The service is temporarily unavailable.  Retry in %1 seconds.",
        severity="Critical",
        resolution="Wait for the indicated retry duration and retry the operation.",
    ),
    "SessionLimitExceeded": Template(
        text="The session establishment failed due to the number of simultaneous sessions exceeding the limit of the "
        "implementation.",
        severity="Critical",
        resolution="Reduce the number of other sessions before trying to establish the session.",
    ),
}

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
