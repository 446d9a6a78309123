"""The files of `deploy/`: hardened, consistent with each other, and true to the instruments."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from harness.deploy.addresses import addresses_of, listening_ports
from harness.deploy.composition import COMPOSE, EVERYWHERE, THIS_HOST, is_ours, read_services
from harness.deploy.dashboards import FOLDER, DashboardQuery, read_dashboards, read_queries
from harness.deploy.image import CONTAINERFILE, ROOT, read_image
from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.metrics.kinds import Counter, Histogram
from trunkline.observe.metrics.prometheus import family_name, to_name

DEPLOY: Final = ROOT / "deploy"
SERVICES: Final = read_services()
OURS: Final = {name for name, service in SERVICES.items() if is_ours(service)}
# Their images have no program that could be a probe.
WITHOUT_PROBE: Final = {"collector", "jaeger"}
# Labels that Prometheus adds.
OF_TARGETS: Final = {"job", "instance"}
# Metrics of every process that Prometheus scrapes.
OF_PROCESSES: Final = (
    *("up", "target_info", "process_cpu_seconds_total", "process_resident_memory_bytes"),
    "process_open_fds",
)
PROMQL_WORDS: Final = frozenset(
    ["by", "count", "histogram_quantile", "increase", "or", "rate", "sum", "vector", "label_values"]
)
STRING: Final = re.compile(r'"[^"]*"')
SELECTOR: Final = re.compile(r"(\w+)\{([^}]*)\}")
GROUPING: Final = re.compile(r"by \(([^)]*)\)")


def labels_by_series() -> dict[str, set[str]]:
    """Return the series that a mesh exports, with their labels."""
    series: dict[str, set[str]] = {name: set(OF_TARGETS) for name in OF_PROCESSES}
    for instrument in INSTRUMENTS:
        name = family_name(instrument.name, instrument.unit)
        labels = {to_name(attribute.name) for attribute in instrument.attributes} | OF_TARGETS
        match instrument:
            case Counter():
                series[f"{name}_total"] = labels
            case Histogram():
                series |= {f"{name}_sum": labels, f"{name}_count": labels}
                series[f"{name}_bucket"] = labels | {"le"}
            case _:
                series[name] = labels
    return series


SERIES: Final = labels_by_series()


def find_unknown(query: DashboardQuery) -> Iterator[str]:
    """Yield what a query names and no process exports."""
    expression = STRING.sub('""', query.expression)
    used: list[set[str]] = []
    for name, matchers in SELECTOR.findall(expression):
        if name not in SERIES:
            yield name
            continue
        used.append(SERIES[name])
        yield from set(re.findall(r"(\w+)\s*(?==~|!~|=|!=)", matchers)) - SERIES[name]
    groupings = {word for group in GROUPING.findall(expression) for word in group.split(", ")}
    shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
    common = set.intersection(*used) if used else set()
    yield from (groupings | shown) - common
    yield from shown - groupings if groupings else ()
    rest = GROUPING.sub("", SELECTOR.sub("", expression))
    yield from set(re.findall(r"(?<![\w$])[a-z_]{2,}", rest)) - PROMQL_WORDS


def test_every_query_names_metrics_and_labels_that_exist() -> None:
    queries = read_queries()
    assert len(queries) > 50
    unknown = [
        (query.dashboard, query.panel, word) for query in queries for word in find_unknown(query)
    ]
    assert unknown == []


def test_the_choices_of_dashboards_exist() -> None:
    for name, board in read_dashboards().items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
                assert found, (name, variable)
                assert found[2] in SERIES[found[1]], (name, variable)


@pytest.mark.parametrize(
    "expression",
    [
        'sum(no_such_metric{job=~"$job"})',
        'sum by (colour) (trunkline_hosts{job=~"$job"})',
        'sum(trunkline_hosts{colour="red"})',
        'sum by (le) (trunkline_tasks_created_total{job=~"$job"})',
        'sum(trunkline_hosts{job=~"$job"}) + no_such_metric',
    ],
)
def test_a_query_with_an_unknown_name_is_found(expression: str) -> None:
    query = DashboardQuery("", "", expression, "__auto", frozenset())
    assert list(find_unknown(query))


def test_the_dashboards_are_those_of_the_code(tmp_path: Path) -> None:
    script = str(DEPLOY / "grafana/dashboards.py")
    subprocess.run([sys.executable, script, str(tmp_path)], check=True, timeout=120)
    made = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    committed = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    assert made == committed, "run deploy/grafana/dashboards.py"


def test_the_container_file_has_no_findings() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    result = subprocess.run(
        [str(hadolint), "--no-color", str(CONTAINERFILE)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "")


def test_the_image_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    image = read_image()
    assert image.labels["org.opencontainers.image.version"] == project["version"]
    assert {SERVICES[name]["image"] for name in OURS} == {f"trunkline:{project['version']}"}
    extras = re.search(r"ARG EXTRAS=(\S+)", CONTAINERFILE.read_text(encoding="utf-8"))
    assert extras
    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert {"mem_limit", "cpus", "pids_limit", "restart"} <= service.keys()
    image, _, tag = service["image"].partition(":")
    assert image
    assert re.search(r"\d+\.\d+", tag)
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    if name in OURS:
        assert service["user"] == read_image().user
        assert "/tmp:size=64m,mode=1777" in service["tmpfs"]
    elif name not in WITHOUT_PROBE:
        assert service["healthcheck"]["test"][0] == "CMD"


def test_mounted_files_exist() -> None:
    volumes = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["volumes"]
    for name, service in SERVICES.items():
        for line in service.get("volumes", ()):
            source, _, options = line.partition(":")
            if source.startswith("."):
                assert (COMPOSE.parent / source).exists(), (name, source)
                assert options.endswith(":ro")
            else:
                assert source in volumes


def test_every_address_is_that_of_a_service_which_listens_there() -> None:
    listening = {name: listening_ports(name, service) for name, service in SERVICES.items()}
    wrong = [
        (name, host, port)
        for name, service in SERVICES.items()
        for host, port in addresses_of(service)
        if host not in (EVERYWHERE, THIS_HOST) and port not in listening.get(host, set())
    ]
    assert wrong == []
    for name, service in SERVICES.items():
        for line in service.get("ports", ()):
            assert int(line.rsplit(":", 1)[1]) in listening[name], (name, line)


def test_prometheus_scrapes_every_service_of_ours() -> None:
    text = (DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8")
    jobs = {job["job_name"]: job for job in yaml.safe_load(text)["scrape_configs"]}
    targets = jobs["trunkline"]["static_configs"][0]["targets"]
    assert {target.partition(":")[0] for target in targets} == OURS


def test_the_image_gets_no_other_file_of_a_checkout() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert next(line for line in lines if not line.startswith("#")) == "*"
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINERFILE.read_text(), re.MULTILINE)
    wanted = {word.strip("/") for words in copied for word in words.split()}
    admitted = {line.removeprefix("!").partition("/")[0] for line in lines if line[:1] == "!"}
    assert wanted == admitted
