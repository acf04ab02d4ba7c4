r"""What is wrong with a value, in words and with an example, instead of the regular expression that it does not match.

``in_words`` takes what msgspec says of a value; the table below knows every pattern that texts from outside are held
against (a test goes through all of them). Patterns end in ``$(?!\n)``, which is left out here. Of a word or a key that
is not accepted it says which would be, where it is told the type.
"""

from __future__ import annotations

import re
from typing import Any

from strata.core.input.accepted import keys_at, no_key, none_of, words_at

_END = r"$(?!\n)"

_NAME_RULE = "1 to 63 letters, digits, '-', '_' and '.'"
_HEX = "0-9 and a-f"

FORMS = {
    # texts
    r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*": "must be one line of text, without tabs and control characters",
    r"^[ -~]*": "must be one line of plain ASCII text, such as: loglevel=7 -quiet",
    r"^[^\u0000]*": "must not hold a NUL character",
    # what a browser made up for a sign-in
    r"^[A-Za-z0-9._~-]{43,128}": "a verifier is 43 to 128 letters, digits, '.', '_', '~' and '-' (RFC 7636)",
    r"^[A-Za-z0-9_-]{16,128}": "a nonce is 16 to 128 letters, digits, '-' and '_'",
    # names
    r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?": f"a name is {_NAME_RULE}, first and last a letter or digit, "
    "such as n0001",
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}": f"a name is {_NAME_RULE}, first a letter or digit, such as compute-1",
    r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}": "a name is 1 to 63 letters, digits, '-', '_', '.' and '@', first a letter or "
    "digit, such as alice@site",
    r"^[a-z0-9][a-z0-9._-]{0,62}": "a name is 1 to 63 small letters, digits, '-', '_' and '.', first a letter or "
    "digit, such as debian",
    r"^[a-z0-9][a-z0-9_.-]{0,62}": "a name is 1 to 63 small letters, digits, '-', '_' and '.', first a letter or "
    "digit, such as system",
    r"^([a-z0-9][a-z0-9_.-]{0,62})?": "a member's name is small letters, digits, '-', '_' and '.', such as system; or "
    "it is minos, or empty",
    r"^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?": "must be 1 to 63 letters, digits, '-', '_', '.' and '/', "
    "first and last a letter or digit, such as compute",
    r"^[a-z][a-z0-9_.-]{0,62}": "a state variable is small letters, digits, '-', '_' and '.', first a letter, such as "
    "power",
    r"^[A-Za-z_][A-Za-z0-9_]{0,127}": "the name of an environment variable is letters, digits and '_', first no "
    "digit, such as MY_PATH",
    r"^(fleet|(group|node):[A-Za-z0-9][A-Za-z0-9_.-]{0,62})": "must be fleet, group:NAME or node:NAME, such as "
    "group:compute",
    r"^[A-Za-z0-9]*": "a location is letters and digits alone, such as x1000c0s3b0n1",
    # playbooks
    r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.ya?ml": "must be the path of a playbook, such as plays/base.yaml",
    r"^([0-9a-f]{40}|[0-9a-f]{64})": f"a commit is named in full: 40 or 64 digits ({_HEX})",
    # images and boots
    r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}": f"a tag is {_NAME_RULE}, first a letter, digit or '_', such as 12.1",
    r"^[A-Za-z0-9][A-Za-z0-9:@._-]{0,140}": "must be NAME:TAG or NAME@SERIAL, such as debian:12 or debian@3",
    r"^(latest|[0-9a-f]{12})": "must be latest, or a build's 12 digits that 'strata minos list' shows, such as "
    "0123456789ab",
    r"^0?[0-7]{3,4}": "a mode is 3 or 4 octal digits, such as '0644'",
    r"^/[^\u0000-\u001f]*": "a path begins with '/', and is one line, such as /etc/motd",
    # addresses
    r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}": "a MAC is 6 pairs of 0-9 and a-f with colons, such as 52:54:00:12:34:56",
    r"^([0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5})?": "a MAC is 6 pairs of 0-9 and a-f with colons, such as "
    "52:54:00:12:34:56",
    r"^([0-9]{1,3}(\.[0-9]{1,3}){3})?": "must be an IPv4 address, such as 10.77.0.15",
    r"^[0-9.]{0,15}": "must be an IPv4 address, such as 10.77.0.15",
    r"^[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}": "must be HOST or USER@HOST, such as strata@login1",
    r"^https?://[^\u0000-\u0020]+": "must be an address such as https://chat.example/hook",
    # numbers that Strata or others made up
    r"^[0-9a-f]{16}": f"an id is 16 of {_HEX}, such as 0123456789abcdef",
    r"^[0-9a-f.]{16,64}": f"an id is {_HEX} and '.', as the list shows it, such as 0123456789abcdef",
    r"^[0-9a-f]{32}": f"an upload is 32 of {_HEX}, as the answer to the upload said",
    r"^([0-9a-f]{32})?": f"an upload is 32 of {_HEX}, as the answer to the upload said",
    r"^[0-9A-Fa-f]{1,40}": "a serial number is up to 40 of 0-9 and A-F, such as 41DD8A4B",
    r"^([0-9A-Fa-f:]{64,95})?": "a fingerprint is 64 of 0-9 and A-F, with or without colons, such as AB:CD:... of "
    "'openssl x509 -fingerprint -sha256'",
    r"^[A-Za-z0-9_.-]{1,64}": "an id is 1 to 64 letters, digits, '-', '_' and '.', as the list shows it",
    r"^[A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63}": "a job is named as the workload manager does, such as 4711 or 4711_3",
    r"^([A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63})?": "a job is named as the workload manager does, such as 4711 or 4711_3",
    r"^[0-9]{1,15}-[0-9]{1,15}": "must be two numbers as the answer before had them, such as 1700000000-42",
    r"^[A-Za-z0-9_-]{43}\.iso": "must be the name of a boot medium, as its node's BMC was told",
    # jobs
    r"^[0-9]{1,9}([MGT]i?B?)?": "must be a size such as 500M or 16G; a plain number is MiB",
    r"^([0-9]{1,9}|([0-9]{1,9}(\.[0-9]{1,6})?[smhd]){1,4})": "must be a length of time such as 90s, 10m or 1h30m; "
    "a plain number is seconds",
    r"^[0-9]{1,9}(\.[0-9]{1,6})?( ?[kMG]?W)?": "must be a power such as 300W or 1.5kW; a plain number is watts",
    r"^([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}:)?[1-9][0-9]{0,3}": "must be COUNT or TYPE:COUNT, such as 2 or h200:2",
    r"^[0-9a-z]{12}": "not a job id: 12 characters of 0-9 and a-z, as 'strata job list' shows it, such as 4f0k2m9x1c7d",
    r"^#![^\u0000]*": "a script must begin with #! and its interpreter, such as #!/bin/bash",
    r"^/[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*": "a path begins with '/', and is one line, such as /home/alice/run",
    r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,127}": "must be 1 to 128 letters, digits, '-', '_', '.', ':', '@' and '+', "
    "first a letter, digit or '_', such as debug",
    r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}": "an account is up to 63 letters, digits, '-', '_', '.' and '@', such as bob",
    r"^[\u0021-\u007e]{1,128}": "a key is 1 to 128 plain characters without blanks, such as run-2026-11",
    r"^([A-Za-z0-9][A-Za-z0-9_.:-]{0,254})?": "must be a host or an address, such as head1; or it is empty",
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?": "a claim is small letters, digits and '-', such as lustre",
    r"^[a-z0-9.-]{1,200}/[A-Za-z0-9_.-]{1,63}": "a resource of Kubernetes is DOMAIN/NAME, such as nvidia.com/gpu",
    r"^([a-z0-9.-]{1,200}/)?[A-Za-z0-9_.-]{1,63}": "a label of Kubernetes is NAME or DOMAIN/NAME, such as zone",
    r"^[A-Za-z0-9_.-]{0,64}": "a type is letters, digits, '-', '_' and '.', such as h200; or it is empty",
    r"^[A-Za-z0-9_./:@-]{0,512}": "an image of a registry is HOST/NAME:TAG, such as registry.example/site:1",
    r"^[a-z0-9{}-]{1,128}": "a rule for namespaces is small letters, digits, '-', {account}, {project}, such as jobs",
    r"^https://[A-Za-z0-9_.:\[\]-]{1,255}(/[A-Za-z0-9_./-]{0,255})?": "must be the address of an API, such as "
    "https://kube1:6443",
    r"^[\u0009-\u007e]*": "must be certificates in PEM",
    r"^[\u0021-\u007e]*": "must be plain characters without blanks, as 'kubectl create token' prints them",
    r"^[A-Za-z][A-Za-z0-9_-]{0,31}": "a reservation is 1 to 32 letters, digits, '-' and '_', first a letter, such as "
    "course",
    # containers and environments
    r"^/[^\u0000-\u001f\u007f:,]{0,1023}": "a path of a bind begins with '/', without ':' and ',', such as /scratch",
    r"^(/[^\u0000-\u001f\u007f:,]{0,1023})?": "a path in a container begins with '/', without ':' and ',', such as "
    "/work; or it is empty",
    r"^[a-z0-9-]{0,32}": "a runtime is small letters, digits and '-', such as native",
    r"^[A-Za-z0-9_][A-Za-z0-9_./+-]{0,127}": "a module is letters, digits, '-', '_', '.', '/' and '+', such as gcc",
    r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62}(@[1-9][0-9]{0,5})?)?": "an environment is NAME or NAME@VERSION, such as "
    "pytorch@3; or it is empty",
    r"^(sha256:[0-9a-f]{64})?": f"a digest is sha256: and 64 of {_HEX}; or it is empty",
    r"^[A-Za-z0-9_.-]{0,255}": "a host is letters, digits, '-', '_' and '.', such as login1",
    # configuration
    r"^([0-9a-f]{40}|[0-9a-f]{64})?": f"a commit is 40 of {_HEX}, as 'git rev-parse HEAD' prints it",
    r"^[0-9a-f]{7,64}": f"a commit is 7 to 64 of {_HEX}, as 'strata config status' shows it",
    r"^[A-Za-z0-9][A-Za-z0-9_./+-]{0,199}": "a branch is letters, digits, '-', '_', '.', '/' and '+', first a letter "
    "or digit, such as main",
    r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?": f"a system is {_NAME_RULE}, first a letter or digit, such as prod; or it "
    "is empty",
    r"^(-----BEGIN AGE ENCRYPTED FILE-----\n[A-Za-z0-9+/=\n]+\n-----END AGE ENCRYPTED FILE-----\n?)?": "must be a text "
    "that was encrypted with age and armoured: 'strata secret encrypt', or 'age -a -r RECIPIENT'",
    r"^[A-Za-z0-9_][A-Za-z0-9_./-]*": "a path in a Vault is letters, digits, '-', '_', '.' and '/', such as hpc/munge",
    r"^(ssh-(rsa|ed25519)|ecdsa-sha2-nistp(256|384|521)|sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com) "
    r"[A-Za-z0-9+/=]+( [^\u0000-\u001f]*)?": "must be a public ssh key, such as ssh-ed25519 AAAA... alice@site",
    # what nodes are configured with
    r"^(/(?!\.{1,2}(/|$))[^/\u0000-\u001f\u007f]+)+": "a path begins with '/', without '.' and '..' in it, such as "
    "/etc/motd",
    r"^(?!\.{1,2}(/|$))[^/\u0000-\u001f\u007f]+(/(?!\.{1,2}(/|$))[^/\u0000-\u001f\u007f]+)*$(?!\n)|^": "a file is "
    "named as below files/ in the repository, without '.' and '..', such as etc/motd",
    r"^/[^\u0000-\u001f\u007f]{0,1023}": "a path begins with '/', and is one line, such as /scratch",
    r"^/[A-Za-z0-9_./-]{0,254}": "a path is letters, digits, '-', '_', '.' and '/', first '/', such as /usr/bin",
    r"^0[0-7]{3,4}": "a mode is octal, and begins with 0, such as '0644'",
    r"^([a-z_][a-z0-9_-]{0,30}\$?|[0-9]{1,9})": "an account is its name or its number, such as alice or 1000",
    r"^[^:\u0000-\u001f\u007f]*": "must be one line without ':', as in /etc/passwd",
    r"^[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,200}": "must be the name of a unit, such as sshd.service",
    r"^[A-Za-z0-9][A-Za-z0-9+._-]{0,127}": "must be the name of a package, such as chrony",
    r"^([A-Za-z0-9][A-Za-z0-9+.:~^_-]{0,127})?": "must be the version of a package, such as 4.3-2",
    r"^[a-z][A-Za-z0-9_-]*([./][A-Za-z0-9_:-]+)+": "must be the name of a kernel parameter, such as vm.swappiness",
    r"^[a-z0-9._]{0,32}": "must be the type of a file system, such as nfs4",
    r"^[A-Za-z0-9_.@-]{0,31}": "must be the name of a network interface, such as eth0",
    # rollouts and flows
    r"^([0-9]{1,7}|[0-9]{1,2}%|100%)": "must be a number of nodes or a percentage, such as 10 or 5%",
    r"^[0-9]{1,9}(\.[0-9]{1,3})?%?": "must be a number of nodes or a percentage, such as 2 or 2.5%",
    r"^[a-z][a-z0-9_-]{0,62}": "a check is named by small letters, digits, '-' and '_', first a letter, such as fabric",
    # Slurm
    r"^[A-Za-z][A-Za-z0-9_]{0,63}": "a setting of Slurm is letters, digits and '_', first a letter, such as MaxTime",
    r"^[A-Za-z0-9][A-Za-z0-9_.()\[\]:-]{0,254}": "must be a host, such as head1 or head1(10.0.0.1)",
    # columns
    r"^[a-z_]+(,[a-z_]+)*": "must be fields with commas between them, such as name,state",
    r"^(-?[a-z_]{1,20})?": "must be a field, with '-' before it for the other way round, such as -watts",
    r"^-?(name|uid|nid|location|role|architecture|state)": "must be one of name, uid, nid, location, role, "
    "architecture and state, with '-' before it for the other way round, such as -name",
}
"""Pattern, without its end → what it means."""

