"""Keys and passwords on a command line, masked before it is stored or shown. Standard library only.

Two things give a secret away: the name before it (`--api-key VALUE`, `logger.token=VALUE`, `WANDB_API_KEY=VALUE`) and
its own shape (the prefixes that services give to their tokens, a password in an address). A name is read by its last
word, as people read it: `hub_token` is a token, `token_length` is a length; and what training programs call tokens
and keys (`--pad-token "<pad>"`, `--sort-key date`) is none.

Some cannot be told apart: a password of letters alone behind another program's `--user` (`bob:correcthorse` is like
`app:staff`) or as the second word behind `--auth bob` stays in the clear; `--login us-east:prod` and
`--user host:8080x` are masked, as a password would be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "<redacted>"

_ALWAYS = frozenset(
    "password passwords passwd passphrase passcode secret secrets auth authorization apikey apikeys authkey accesskey "
    "secretkey privatekey authtoken accesstoken apitoken hftoken dsn cookie".split()
)
"""Last words of names whose value is a secret, whatever stands before them and whatever the value is."""
_LIKELY = frozenset("credential credentials creds pwd".split())
"""The same where the value is no path."""
_PASSES = frozenset("pass pw".split())
"""The same where the value is no word or number either, for people count passes over data."""
_ACCOUNTS = frozenset("login user".split())
"""The same where the value is NAME:PASSWORD."""
_PLURALS = frozenset("keys apikeys tokens passwords secrets credentials creds".split())
"""Last words of options that several values follow."""
_SETS = frozenset("set opts opt options override overrides setting settings define param params env".split())
"""Options that a name and its value follow."""
_OWNERS = frozenset(
    "access account admin anthropic api auth aws azure bearer bot clearml cloud cohere comet db deploy discord "
    "encryption gcp gemini gh git github gitlab google hf hub huggingface identity jwt kaggle license master mlflow "
    "neptune ngc npm nvidia oauth openai personal private proxy pypi redis refresh registry replicate sas secret "
    "security service session signing slack smtp ssh storage subscription telegram tls wandb webhook".split()
)
"""Words that make a key, a pass or several tokens a secret: `api_key`, `db_pass`, `access_tokens`."""
_OF_TEXT = frozenset(
    "added an assistant audio begin blank bos class cls control decoder dist distillation dummy each empty encoder end "
    "eod eom eos eot every extra fill fim final first forced global image images img init initial last local mask "
    "masked max memory min modality new newline next no null num of one pad padding patch per predict prefix prompt "
    "query reg register replacement role sep separator sos sot space special speaker speech start stop suffix system "
    "target task text the think tgt src source trigger unk unknown video vision visual vocab word".split()
)
"""Words before `token` that make it a piece of text."""
_IN_PLAIN = frozenset("value string str text raw b64 base64 plain".split())
"""Last words that say in what form a secret comes."""
_SWITCHES = frozenset("no use with without has is enable disable skip require ask prompt save show".split())
"""First words of an option that takes no value, or none that is secret."""

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])|AIza[\w-]{30,}|xox[a-z]-[\w-]{10,}|nvapi-[\w-]{20,}|r8_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{40,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|sk-(?=[\w-]{0,200}[A-Za-z0-9]{16})(?=[\w-]{0,200}\d)[\w-]{20,}"
    r"|eyJ[\w-]{8,4000}\.[\w-]{8,}(?:\.[\w-]*)?"
    r")|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
"""Tokens as services make them: Hugging Face, GitHub, GitLab, npm, AWS, Google, Slack, NVIDIA, Replicate, PyPI, Stripe,
OpenAI and Anthropic, JSON web tokens, PEM keys."""
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
_HEADER = re.compile(r"(?i)\b((?:set-)?cookie|(?:proxy-)?authorization)(\s*:\s*)[^\r\n\"'<][^\r\n\"']*")
_ADDRESS = re.compile(r"(?<=://)([^\s/@:]*:(?=[^\s/]+@)|(?=[\w-]{20,}@))[^\s/]+(?=@)")
_QUERY = re.compile(r"(?<=[?&])([\w.-]{1,100})=([^&\s#]+)")
_SIGNATURES = frozenset("sig signature x-amz-signature x-amz-credential x-amz-security-token x-goog-signature".split())
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")
_DASHED = re.compile(r"-(?=[^=]*\d)(?=[^=]*[A-Za-z])[^-=][^=]{7,}")
"""A value, rather than an option, that begins with a dash."""
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_ASSIGNED = re.compile(r"([-+~]*([A-Za-z_][\w./@-]*)=)(.+)", re.DOTALL)
_QUOTED = r"\"(?:[^\"\\]|\\.){0,2000}\"|'(?:[^'\\]|\\.){0,2000}'"
_NAMED = r"(?<![\w.-])([A-Za-z_][\w.-]*)"
_IN_CODE = re.compile(rf"{_NAMED}([\"']?\]?\s*[:=]\s*)({_QUOTED})")
_IN_TEXT = re.compile(rf"{_NAMED}([\"']?\s*[:=](?!//|[\w.-]+=[^=\s])\s*)({_QUOTED}|[^\s\"',;&{{}}()\[\]=]+=*)")
_IN_SHELL = re.compile(
    rf"(?<![\w.-])(?:--?([A-Za-z][\w.-]*)(?=[\s=])|([A-Z][A-Z0-9_]*)(?==))(=|[\s=]+(?!--))({_QUOTED}|[^\s\"';&|]+)"
)
_SEVERAL = re.compile(
    rf"(?<![\w.-])--?([A-Za-z][\w.-]*)\s+(?:{_QUOTED}|[^\s\"';&|-][^\s\"';&|]*)((?:\s+[^\s\"';&|-][^\s\"';&|]*)+)"
)
_SET = re.compile(rf"(?<![\w.-])--?({'|'.join(_SETS)})\s+([A-Za-z_][\w.]*)\s+({_QUOTED}|[^\s\"';&|]+)")
_FIRST = r"(?:\"[^\"\n]{0,60}\"|'[^'\n]{0,60}'|\([^()\n]{0,60}\)|[^\n(),\"'=]){1,60}"
"""A first argument: `os.environ["U"]`, `getenv("U", "me")`."""
_LOGIN = re.compile(
    rf"(\blogin\((?:[^()\n]{{0,200}}?\bkey\s*=\s*|(?:{_QUOTED}|[^\s(),=\"']{{1,200}})\s*,\s*)|\.login\({_FIRST},\s*)({_QUOTED})"
)
"""A key by that name, or a password behind whose it is."""
_FLAGS = "[0-46aBfgGiIjJklLMnNOpqRsSvVZ#]{0,20}"
"""Short options of curl that take no value, which stand in one word with one that does: `-su bob:password`."""
_CURL = re.compile(
    rf"(\bcurl\s(?:[^\n;|&]{{0,200}}?\s)?-(?:{_FLAGS}[uU]\s*|-(?:proxy-)?user\s+)[\"']?[^\s:\"'-][^\s:\"']*:)[^\s\"']+"
)
_USER_OF_CURL = re.compile(rf"-(?:{_FLAGS}[uU]|-(?:proxy-)?user)")
_OF_CURL = re.compile(r"([^\s:-][^\s:]*:).+", re.DOTALL)
_JOINED_OF_CURL = re.compile(rf"(-{_FLAGS}[uU][^\s:-][^\s:]*:).+", re.DOTALL)
_PAIR = re.compile(r"[^\s:/]+:(?!/|\d+\Z)(\S+)")
_MADE_UP = re.compile(r"(?=.*[A-Za-z])(?=.*[\d!@#$%^&*?]).{5,}", re.DOTALL)
"""Letters with digits or signs among them."""
_STRONG = re.compile(r"(?=.*[A-Za-z])(?=.*\d)(?=.*[A-Z!@#$%^&*?])(?=.*[a-z])[^-=][^=/]{4,}")
"""Capitals or signs among small letters and digits."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SWITCHED = re.compile(r"(?i)true|false|none|null|yes|no|on|off|auto|\$\{?\w+\}?|<redacted>|")
_OF_NO_KEY = re.compile(r"(?i)[+-]?\d+(?:\.\d+)?(?:e-?\d+)?|<[^>]*>|\[[A-Z]*\]")
_SHORT = re.compile(r"[a-z]{1,8}")
_PATH = re.compile(r"(?:~|\.{0,2})/.*|.*\.(?:json|ya?ml|toml|txt|pem|key|pub|env|cfg|ini|csv|parquet|py|pt)", re.DOTALL)
_RANDOM = re.compile(r"[0-9a-fA-F]{24,}|(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/=]{16,}")


