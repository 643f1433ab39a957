"""Forty and more shapes that secrets come in, made up at run time: no key stands in this file."""

import base64
import html
import json
import random
import string
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

_ALNUM: Final = string.ascii_letters + string.digits


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A text, the secrets in it, and the part of them that only a known value gives away."""

    name: str
    text: str
    secrets: tuple[str, ...]


KNOWN: Final = (
    'tr0ub4dor&3 "quoted"/<path>',
    "zz-correct-horse-battery-staple",
    "pä55wörd-ünïcode",
    "first line of a note\nsecond line of that note, which is long\nthird",
)
"""What the secrets file of the tests lists."""


def letters(n: int, seed: str, alphabet: str = _ALNUM) -> str:
    """Return ``n`` characters, the same for the same seed, a digit and a letter among them."""
    chance = random.Random(seed)
    return "a7" + "".join(chance.choice(alphabet) for _ in range(n - 2))


def shapes() -> tuple[Shape, ...]:
    """Return every shape; names are unique."""
    found = (*_vendors(), *_blocks(), *_addresses(), *_headers(), *_assignments(), *_spelt())
    assert len({shape.name for shape in found}) == len(found)
    return found


def _one(name: str, before: str, secret: str, after: str = "") -> Shape:
    return Shape(name=name, text=f"{before}{secret}{after}", secrets=(secret,))


def _vendors() -> tuple[Shape, ...]:
    upper = string.ascii_uppercase + string.digits
    hexes = "0123456789abcdef"
    return (
        _one("aws key id", "id: ", "AKIA" + letters(16, "aws", upper).upper(), ","),
        _one("aws secret key", "aws_secret_access_key = ", letters(40, "awss", _ALNUM + "/+")),
        _one("aws session", "AWS_SESSION_TOKEN=", letters(120, "awst", _ALNUM + "/+")),
        _one("github classic", "clone with ", "ghp_" + letters(36, "gh"), " then"),
        _one("github app", "\\nghs_x: ", "ghs_" + letters(36, "ghs")),
        _one(
            "github fine-grained", "", "github_pat_" + letters(22, "g1") + "_" + letters(59, "g2")
        ),
        _one("gitlab", "token glued:", "glpat-" + letters(20, "gl"), "."),
        _one("anthropic", "export K=", "sk-ant-api03-" + letters(90, "ant", _ALNUM + "-_")),
        _one("openai", "(", "sk-proj-" + letters(48, "oai"), ")"),
        _one("key with a dot", "api_key: ", "sk-sp-" + "ABCD." + "efgh_XYZ"),
        _one("slack bot", "SLACK ", "xoxb-" + "123456789012-" + letters(24, "sl")),
        _one(
            "slack webhook",
            "https://hooks.slack.com/services/",
            "T0AB12/B0CD34/" + letters(24, "w"),
        ),
        _one("stripe", "charge with ", "sk_" + "live_" + letters(24, "st"), " ok"),
        _one("stripe webhook", "", "whsec_" + letters(32, "sw")),
        _one("google api", "?key=", "AI" + "za" + letters(35, "goo"), "&v=3"),
        _one("google oauth", "bearer is ", "ya29." + letters(60, "ya", _ALNUM + "-_")),
        _one("google client", "client ", "GOCSPX-" + letters(28, "gocs")),
        _one("hugging face", "login ", "hf_" + letters(34, "hf")),
        _one("npm", "//registry/:_authToken=", "npm_" + letters(36, "npm")),
        _one("sendgrid", "mail ", "SG." + letters(22, "s1") + "." + letters(43, "s2")),
        _one("twilio", "sid ", "SK" + letters(32, "tw", hexes), " end"),
        _one("telegram", "bot", "123456789" + ":AA" + letters(33, "tg"), "/getMe"),
    )


def _blocks() -> tuple[Shape, ...]:
    body = [letters(64, f"pem{n}", _ALNUM + "+/") for n in range(4)]
    lines = "\n".join(body)
    begin, end = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
    headed = f"{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,F0F0\n\n{lines}\n{end}"
    jwt = ".".join(
        base64.urlsafe_b64encode(part).rstrip(b"=").decode()
        for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1234567890","n":1}', b"s" * 32)
    )
    numbered = "\n".join(f"{n:5}\t{line}" for n, line in enumerate(body, 2))
    return (
        Shape(name="pem", text=f"key:\n{begin}\n{lines}\n{end}\ndone", secrets=tuple(body)),
        Shape(name="pem with headers", text=headed, secrets=tuple(body)),
        Shape(name="pem escaped", text=json.dumps(f"{begin}\n{lines}\n{end}"), secrets=tuple(body)),
        Shape(name="pem cut off", text=f"{begin}\n{lines}", secrets=tuple(body)),
        Shape(name="pem numbered", text=f"    1\t{begin}\n{numbered}\n{end}", secrets=tuple(body)),
        _one("jwt", "session ", jwt, " expired"),
        _one("jwt in a url", "https://a.example/cb?id_token=", jwt, "&x=1"),
    )


def _addresses() -> tuple[Shape, ...]:
    return (
        _one("url password", "postgres://app:", letters(16, "pg"), "@db.internal:5432/main"),
        _one("url password with at", "amqp://u:", "a7p@ss" + letters(8, "am"), "@mq/vhost"),
        _one("url token", "git clone https://", letters(40, "ut"), "@git.example/r.git"),
        _one("user:pass@host", "ftp login bob:", "S3cr3t!" + letters(6, "ftp"), "@files.example"),
        _one("query", "GET /v1?access_token=", letters(24, "q"), "&page=2"),
        _one("query escaped", "next=%2Fv1%3Fapi_key%3D", letters(24, "qe")),
    )


def _headers() -> tuple[Shape, ...]:
    basic = base64.b64encode(f"admin:{letters(12, 'basic')}".encode()).decode()
    return (
        _one("bearer", "curl -H 'Authorization: Bearer ", letters(40, "be"), "' https://x"),
        _one("basic", "authorization: Basic ", basic, "\nhost: x"),
        _one("token header", "X-Auth-Token: ", letters(32, "xa")),
        _one(
            "cookie", "Cookie: ", f"sid={letters(32, 'ck')}; csrf={letters(16, 'cs')}", "\r\nX: 1"
        ),
        _one("set-cookie", "< Set-Cookie: ", f"session={letters(32, 'sc')}; HttpOnly"),
    )


def _assignments() -> tuple[Shape, ...]:
    quoted = letters(12, "pw") + ";,(&" + letters(4, "pw2")
    return (
        _one("yaml", "  api_key: ", letters(20, "ya")),
        _one("env", "export DB_PASSWORD=", letters(14, "env"), "\nexport HOME=/root"),
        _one("code", 'client = Client(password="', quoted, '", retries=3)'),
        _one("json text", '{"client_secret": "', letters(24, "js"), '", "n": 1}'),
        _one("json in json", '"{\\"refresh_token\\": \\"', letters(24, "jj"), '\\"}"'),
        _one("html", "&quot;apiKey&quot;: &quot;", letters(20, "ht"), "&quot;"),
        _one("option", "mysql --password ", letters(12, "op"), " -h db"),
    )


def _spelt() -> tuple[Shape, ...]:
    odd, plain, accented, lines = KNOWN
    hidden = "ghp_" + letters(36, "b64")
    wrapped = base64.encodebytes(
        f"machine x login y token {hidden} and more text".encode()
    ).decode()
    twice = base64.b64encode(base64.b64encode(f"key={hidden} ".encode())).decode()
    aligned = " ".join(
        base64.b64encode(b"-" * n + plain.encode() + b"--").decode() for n in range(3)
    )
    return (
        Shape(name="known", text=f"it is {odd}, I think", secrets=(odd,)),
        Shape(name="known without a shape", text=f"say {plain} thrice", secrets=(plain,)),
        Shape(name="known accented", text=f"<{accented}>", secrets=(accented,)),
        Shape(name="known over lines", text=f"note:\n{lines}\nend", secrets=(lines,)),
        Shape(name="known json-escaped", text=json.dumps({"p": [odd]}), secrets=(odd,)),
        Shape(name="known url-escaped", text=f"/?p={quote(odd, safe='')}&q=1", secrets=(odd,)),
        Shape(name="known form-escaped", text=f"p={quote_plus(odd)}&q=1", secrets=(odd,)),
        Shape(name="known html-escaped", text=f"<b>{html.escape(odd)}</b>", secrets=(odd,)),
        Shape(name="known in base64", text=aligned, secrets=(plain,)),
        Shape(name="base64 over lines", text=wrapped, secrets=(hidden, *wrapped.split())),
        Shape(name="base64 of base64", text=f"data {twice}", secrets=(hidden, twice)),
    )
