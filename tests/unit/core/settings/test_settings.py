"""Settings come from a file, the environment and flags; errors name the source of a value."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel

from trunkline.core.settings import (
    Budget,
    GraphQLSettings,
    HostPort,
    LimitSettings,
    MeshAddress,
    MessagingSettings,
    MetricsSettings,
    ModelSettings,
    PageSettings,
    PolicySettings,
    ScopeSettings,
    Settings,
    SupervisorSettings,
    TlsSettings,
    TreeSettings,
    advertised_address,
    check_exposure,
    check_optional_url,
    dial_address,
    load_plugin_settings,
    load_settings,
)
from trunkline.errors import ConfigurationError

# A table of a remote agent, to which a row adds a key.
REMOTE = '[remote.x]\nurl = "http://x"\n'


def load(
    folder: Path, toml: str = "", *, env: dict[str, str] | None = None, **flags: object
) -> Settings:
    if toml:
        (folder / "trunkline.toml").write_text(toml, encoding="utf-8")
    return load_settings(flags, environment=env or {}, folder=folder)


def load_error(
    folder: Path, toml: str = "", *, env: dict[str, str] | None = None, **flags: object
) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, toml, env=env, **flags)
    return str(caught.value)


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    toml = 'http = "127.0.0.1:1"\nmesh = "127.0.0.1:2"\nlease_s = 3'
    env = {"TRUNKLINE_MESH": "127.0.0.1:20", "TRUNKLINE_LEASE_S": "30"}
    settings = load(tmp_path, toml, env=env, lease_s=300.0, mesh=None)
    assert settings.http == HostPort("127.0.0.1", 1)
    assert settings.mesh == MeshAddress((HostPort("127.0.0.1", 20),))
    assert settings.lease_s == 300


def test_a_file_named_by_the_environment_is_read_instead(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('default_agent = "echo"', encoding="utf-8")
    settings = load(tmp_path, 'default_agent = "math"', env={"TRUNKLINE_CONFIG": str(other)})
    assert settings.default_agent == "echo"


def test_a_relative_path_in_the_file_is_relative_to_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, 'data_dir = "data"\nmcp_file = "/etc/mcp.json"')
    assert settings.data_dir == tmp_path / "data"
    assert settings.mcp_file == Path("/etc/mcp.json")


@pytest.mark.parametrize(
    ("text", "env", "expected"),
    [
        ("", {}, ("b:b", "a:a")),
        ('agents = ["a:a"]', {}, ("a:a", "b:b")),
        ('agents = ["a:a"]', {"TRUNKLINE_AGENTS": "c:c, d:d"}, ("c:c", "d:d", "b:b", "a:a")),
    ],
)
def test_a_flag_that_may_be_repeated_adds_to_the_list_of_the_other_sources(
    tmp_path: Path, text: str, env: dict[str, str], expected: tuple[str, ...]
) -> None:
    settings = load(tmp_path, text, env=env, agents=["b:b", "a:a"])
    assert settings.agents == expected


def test_every_kind_of_value_is_parsed_from_the_environment(tmp_path: Path) -> None:
    env = {
        "TRUNKLINE_AGENTS": "one:a, two:b",
        "TRUNKLINE_INSECURE": "yes",
        "TRUNKLINE_BODY_LIMIT_BYTES": "2048",
        "TRUNKLINE_SYNCHRONOUS": "full",
        "TRUNKLINE_DATA_DIR": "here",
        "TRUNKLINE_FLUSH_INTERVAL_MS": "0.5",
        "TRUNKLINE_SERVICE_HOST": "not ours",
    }
    settings = load(tmp_path, env=env)
    assert settings.agents == ("one:a", "two:b")
    assert settings.insecure
    assert settings.body_limit_bytes == 2048
    assert settings.synchronous == "full"
    assert settings.data_dir == Path("here")
    assert settings.flush_interval_ms == 0.5


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("lease_s = true", "lease_s: expected a number, got True"),
        ('lease_s = "soon"', "lease_s: Input should be a valid number"),
        ("lease_s = nan", "lease_s: nan is not between 0.1 and 3600"),
        ("lease_s = -1", "lease_s: -1.0 is not between 0.1 and 3600"),
        ("body_limit_bytes = 5000.5", "body_limit_bytes: Input should be a valid integer"),
        ("flush_interval_ms = 6", "is not between 0 and 5"),
        ('http = "8000"', "http: '8000' is not HOST:PORT"),
        ('http = "localhost:http"', "is not a number from 0 to 65535"),
        ('http = "::1:80"', "an IPv6 host stands in brackets"),
        ("mesh = 50051", "mesh: expected HOST:PORT, got 50051"),
        ('insecure = "perhaps"', "insecure: Input should be a valid boolean"),
        ('synchronous = "off"', "synchronous: Input should be 'normal' or 'full'"),
        ("agents = 1", "expected a list of texts"),
        ("agents = [1]", "agents.0: Input should be a valid string"),
        ('public_url = "example.com"', "is not a URL"),
        ('allowed_hosts = ["http://bridge"]', "is not HOST or HOST:PORT"),
        ('allowed_origins = ["https://app.example/"]', "is not SCHEME://HOST"),
        ('allowed_origins = ["null"]', "is not SCHEME://HOST"),
        ('public_grpc = "example.com"', "is not HOST:PORT"),
        ('a2a_grpc = "50052"', "a2a_grpc: '50052' is not HOST:PORT"),
        ('[agent.math]\na2a_grpc = "50061"', "agent.math.a2a_grpc: '50061' is not HOST:PORT"),
        ('[agent.math]\npublic_grpc = "example.com"', "agent.math.public_grpc: "),
        ('data_dir = ""', "expected a path"),
        ("http = ", "is not TOML"),
    ],
)
def test_a_wrong_value_is_reported_with_its_file_and_key(
    tmp_path: Path, toml: str, expected: str
) -> None:
    text = load_error(tmp_path, toml)
    assert text.startswith(str(tmp_path / "trunkline.toml"))
    assert expected in text
    assert "\n" not in text


def test_a_wrong_variable_or_flag_is_reported(tmp_path: Path) -> None:
    assert load_error(tmp_path, env={"TRUNKLINE_HTTP": "x"}).startswith("TRUNKLINE_HTTP: ")
    assert load_error(tmp_path, http="x").startswith("--http: ")
    assert load_error(tmp_path, data_dir="").startswith("--data: ")


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.toml")
    assert load_error(tmp_path, env={"TRUNKLINE_CONFIG": missing}).startswith(
        f"{missing}: cannot be read"
    )


def test_a_wrong_setting_is_reported_by_the_source_that_wins(tmp_path: Path) -> None:
    toml = "lease_s = 3\n[agent.math]\ntimeout_s = 5\n"
    env = {"TRUNKLINE_LEASE_S": "0"}
    assert load_error(tmp_path, toml, env=env).startswith("TRUNKLINE_LEASE_S: ")
    assert load_error(tmp_path, toml, env=env, lease_s=0).startswith("--lease_s: ")
    env = {"TRUNKLINE_AGENT_TIMEOUTS": "math=soon"}
    assert load_error(tmp_path, toml, env=env).startswith("TRUNKLINE_AGENT_TIMEOUTS: math: ")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_loopback_addresses_need_no_permission(host: str) -> None:
    address = HostPort(host, 80)
    assert address.is_loopback
    assert HostPort.parse(str(address)) == address
    check_exposure("http", address, is_allowed=False)


@pytest.mark.parametrize("host", ["172.17.0.1", "192.168.1.1", "example.com", "::"])
def test_other_addresses_are_refused_without_insecure(host: str) -> None:
    address = HostPort(host, 80)
    with pytest.raises(ConfigurationError, match=r"^--http: .*--insecure"):
        check_exposure("http", address, is_allowed=False)
    check_exposure("http", address, is_allowed=True)


def test_credentials_are_required_once_keys_are_configured(tmp_path: Path) -> None:
    assert not Settings().requires_credentials
    assert load(tmp_path, env={"TRUNKLINE_API_KEYS_FILE": "keys.toml"}).requires_credentials
    assert load(tmp_path, env={"TRUNKLINE_JWT_KEYS": "https://issuer/keys"}).requires_credentials
    # Anonymous access together with remote addresses needs `--insecure`.
    environment = {"TRUNKLINE_API_KEYS_FILE": "keys.toml", "TRUNKLINE_ANONYMOUS": "true"}
    assert not load(tmp_path, env=environment).requires_credentials


def test_an_address_of_all_interfaces_is_dialed_on_loopback() -> None:
    assert dial_address("0.0.0.0:70") == "127.0.0.1:70"
    assert dial_address("[::]:70") == "127.0.0.1:70"
    assert dial_address("10.0.0.1:70") == "10.0.0.1:70"


@pytest.mark.parametrize(
    ("listen", "option", "expected"),
    [
        ("127.0.0.1:0", "", "127.0.0.1:77"),
        ("10.0.0.1:70", "", "10.0.0.1:70"),
        ("0.0.0.0:0", "agents.example", "agents.example:77"),
        ("[::]:0", "[fd00::1]", "[fd00::1]:77"),
        ("0.0.0.0:0", "10.0.0.1:99", "10.0.0.1:99"),
        ("127.0.0.1:0", "10.0.0.1", "10.0.0.1:77"),
    ],
)
def test_the_advertised_address_is_the_bound_or_the_configured_one(
    listen: str, option: str, expected: str
) -> None:
    address = advertised_address(HostPort.parse(listen), option, mesh=HostPort("127.0.0.1", 1))
    assert address.with_bound_port("0.0.0.0:77" if listen.endswith(":0") else listen) == expected


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("", "stands for all addresses of this machine.*give --advertise HOST"),
        ("0.0.0.0:0", "name one that others can reach"),
        ("[::]:1", "name one that others can reach"),
        ("http://a", "is not HOST:PORT, or HOST"),
        ("fd00::1", "stands in brackets"),
        ("a:", "is not a number"),
    ],
)
def test_listening_on_all_interfaces_requires_an_advertised_address(
    option: str, problem: str
) -> None:
    everywhere = HostPort.parse("0.0.0.0:0")
    for mesh in (HostPort("127.0.0.1", 1), everywhere):
        with pytest.raises(ConfigurationError, match=f"^--advertise: .*{problem}"):
            advertised_address(everywhere, option, mesh=mesh)


def test_an_agents_timeout_comes_from_its_table_or_from_a_variable(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text("[agent.math]\ntimeout_s = 30\n")
    assert load(tmp_path).agent_timeout_s("math") == 30
    environment = {"TRUNKLINE_AGENT_TIMEOUTS": "echo=2.5, math=7"}
    settings = load(tmp_path, env=environment)
    limits = [settings.agent_timeout_s(name) for name in ("echo", "math", "currency")]
    assert limits == [2.5, 7, None]


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("retains_s", "did you mean retain_s[?] `trunkline config schema` prints all"),
        ("xyzzy", "`trunkline config schema` prints all"),
    ],
)
def test_an_unknown_setting_is_reported_with_a_similar_one(
    tmp_path: Path, key: str, known: str
) -> None:
    (tmp_path / "trunkline.toml").write_text(f"{key} = 1\n")
    with pytest.raises(ConfigurationError, match=f"{key}: no such setting; {known}$"):
        load(tmp_path)


def test_models_and_agent_options_are_tables(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text("""
        model = "openai:big"
        fallbacks = ["anthropic:other", "rules"]
        [models.openai]
        base_url = "http://127.0.0.1:9/v1"
        [models."openai:big"]
        max_tokens = 100
        extra = {seed = 7}
        [agent.math]
        model = "ollama:small"
        deny_tools = ["git/*"]
        check = false
        [agent.math.options]
        precision = 12
    """)
    settings = load(tmp_path)
    assert (settings.model, settings.fallbacks) == ("openai:big", ("anthropic:other", "rules"))
    assert settings.models["openai"].base_url == "http://127.0.0.1:9/v1"
    assert settings.models["openai:big"] == ModelSettings(max_tokens=100, extra={"seed": 7})
    math = settings.agent_options["math"]
    assert (math.model, math.deny_tools, math.check) == ("ollama:small", ("git/*",), False)
    assert (math.options, math.timeout_s) == ({"precision": 12}, None)
    # A variable adds to the agent's table in the file.
    merged = load(tmp_path, env={"TRUNKLINE_AGENT_TIMEOUTS": "math=7"}).agent_options["math"]
    assert (merged.timeout_s, merged.model) == (7, "ollama:small")


@pytest.mark.parametrize(
    ("toml", "problem"),
    [
        ('[models.x]\nbase_url = "x"', "models.x.base_url: 'x' is not a URL"),
        ("[models.x]\nmax_tokens = 0", "models.x.max_tokens: 0 is not between"),
        ("[models.x]\nfirst_token_s = 0", "models.x.first_token_s: 0.0 is not between"),
        ('[models.x]\nkey = "secret"', "models.x.key: no such setting"),
        ('models = "x"', "models: write [models.NAME]"),
        ("limits = 1", "limits: write [limits] as a table into trunkline.toml; its keys are: acc"),
        ("supervisr.a.agents = []", "supervisr: no such setting; did you mean supervisor?"),
        ("limits.rats = 1", "limits.rats: no such setting; there are: account, burst, day_cost, d"),
        ("limits.account.a.rate = 0", "limits.account.a.rate: 0.0 is not between 0.001 and"),
        ("limits.account.a = 1", "limits.account.a: expected a table; its keys are: burst, day_co"),
        ("limits.account = 1", "limits.account: expected a table; its keys are: burst, day_cost"),
        ("limits.account.a.key.k.rate = 1", "limits.account.a.key.k.rate: no such setting"),
        ("limits.day_tokens = 1.5", "limits.day_tokens: "),
        ("policy = 1", "policy: write [policy] as a table into trunkline.toml; its keys are: acc"),
        ("policy.callers = 1", "policy.callers: expected a table"),
        ("policy.callers.math = 1", "policy.callers.math: expected a list of texts"),
        ("policy.account.a.agents = []", "policy.account: no such setting; there are: accounts, "),
        ("policy.accounts.a.agent = []", "policy.accounts.a.agent: no such setting; there are: "),
        ("[agent.math]\noptions = 3", "agent.math.options: expected a table"),
        ("argocd = 3", "argocd: expected a table"),
        ("[agent.math]\ntimeout = 30", "agent.math.timeout: no such setting; there are: "),
        ("[agent.math]\ntimeout_s = 0", "is not between"),
        ("[agent.math]\ntimeout_s = true", "expected a number"),
        ("agent = 3", "write [agent.NAME]"),
        ('weather.url = "https://a"', "weather: no such setting"),
        (
            "tree = 1",
            "tree: write [tree] as a table into trunkline.toml; its keys are: children, ci",
        ),
        ("tree.width = 1", "tree.width: no such setting; there are: children, circles"),
        ("tree.depth = 0", "tree.depth: 0 is not between 1 and 64"),
        ('messaging.url = "http://u:secret@cache"', "starts with redis://"),
        ('store = "mysql://u:secret@a/b"', "store: is not a URL that starts with postgresql://"),
        ('store = "postgresql://u:secret/x@a/b"', "percent-encoded"),
        ('store = "postgresql://u:/secret@a/b"', "must be percent-encoded"),
        ('store = "postgresql://u:secret#x@a/b"', "percent-encoded"),
        ('store = "postgresql://u:secret?x@a/b"', "percent-encoded"),
        ('store = "postgresql://u:secret[x@a/b"', "percent-encoded"),
        ('store = "postgresql://u:secret@x@a/b"', "percent-encoded"),
        ('messaging.mode = "some"', "messaging.mode: "),
        ('messaging.stream = "a b"', "messaging.stream: 'a b' is no name"),
        ("messaging.attempts = 0", "messaging.attempts: 0 is not between 1 and 1"),
        ("messaging.retries = 3", "messaging.retries: no such setting"),
        ("graphql.depth = 31", "graphql.depth: 31 is not between 1 and 30"),
        ("remote = 1", "remote: write [remote.NAME]"),
        ("[remote.x]", "remote.x: write url there"),
        ('remote.x.url = "x"', "remote.x.url: 'x' is not a URL"),
        ('remote.x.url = ""', "remote.x.url: '' is not a URL"),
        ('remote.x.url = "http://a:secret@x"', "remote.x.url: credentials don't belong into a URL"),
        (f'{REMOTE}token = "secret"', "remote.x.token: no such setting"),
        (f"{REMOTE}idle_s = 0", "remote.x.idle_s: 0.0 is not between"),
        (f'{REMOTE}headers = "h"', "remote.x.headers: expected a table"),
        (f'{REMOTE}headers = {{ key = ["secret"] }}', "remote.x.headers.key: "),
        ('tls.cert = "a"', "tls.cert: no such setting; there are: account_prefix, certificate"),
        ('tls = "a"', "tls: write [tls] as a table"),
        ("tls.key = 1", "tls.key"),
        ("scope.a.b = 1", "scope.a.b: no such setting"),
    ],
)
def test_an_error_in_a_table_is_reported_without_secrets(
    tmp_path: Path, toml: str, problem: str
) -> None:
    text = load_error(tmp_path, toml)
    assert problem in text
    assert "secret" not in text.replace("client_secret", "")


class Weather(BaseModel):
    """Settings of a plugin. `argocd` is the name of an installed one."""

    url: Annotated[str, AfterValidator(check_optional_url)] = "https://none"
    ca_file: Path | None = None


def load_weather(folder: Path, toml: str = "", **env: str) -> Weather:
    settings = load(folder, toml)
    return load_plugin_settings("argocd", Weather, settings, environment=env)


def test_variables_override_the_table_of_a_plugin(tmp_path: Path) -> None:
    toml = '[argocd]\nurl = "https://a"\nca_file = "ca.pem"\n'
    weather = load_weather(tmp_path, toml, TRUNKLINE_ARGOCD_URL="https://b")
    assert weather == Weather.model_construct(url="https://b", ca_file=tmp_path / "ca.pem")
    weather = load_weather(tmp_path, TRUNKLINE_ARGOCD_CA_FILE="here.pem", TRUNKLINE_ARGOCD_URL="")
    assert weather == Weather.model_construct(url="https://a", ca_file=Path("here.pem"))


def test_an_error_in_a_plugins_settings_is_reported(tmp_path: Path) -> None:
    for toml, env, problem in (
        ('[argocd]\ntoken = "t"', {}, f"{tmp_path}/trunkline.toml: argocd.token: no such setting"),
        ('[argocd]\nurl = "b"', {}, "argocd.url: 'b' is not a URL"),
        ("[argocd]", {"TRUNKLINE_ARGOCD_URL": "b"}, "TRUNKLINE_ARGOCD_URL: 'b' is not a URL"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            load_weather(tmp_path, toml, **env)
        assert problem in str(caught.value)


def test_the_ping_limit_defaults_to_three_quarters_of_the_lease() -> None:
    assert Settings(lease_s=4).ping_limit_s == 3
    assert Settings(lease_s=4, ping_s=0.5).ping_limit_s == 0.5


def test_every_setting_that_is_no_table_can_be_set_by_a_variable(tmp_path: Path) -> None:
    tables = (
        GraphQLSettings(), LimitSettings(), MessagingSettings(), MetricsSettings(), PageSettings(),
        PolicySettings(), TlsSettings(), TreeSettings(),
    )  # fmt: skip
    for field in fields(Settings):
        default = getattr(Settings(), field.name)
        if default in tables or isinstance(default, dict):
            continue
        variable = f"TRUNKLINE_{field.name.upper()}"
        text = str(not default).lower() if isinstance(default, bool) else "a text"
        try:
            changed = getattr(load(tmp_path, env={variable: text}), field.name)
        except ConfigurationError as error:
            changed = str(error) if variable in str(error) else default
        assert changed != default, variable


def test_limits_are_a_table_of_the_file(tmp_path: Path) -> None:
    toml = """
        [limits]
        rate = 10
        streams = 5
        day_tokens = 1000
        [limits.account.acme]
        rate = 0.5
        [limits.account.acme.key.ci]
        month_cost = 2.5
        [limits.account."a free one"]
        defaults = false
        burst = 3
        [limits.model."openai:gpt-5"]
        day_tokens = 7
    """
    limits = load(tmp_path, toml).limits
    acme = limits.of_account("acme")
    assert (acme.rate, acme.burst, acme.streams, acme.day_tokens) == (0.5, None, 5, 1000)
    free = limits.of_account("a free one")
    assert (free.rate, free.burst, free.streams, free.day_tokens) == (None, 3, None, None)
    assert limits.of_account("another") is limits
    assert limits.of_key("acme", "ci") == Budget(month_cost=2.5)
    assert limits.of_key("acme", "another") is limits.of_key("another", "ci") is None
    assert limits.model == {"openai:gpt-5": Budget(day_tokens=7)}
    assert limits.has_budgets
    assert limits.has_cost_budgets
    assert not load(tmp_path, "limits.rate = 5").limits.has_budgets
    assert not load(tmp_path, "limits.day_tokens = 5").limits.has_cost_budgets


@pytest.mark.parametrize(
    ("toml", "variables", "setting", "expected"),
    [
        (
            '[supervisor.office]\nagents = ["math", "echo"]\ndescription = "Sums."\n'
            'tags = ["sum"]\ndefault_agent = "math"',
            {},
            "supervisors",
            {
                "office": SupervisorSettings(
                    agents=("math", "echo"),
                    description="Sums.",
                    tags=("sum",),
                    default_agent="math",
                )
            },
        ),
        (
            "[tree]\ndepth = 3\ntokens = 500_000\ncost = 2.5",
            {},
            "tree",
            TreeSettings(depth=3, tokens=500_000, cost=2.5),
        ),
        (
            '[messaging]\nmode = "local"\nattempts = 7\nmiddleware = ["a:B"]',
            {"MESSAGING_URL": "redis://u:secret@cache:6379/1"},
            "messaging",
            MessagingSettings(
                mode="local", attempts=7, middleware=("a:B",), url="redis://u:secret@cache:6379/1"
            ),
        ),
        (
            '[page]\noidc_issuer = "https://id.example"',
            {"PAGE_OPERATORS": "ops, root"},
            "page",
            PageSettings(operators=("ops", "root"), oidc_issuer="https://id.example"),
        ),
        (
            "[graphql]\nenabled = true\ndepth = 7",
            {"GRAPHQL_COST": "100"},
            "graphql",
            GraphQLSettings(enabled=True, depth=7, cost=100),
        ),
        (
            '[scope."tasks:read"]\nmethods = ["read"]\n[scope.math]\nagents = ["math", "m-*"]',
            {},
            "scopes",
            {
                "tasks:read": ScopeSettings(methods=("read",)),
                "math": ScopeSettings(agents=("math", "m-*")),
            },
        ),
    ],
    ids=["supervisors", "tree", "messaging", "page", "graphql", "scopes"],
)
def test_a_setting_is_a_table_of_the_file_and_variables(
    tmp_path: Path, toml: str, variables: dict[str, str], setting: str, expected: object
) -> None:
    env = {f"TRUNKLINE_{name}": value for name, value in variables.items()}
    settings = load(tmp_path, toml, env=env)
    assert getattr(settings, setting) == expected
    assert "secret" not in repr(settings)


def test_remote_agents_are_tables_of_the_file(tmp_path: Path) -> None:
    toml = """
        [remote.scale]
        url = "https://scale.example/a2a"
        token_env = "SCALE_TOKEN"
        hosts = ["api.scale.example"]
        idle_s = 60
        headers = { X-Team = "blue" }
    """
    scale = load(tmp_path, toml).remotes["scale"]
    assert (scale.url, scale.token_env) == ("https://scale.example/a2a", "SCALE_TOKEN")
    assert (scale.hosts, scale.idle_s) == (("api.scale.example",), 60.0)
    assert scale.headers == {"X-Team": "blue"}
    assert "blue" not in repr(scale)


def test_remote_agents_cannot_be_set_by_a_variable(tmp_path: Path) -> None:
    assert "as a table into trunkline.toml" in load_error(tmp_path, env={"TRUNKLINE_REMOTES": "x"})


def test_defaults_alone_are_read_without_the_settings_library(tmp_path: Path) -> None:
    # A process of its own: in this one, other tests have imported everything.
    probe = (
        "import sys; from trunkline.core.settings import Settings, load_settings;"
        "loaded = load_settings({'mesh': None}, environment={'TRUNKLINE_URL': 'x'});"
        "print(loaded == Settings(), 'pydantic_settings' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, cwd=tmp_path
    )
    assert done.stdout.split() == [b"True", b"False"]


def test_any_variable_is_read_if_nothing_else_is_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read: list[object] = []

    def read_settings(**sources: object) -> Settings:
        read.append(sources["environment"])
        return Settings()

    monkeypatch.setattr("trunkline.core.settings.sources.read_settings", read_settings)
    names = ("agent_timeouts", "tls_certificate", *(setting.name for setting in fields(Settings)))
    environments = [{f"TRUNKLINE_{name.upper()}": "any"} for name in names]
    for environment in environments:
        load_settings(environment=environment, folder=tmp_path)
    assert read == environments


def test_tls_is_one_table_whose_paths_start_at_the_file(tmp_path: Path) -> None:
    toml = """
        [tls]
        certificate = "bridge.pem"
        key = "/etc/bridge.key"
        require_client_certificate = true
    """
    tls = load(tmp_path, toml).tls
    assert (tls.certificate, tls.key) == (tmp_path / "bridge.pem", Path("/etc/bridge.key"))
    assert (tls.require_client_certificate, tls.client_roots) == (True, None)


def test_keys_of_tables_have_variables(tmp_path: Path) -> None:
    env = {
        "TRUNKLINE_TLS_KEY": "/run/secrets/key.pem",
        "TRUNKLINE_TLS_REQUIRE_CLIENT_CERTIFICATE": "true",
        "TRUNKLINE_TREE_DEPTH": "3",
        "TRUNKLINE_LIMITS_RATE": "2.5",
    }
    settings = load(tmp_path, '[tls]\ncertificate = "a.pem"\nkey = "b.pem"', env=env)
    assert settings.tls == TlsSettings(
        certificate=tmp_path / "a.pem",
        key=Path("/run/secrets/key.pem"),
        require_client_certificate=True,
    )
    assert (settings.tree.depth, settings.limits.rate) == (3, 2.5)
    error = load_error(tmp_path, env={"TRUNKLINE_TREE_DEPTH": "0"})
    assert error.startswith("TRUNKLINE_TREE_DEPTH: ")


def test_scopes_have_a_variable_with_json(tmp_path: Path) -> None:
    env = {"TRUNKLINE_SCOPES": '{"tasks:read": {"methods": ["read"]}, "math": {"agents": "math"}}'}
    toml = '[scope.math]\nagents = ["m"]\n[scope.all]'
    assert load(tmp_path, toml, env=env).scopes == {
        "tasks:read": ScopeSettings(methods=("read",)),
        "math": ScopeSettings(agents=("math",)),
        "all": ScopeSettings(),
    }
    for text in ("math", "[]", '{"a": 1}', '{"a": {"b": []}}'):
        error = load_error(tmp_path, env={"TRUNKLINE_SCOPES": text})
        assert error.startswith("TRUNKLINE_SCOPES"), error


def test_paths_in_every_table_start_at_the_file(tmp_path: Path) -> None:
    toml = '[remote.scale]\nurl = "https://a.example"\ncard_keys = "keys.json"'
    assert load(tmp_path, toml).remotes["scale"].card_keys == tmp_path / "keys.json"


def test_client_certificates_authenticate_callers(tmp_path: Path) -> None:
    assert load(tmp_path, '[tls]\nclient_roots = "roots.pem"').requires_credentials
    assert not load(tmp_path, '[tls]\ncertificate = "bridge.pem"').requires_credentials