def masked(words: Sequence[str]) -> list[str]:
    """A command line with every secret replaced by MASK; all else is as it was."""
    found: list[str] = []
    option = before = first = ""
    fetches = False
    for word in words:
        secret = _is_value(option, before, word) or _is_second(option, first, word)
        shown = MASK if secret else _word(word, code=before == "-c")
        if fetches:
            user = _OF_CURL if _USER_OF_CURL.fullmatch(before) else _JOINED_OF_CURL
            shown = re.sub(user, rf"\1{MASK}", shown) if user.match(shown) else shown
        found.append(shown)
        first = word if before == f"--{option}" else ""
        before = MASK if secret else word
        if begun := _OPTION.fullmatch(before):
            option = begun[1]
        elif before == "--":
            option = ""
        fetches = fetches or word.rpartition("/")[2] == "curl"
    return found


def masked_text(text: str, *, code: bool = False) -> str:
    """Text with what looks like a secret in it replaced. In `code`, what has only a name must be a string in quotes."""
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _BEARER.sub(rf"\1\2{MASK}", _ADDRESS.sub(rf"\1{MASK}", _SHAPES.sub(MASK, text)))
    text = _CURL.sub(rf"\1{MASK}", _QUERY.sub(_in_query, text))
    text = _LOGIN.sub(lambda found: found[1] + _quoted(found[2]), text)
    text = _SET.sub(_in_set, _SEVERAL.sub(_in_several, text))
    return _IN_SHELL.sub(_in_shell, (_IN_CODE if code else _IN_TEXT).sub(_inside, text))


