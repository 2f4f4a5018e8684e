"""Secrets on a command line: what is masked, what must stay readable, and that nothing leaks whatever stands around."""

from __future__ import annotations

import signal
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.system.secrets import MASK, masked, masked_text

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef" * 3


@pytest.mark.parametrize(
    "words",
    [
        "--num-tokens 512", "--tokenizer gpt2", "--key-dim 64", "--monkey banana", "max_tokens=1024",
        "--pad-token <pad>",
        "--pad_token pad", "--sort-key date", "--author bob", "--passes 3", "--pass-rate 0.5", "--token-dropout 0.1",
        "--label-key y", "--num-key-value-heads 8", "--password-length 12", "--mask-token [MASK]", "--tokens 100",
        "--batch_tokens 4096", "--key image", "--model hf_hub:timm/resnet50.a1_in1k", "--bos-token-id 1",
        "--keyboard us",
        "--ssh-key ~/.ssh/id_rsa", "--api-key-file keys/api.txt", "--credentials /srv/account.json", "--use-auth-token",
        "--no-auth --lr 0.1", "--use_auth_token True", "--image-token 32000", "--secretary ann", "data.sort_key=time",
        "--tokens-per-batch 2048", "--key=label", "--out sk-learn-random-forest-baseline-v2-large-model.pt",
        "--name akiatower", "--eos-token=</s>", "--sep-token newline", "--url https://example.org/a/b?page=2",
        "--repo ssh://git@github.com/a/b", "--commit " + HEX[:40], "--token", "--basic-block 3", "--db-path /a/b.db",
        "--api-key $API_KEY", "--token ${HF_TOKEN}", "tokenizer.pad_token=eos", "--hub-model-id me/model", "-c",
        "--lr=1e-3 --warmup 100 model.hidden=768 +trainer.devices=2", "--pass", "--keys a,b,c", "--cls_token learned",
        "--eos-token end-of-text", "--pass first", "--pass 3", "--pass 1e-3", "--pw 0.5", "--pw cosine", "--login bob",
        "--login node1:8080", "--user 1000:1000", "--user app:staff", "docker run -u bob:group1 image",
        "python -u train.py", "--api-key -v --lr 0.1", "--password --conv2d-layers 3", "--api-key= train.py",
        "--password= train", "--login bob train2", "--login bob resnet50", "curl -o x:y -S https://h/x:1",
        "--api-keys $A train.py run", "--set sort_key date1", "--sort-keys a1 b2",
        "--key-size 128", "--pad-tokens a1 b2", "--set api_key $KEY", "-m app.auth train2",
    ],
)  # fmt: skip
def test_what_training_programs_say_stays_readable(words: str) -> None:
    assert masked(words.split(" ")) == words.split(" ")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--api-key {}", "--api-key"), ("--api_key={}", "--api_key="), ("api_key={}", "api_key="),
        ("+trainer.logger.api_key={}", "+trainer.logger.api_key="), ("--token {}", "--token"), ("-token {}", "-token"),
        ("--hf_token {}", "--hf_token"), ("--hub-token={}", "--hub-token="), ("--password {}", "--password"),
        ("--db-passwd {}", "--db-passwd"), ("--smtp-pass {}", "--smtp-pass"), ("--client-secret {}", "--client-secret"),
        ("WANDB_API_KEY={}", "WANDB_API_KEY="), ("env AWS_SECRET_ACCESS_KEY={} x", "AWS_SECRET_ACCESS_KEY="),
        ("--aws-secret-access-key {}", "--aws-secret-access-key"), ("--apiKey {}", "--apiKey"),
        ("--HFToken {}", "--HFToken"), ("--auth {}", "--auth"), ("--credentials {}", "--credentials"),
        ("--my-token {}", "--my-token"), ("--passphrase {}", "--passphrase"), ("--api-key-2 {}", "--api-key-2"),
        ("--ssh-private-key={}", "--ssh-private-key="), ("--token-value {}", "--token-value"),
        ("--url https://me:{}@example.org/x", "https://me:"), ("--db postgres://u:{}@h:5432/d", "@h:5432/d"),
        ("--url https://h/x?token={}&page=2", "&page=2"), ("--conf {{'api_key':'{}','lr':0.1}}", "'lr':0.1"),
        ("set=api_key={}", "set=api_key="), ("--set=a.api_key={}", "--set=a.api_key="),
        ("--at=https://h/x?X-Amz-Signature={}&page=2", "&page=2"),
        ('--conf {{"api_key":"{}","lr":0.1}}', '"lr":0.1'), ("--conf {{api_key:{},lr:0.1}}", "lr:0.1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("secret", ["hunter2!", "Sup3r.Secret-Value", HEX[:40], "p@ss"])
def test_the_name_before_it_gives_it_away(words: str, kept: str, secret: str) -> None:
    found = " ".join(masked(words.format(secret).split(" ")))
    assert secret not in found and MASK in found and kept in found


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--pass {}", "--pass"), ("--pw={}", "--pw="), ("--db-pw {} x", "x"), ("--login bob:{}", "--login"),
        ("--user bob:{}", "--user"), ("curl -u bob:{} https://h/x", "curl -u bob:"),
        ("/bin/curl -s -ubob:{}", "-ubob:"), ("curl -su bob:{}", "-su bob:"), ("curl -fsSLubob:{}", "-fsSLubob:"),
        ("--api-key -{} --lr 1", "--lr 1"), ("--api-key= {} train.py", "train.py"), ("--api-keys {} {}2 t.py", "t.py"),
        ("--set api_key {} --lr 1", "--set api_key"), ("--opts lr 1 LOG.API_KEY {}", "--opts lr 1 LOG.API_KEY"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("secret", ["hunter2!", "secretWithDash9", "Sup3r.Secret-Value"])
@pytest.mark.parametrize("in_one", [False, True])
def test_what_else_gives_it_away(words: str, kept: str, secret: str, in_one: bool) -> None:
    said = words.replace("{}", secret)
    if in_one and "= " not in said and "--opts" not in said:
        found = masked(["bash", "-c", f"cd x; {said}"])[2]
    else:
        found = " ".join(masked(said.split(" ")))
    assert secret not in found and MASK in found and kept in found


@pytest.mark.parametrize("said", ["--auth bob S3cretpw1 --lr 1", "--login bob S3cretpw1 --lr 1"])
def test_the_second_word_is_the_password_behind_whose_it_is(said: str) -> None:
    for found in (" ".join(masked(said.split())), masked_text(said)):
        assert "S3cret" not in found and found.endswith(f" {MASK} --lr 1")
    assert masked(["--no-auth", "bob", "S3cretpw1"]) == ["--no-auth", "bob", "S3cretpw1"]


@pytest.mark.parametrize("option", ["-u", "-su", "--user", "-x h --proxy-user"])
def test_behind_curl_any_password_is_one(option: str) -> None:
    said = f"curl {option} bob:correcthorse https://h/x"
    expected = said.replace("correcthorse", MASK)
    assert " ".join(masked(said.split())) == masked_text(said) == expected


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + ALNUM[:34], "ghp_" + ALNUM[:36], "github_pat_" + ALNUM[:22] + "_" + ALNUM, "glpat-" + ALNUM[:20],
        "AKIAIOSFODNN7EXAMPLE", "AIza" + ALNUM[:35], "xoxb-123456789012-abcdef", "sk-" + ALNUM[20:60] + "12",
        "sk-proj-" + ALNUM[:20] + "-" + ALNUM[30:60], "sk-ant-api03-" + ALNUM,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.s1g-n",
        "npm_" + ALNUM[:36], "nvapi-" + ALNUM[:30], "sk_live_" + ALNUM[:24],
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "around", ["{}", "--x {}", "--x={}", "x={}", "--note a,{},b", "https://{}@github.com/a", "'{}'"]
)
def test_its_own_shape_gives_it_away(secret: str, around: str) -> None:
    found = " ".join(masked(around.format(secret).split(" ")))
    assert secret not in found and secret[8:] not in found and MASK in found


def test_inside_longer_words() -> None:
    assert "s3cr3t" not in masked(["bash", "-c", "WANDB_API_KEY=s3cr3t python train.py --lr 1"])[2]
    assert (
        masked(["bash", "-c", "x=1 python t.py --token s3cr3t --lr 1"])[2] == f"x=1 python t.py --token {MASK} --lr 1"
    )
    assert masked_text("--token --api-key s3cr3t") == f"--token --api-key {MASK}"
    assert masked_text("--password=--s3cr3t -x") == f"--password={MASK} -x"
    assert "abcdefgh12" not in masked(["-H", "Authorization: Bearer abcdefgh12"])[1]
    assert "s3cr3t" not in masked(["-H", "X-Api-Key: s3cr3t"])[1]
    assert masked(["-H", "Cookie: sid=s3cr3t; theme=b1g"])[1] == f"Cookie: {MASK}"
    assert masked_text('curl -H "Authorization: token s3cr3t" -o x') == f'curl -H "Authorization: {MASK}" -o x'
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----"
    assert masked([f"a{pem}b"]) == [f"a{MASK}b"]


def test_code_keeps_its_names() -> None:
    for line in (
        "token = next(tokens)",
        "key = batch['key']",
        "password = getpass()",
        "x = d['token']",
        "key: str = 'a'",
    ):
        assert masked_text(line, code=True) == line
        assert masked(["python", "-c", line])[2] == line
    assert masked_text("login(token='abc12', retry=3)", code=True) == f"login(token='{MASK}', retry=3)"
    for line in ("xs.sort(key='name')", "login(key=key)", "login('bob', password)", "f(key='name')", "log(key='abc')"):
        assert masked_text(line, code=True) == line
    assert masked_text("wandb.login(key='abcdef')", code=True) == f"wandb.login(key='{MASK}')"
    assert masked_text('login(relogin=True, key="abcdef")', code=True) == f'login(relogin=True, key="{MASK}")'
    assert masked_text('smtp.login("bob", "abcdef")', code=True) == f'smtp.login("bob", "{MASK}")'
    for whose in ("os.environ['U']", 'getenv("U", "me")', "self.user", "users[0].name"):
        assert masked_text(f"s.login({whose}, 'pw')", code=True) == f"s.login({whose}, '{MASK}')"
    assert masked_text("s.login(f(x), password)", code=True) == "s.login(f(x), password)"
    assert masked_text("os.environ['WANDB_API_KEY'] = \"abc12\"", code=True).endswith(f'= "{MASK}"')


VALUES = st.text(st.sampled_from(ALNUM + "!%^*_.~"), min_size=9, max_size=60).filter(
    lambda v: any(c.isdigit() for c in v) and any(c.isalpha() for c in v) and not v.endswith((".pt", ".py"))
)
NAMES = st.sampled_from(
    ["password", "api-key", "api_key", "hf_token", "token", "client_secret", "wandb-api-key", "passwd", "auth-token"]
)
PLAIN = st.sampled_from(["train.py", "--lr", "0.1", "--fast", "model.depth=3", "-m", "pkg.train", "--", "data/x.csv"])


@given(st.lists(PLAIN, max_size=5), NAMES, VALUES, st.lists(PLAIN, max_size=5), st.sampled_from(["two", "one", "bare"]))
def test_a_named_secret_never_comes_through(
    before: list[str], name: str, value: str, after: list[str], form: str
) -> None:
    middle = {"two": [f"--{name}", value], "one": [f"--{name}={value}"], "bare": [f"{name}={value}"]}[form]
    found = masked([*before, *middle, *after])
    assert value not in " ".join(found)
    assert [*found[: len(before)], *found[len(before) + len(middle) :]] == before + after
    assert masked(found) == found


@given(st.lists(st.text(max_size=40), max_size=8))
def test_it_takes_anything_and_the_second_time_changes_nothing(words: list[str]) -> None:
    found = masked(words)
    assert len(found) == len(words)
    assert masked(found) == found


TRICKY = st.sampled_from(
    "curl -su -subob:hunter2 --auth bob S3cretpw1 -u -U -ubob:hunter2 bob:hunter2 --user --login --set "
    "--opts api_key hf_token --api-keys --tokens a1 s3cret "
    "--api-key= --token= -secretToken9 -secretWithDash9 --password --pass --pw -c -- - = : <redacted> bob:<redacted> "
    "login(key='a1') --api-keys=a1 train.py".split()
)


@given(st.lists(TRICKY, max_size=8))
def test_the_second_time_changes_nothing_among_options_either(words: list[str]) -> None:
    found = masked(words)
    assert masked(found) == found


@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=12), min_size=1, max_size=8))
def test_ordinary_words_are_left_alone(words: list[str]) -> None:
    assert masked(words) == words


@pytest.mark.parametrize(
    "piece",
    [
        "curl ",
        "curl -u a",
        "login(",
        "login(a,",
        ".login(",
        ".login(a['",
        ".login(('",
        "--auth a S1a ",
        "curl -ss",
        "--keys a ",
        "--set a ",
        "--keys ",
        "-a1",
        "sk-",
        "eyJ-",
        'a="',
        "--token ",
        "bearer ",
        "://a:",
        "hf_",
        "A",
        "key=",
        "-",
        "a.",
        "'",
    ],
)
def test_long_words_take_no_more_than_their_length(piece: str) -> None:
    """100,000 characters of what begins like a secret: a pattern that looked back again would take minutes."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    try:
        masked_text(piece * (100_000 // len(piece)))
        masked([piece * (100_000 // len(piece))])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
