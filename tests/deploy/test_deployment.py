import json
import shutil
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import build
from stabmon.server.discovery import SUFFIX
from stabmon.settings import Settings
from tests.deploy.programs import program

HERE = build.HERE
COMPOSE = yaml.safe_load((HERE / "compose.yaml").read_text(encoding="utf-8"))
JOB = yaml.safe_load((HERE / "kubernetes" / "training.yaml").read_text(encoding="utf-8"))
POD = JOB["spec"]["template"]


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("file", sorted(HERE.rglob("*.yaml")), ids=lambda file: str(file.relative_to(HERE)))
def test_every_yaml_file_can_be_read(file: Path) -> None:
    assert [*yaml.safe_load_all(file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("file", ["prometheus/prometheus.yaml", "compose/prometheus.yaml"])
def test_promtool_accepts_whole_configurations_with_their_rules(file: str, tmp_path: Path) -> None:
    text = (HERE / file).read_text(encoding="utf-8").replace("/run/secrets/stabmon-token", str(tmp_path / "token"))
    (tmp_path / "token").write_text("secret")
    (tmp_path / "prometheus.yaml").write_text(text)
    shutil.copy(HERE / "prometheus" / "rules.yaml", tmp_path)
    done = promtool("check", "config", tmp_path / "prometheus.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


SCRAPES = sorted((HERE / "prometheus" / "scrape").glob("*.yaml"))


@pytest.mark.parametrize("file", SCRAPES, ids=lambda file: file.stem)
def test_promtool_accepts_every_way_to_find_trainings(file: Path, tmp_path: Path) -> None:
    text = file.read_text(encoding="utf-8")
    # Debian builds Prometheus without Kubernetes' discovery; the rest of the file is looked at.
    (tmp_path / "scrape.yaml").write_text(text.replace("kubernetes_sd_configs: [{role: pod}]", "static_configs: []"))
    done = promtool("check", "config", "--syntax-only", tmp_path / "scrape.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert job["job_name"] == "stabmon"
    assert (job["sample_limit"], job["label_limit"]) == (50000, 30)
    # Without the type, Prometheus 2.42 sends http_sd's token without "Bearer".
    bearers = [job["authorization"], *(sd["authorization"] for sd in job.get("http_sd_configs", ()))]
    assert {bearer["type"] for bearer in bearers} == {"Bearer"}


def test_files_that_prometheus_looks_for_are_those_that_a_run_writes() -> None:
    (job,) = yaml.safe_load((HERE / "prometheus/scrape/file_sd.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    assert job["file_sd_configs"][0]["files"] == [f"/shared/stabmon/*{SUFFIX}"]
    assert "STABMON_FOLDER=/shared/stabmon\n" in (HERE / "slurm" / "train.sbatch").read_text(encoding="utf-8")


def test_what_compose_mounts_is_there_and_what_it_names_is_defined() -> None:
    for name, service in COMPOSE["services"].items():
        for mount in service.get("volumes", ()):
            source, target, *_ = mount.split(":")
            assert target.startswith("/")
            assert source in COMPOSE["volumes"] or (HERE / source).exists(), (name, source)
        for secret in service.get("secrets", ()):
            assert (secret["source"] if isinstance(secret, dict) else secret) in COMPOSE["secrets"]
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (HERE / COMPOSE["services"]["demo"]["build"]["context"] / "deploy/compose/Dockerfile").exists()


def test_services_of_compose_call_each_other_by_the_names_they_have() -> None:
    config = yaml.safe_load((HERE / "compose" / "prometheus.yaml").read_text(encoding="utf-8"))
    (scrape,) = config["scrape_configs"]
    (alerting,) = config["alerting"]["alertmanagers"]
    called = [scrape["static_configs"][0]["targets"][0], alerting["static_configs"][0]["targets"][0]]
    assert called == ["demo:7466", "alertmanager:9093"]
    # The demo answers by its host name; another one is refused.
    assert COMPOSE["services"]["demo"]["hostname"] == "demo"
    paths = {mount.split(":")[1] for mount in COMPOSE["services"]["alertmanager"]["volumes"]}
    assert paths == {"/etc/alertmanager/alertmanager.yaml", "/etc/alertmanager/stabmon.tmpl"}
    (secret,) = COMPOSE["services"]["alertmanager"]["secrets"]
    receivers = (HERE / "alertmanager" / "alertmanager.yaml").read_text(encoding="utf-8")
    assert f"api_url_file: {secret['target']}\n" in receivers


def settings_in(text: str) -> Iterator[str]:
    yield from (word.split("=")[0] for word in text.split() if word.startswith("STABMON_") and "=" in word)


def test_every_setting_that_is_given_is_one() -> None:
    names = [*COMPOSE["services"]["demo"]["environment"], *(e["name"] for e in container()["env"])]
    names += settings_in((HERE / "slurm" / "train.sbatch").read_text(encoding="utf-8"))
    given = {name.removeprefix("STABMON_").lower() for name in names if name.startswith("STABMON_")}
    assert given <= Settings.model_fields.keys()
    assert {"host", "token_file", "folder", "labels", "run", "port"} <= given


def container() -> dict[str, Any]:
    (one,) = POD["spec"]["containers"]
    found: dict[str, Any] = one
    return found


def test_the_pod_meets_the_restricted_standard_and_writes_nowhere_but_to_its_volumes() -> None:
    pod, own = POD["spec"]["securityContext"], container()["securityContext"]
    assert (pod["runAsNonRoot"], pod["seccompProfile"]["type"]) == (True, "RuntimeDefault")
    assert pod["runAsUser"] > 0
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not POD["spec"]["automountServiceAccountToken"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert mounted == {"runs": "/runs", "tmp": "/tmp", "token": "/etc/stabmon"}
    assert mounted.keys() == {volume["name"] for volume in POD["spec"]["volumes"]}


def test_the_pod_monitor_finds_the_pod() -> None:
    spec = yaml.safe_load((HERE / "kubernetes" / "podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    assert spec["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container()["ports"]}
    secrets = {volume["secret"]["secretName"] for volume in POD["spec"]["volumes"] if "secret" in volume}
    assert {endpoint["authorization"]["credentials"]["name"]} == secrets


def test_kubectl_knows_every_field_of_the_job() -> None:
    """Its types drop a field that they do not know. It needs no cluster for that; kubectl is no Debian package."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    set_image = [kubectl, "set", "image", "--local", "-o", "json", "-f", "-", "training=registry.example/training:2"]

    def read(job: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(set_image, input=json.dumps(job), capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    expected = json.loads(json.dumps(JOB).replace("training:1", "training:2"))
    assert missing(expected, read(JOB)) == []
    slip = json.loads(json.dumps(JOB).replace("runAsNonRoot", "runAsNoRoot"))
    assert missing(slip, read(slip)) == ["runAsNoRoot", "training:1"]


def missing(wanted: Any, found: Any, name: str = "") -> list[str]:
    """Names of what `found` lacks of `wanted`, and values that differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [*chain.from_iterable(missing(v, found.get(k, ...), k) for k, v in wanted.items())]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [*chain.from_iterable(missing(w, f, name) for w, f in zip(wanted, found, strict=True))]
    return [] if wanted == found else [name if found is ... else str(wanted).rpartition("/")[2]]


def test_dashboards_in_config_maps_are_those_of_the_files_and_fit() -> None:
    maps = [*yaml.safe_load_all((HERE / "kubernetes" / "dashboards.yaml").read_text(encoding="utf-8"))]
    held = dict(chain.from_iterable(one["data"].items() for one in maps))
    files = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in build.BOARDS.glob("*.json")}
    assert {name: json.loads(text) for name, text in held.items()} == files
    assert len(files) == 6
    # `kubectl apply` keeps a copy in an annotation of 256 KiB at most.
    assert max(len(text) for text in held.values()) < 200_000


def test_the_rule_resource_holds_the_rules_of_the_file() -> None:
    resource = yaml.safe_load((HERE / "kubernetes" / "prometheusrule.yaml").read_text(encoding="utf-8"))
    assert resource["spec"] == yaml.safe_load((HERE / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))


def test_the_page_of_this_folder_tells_of_every_alert() -> None:
    page = (HERE / "README.md").read_text(encoding="utf-8")
    counts = f"{len(build.alerts())} alerts and {len(build.RECORDED)} recording rules"
    assert counts in page
    told = chain.from_iterable(
        line.split("|")[1].split(",") for line in page.splitlines() if line.startswith("| Stabmon")
    )
    assert {name.strip() for name in told} == {rule.name for rule in build.alerts()}