def _word(word: str, code: bool) -> str:
    assigned = _ASSIGNED.fullmatch(word)
    if assigned and _is_secret(assigned[2], assigned[3]):
        return assigned[1] + MASK
    return masked_text(word, code=code)


def _is_value(option: str, before: str, word: str) -> bool:
    """Say whether a word is a secret by the word before it, or by the option whose values these are."""
    if name := _OPTION.fullmatch(before):
        return _takes(name[1], word)
    if name := _OPTION.fullmatch(before.removesuffix("=")):  # a blank too many
        return _takes(name[1], word) and _is_made_up(word)
    if _PLURALS.intersection(_parts(option)[-1:]):
        return _is_another(option, word)
    return option in _SETS and _NAME.fullmatch(before) is not None and _is_secret(before, word)


def _is_second(option: str, first: str, word: str) -> bool:
    """Whether it is the password behind whose it is: `--auth bob S3cret`; a script or a model may stand there, too."""
    parts = _parts(option)
    takes = parts[-1:] in (["auth"], ["login"]) and parts[0] not in _SWITCHES
    return takes and first.isalpha() and _STRONG.fullmatch(word) is not None and not _PATH.fullmatch(word)


def _takes(option: str, word: str) -> bool:
    """Say whether the word after an option is its value, and a secret."""
    switch = _parts(option)[:1] and _parts(option)[0] in _SWITCHES
    value = _OPTION.fullmatch(word) is None or _DASHED.fullmatch(word) is not None
    return not switch and value and _is_secret(option, word)


def _is_another(option: str, word: str) -> bool:
    """Say whether the word is a secret after the first value of an option; a script or a command may follow, too."""
    return not _PATH.fullmatch(word) and not _SHORT.fullmatch(word) and _takes(option, word)


def _is_made_up(value: str) -> bool:
    return _MADE_UP.fullmatch(value) is not None and _PATH.fullmatch(value) is None


def _in_query(found: re.Match[str]) -> str:
    name, value = found.groups()
    secret = name.lower() in _SIGNATURES or _is_secret(name, value)
    return f"{name}={MASK}" if secret else found[0]


def _inside(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    return f"{name}{between}{_quoted(value)}" if _is_secret(name, _bare(value)) else found[0]


def _in_several(found: re.Match[str]) -> str:
    option, values = found.groups()
    first, second = found[0].split()[1:3]
    if _is_second(option, first, second):
        return found[0][: -len(values)] + values.replace(second, MASK, 1)
    if not _PLURALS.intersection(_parts(option)[-1:]):
        return found[0]
    hidden = re.sub(r"\S+", lambda each: MASK if _is_another(option, each[0]) else each[0], values)
    return found[0][: -len(values)] + hidden


def _in_set(found: re.Match[str]) -> str:
    _, name, value = found.groups()
    return found[0][: -len(value)] + _quoted(value) if _is_secret(name, _bare(value)) else found[0]


def _in_shell(found: re.Match[str]) -> str:
    option, variable, between, value = found.groups()
    known = _is_secret if between == "=" else _takes  # what follows may be another option
    secret = known(option or variable, _bare(value))
    return found[0][: -len(value)] + _quoted(value) if secret else found[0]


def _bare(value: str) -> str:
    return value[1:-1] if value[:1] in ("'", '"') else value


def _quoted(value: str) -> str:
    quote = value[0] if value[:1] in ("'", '"') else ""
    return f"{quote}{MASK}{quote}"


def _parts(name: str) -> list[str]:
    """'loggerApi_KEY2' as ['logger', 'api', 'key', '2']."""
    return [part.lower() for part in _WORDS.findall(name)]


def _is_secret(name: str, value: str) -> bool:
    """By the last word of the name, the one before it, and what the value looks like."""
    parts = _parts(name)
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _IN_PLAIN):
        parts.pop()
    if not parts or _SWITCHED.fullmatch(value):
        return False
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in _ALWAYS or last.endswith(("password", "passwd", "secret", "apikey")):  # PGPASSWORD
        return True
    if _RANDOM.fullmatch(value):
        return last in _LIKELY or not {"key", "keys", "token", "pass", "wandb"}.isdisjoint(parts)
    if _OF_NO_KEY.fullmatch(value) or _PATH.fullmatch(value):
        return False
    if last == "token":
        return before == "" or before in _OWNERS or not (before in _OF_TEXT or _SHORT.fullmatch(value))
    if last in _ACCOUNTS:
        pair = _PAIR.fullmatch(value)
        return pair is not None and (last == "login" or _is_made_up(pair[1]))
    if last in _PASSES and not before:
        return _is_made_up(value)
    return last in _LIKELY or (last in ("key", "keys", "tokens", *_PASSES) and before in _OWNERS)