# Expected `int` >= 1; Expected `str` of length <= 63; Expected `str` matching regex '^[0-9]$(?!\\n)' - at `$.name`
_BOUND = re.compile(r"Expected `\w+`( of length)? ([<>]=) ([\d.]+)")
_PATTERN = re.compile(r"Expected `str` matching regex '(.*?)'(?= - at |\Z)", re.DOTALL)
_TYPE = re.compile(r"Expected `([\w| ]+)`, got `(\w+)`")
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_TYPES = {
    "array": "a list",
    "object": "a mapping (key: value)",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_WORD = re.compile(r"Invalid enum value (.*?)(?= - at |\Z)", re.DOTALL)
_KEY = re.compile(r"Object contains unknown field `(.*?)`(?= - at |\Z)", re.DOTALL)
_PLACE = re.compile(r" - at `(?:key` in `)?\$\.?(.*)`\Z", re.DOTALL)
_SAID = {repr(pattern)[1:-1]: words for pattern, words in FORMS.items()}  # msgspec writes patterns as Python does


def meaning(pattern: str) -> str:
    """What a pattern means; empty: nobody said."""
    return FORMS.get(pattern.removesuffix(_END).removesuffix("$"), "")


def in_words(message: str, kind: Any = None, place: str = "") -> str:
    """What msgspec says of a value that is out of bounds or written in another way than it must be, in words.

    ``kind``: the type that the value should have had, by which accepted words and keys are named. ``place``: where in
    it the value is, if the message itself does not say.
    """
    if found := _BOUND.match(message):
        length, sign, number = found.groups()
        if length and (sign, number) == (">=", "1"):
            words = "must not be empty"
        else:
            words = f"must be {'at least' if sign == '>=' else 'at most'} {number}{' long' if length else ''}"
    elif found := _PATTERN.match(message):
        bare = found[1].removesuffix(repr(_END)[1:-1]).removesuffix("$")
        words = _SAID.get(bare, "is written in a way that is not accepted")
    elif kind is not None and ((found := _WORD.match(message)) or (found := _KEY.match(message))):
        told = _PLACE.search(message)
        place = told[1] if told else place
        accepted = (words_at if found.re is _WORD else keys_at)(kind, place)
        if not accepted:
            return message
        words = (none_of if found.re is _WORD else no_key)(found[1], accepted)
    elif found := _MISSING.match(message):
        words = f"{found[1]} is missing"
    elif (found := _TYPE.match(message)) and {*found[1].split(" | "), found[2]} <= set(_TYPES):
        expected = [_TYPES[one] for one in found[1].split(" | ") if one != "null"]
        words = f"must be {' or '.join(expected)}, not {_TYPES[found[2]]}"
    else:
        return message
    return words + message[found.end() :]
