"""Kubernetes as a backend: the contract, what a cluster is asked for, and what it may do to us.

There is no cluster here: the API server is ours, and its pods are containers of the Docker engine
(``tests/support/cluster.py``). The client is the official one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timezone
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import EngineUnavailable, ImageError, SandboxBroken, SandboxError
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.kubernetes import engine as kubernetes_engine
from pytest_intercode.sandboxes.kubernetes import manifests
from pytest_intercode.sandboxes.kubernetes.cluster import Cluster, ClusterError
from pytest_intercode.sandboxes.kubernetes.engine import KubernetesEngine
from pytest_intercode.sandboxes.kubernetes.images import ClusterImages
from pytest_intercode.sandboxes.kubernetes.pod import Pod
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.platform import owner_name
from pytest_intercode.testing import BackendUnderTest, SandboxContract
from pytest_intercode.testing.fixtures import SOON, output_of, pack
from tests.support.backends import SOURCE
from tests.support.cluster import ApiServer, schema_problems
from tests.support.image_registry import ImageRegistry
from tests.support.second_engine import make_certificates

PAGE = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
[ROLE] = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
_LONG_AGO = "2020-01-01T00:00:00Z"


class Launch(Protocol):
    """Starts a fresh sandbox; it is closed when the test is over."""

    def __call__(self, **spec: Any) -> Pod: ...


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with (
        pytest.MonkeyPatch.context() as patch,
        ApiServer(tmp_path_factory.mktemp("cluster"), ROLE) as server,
    ):
        patch.setenv("KUBECONFIG", str(server.kubeconfig))
        yield server


@pytest.fixture(scope="module")
def engine(server: ApiServer) -> Iterator[KubernetesEngine]:
    with closing(KubernetesEngine(SandboxSettings("kubernetes"))) as engine:
        yield engine


@pytest.fixture
def launch(engine: KubernetesEngine, bash_image: str) -> Iterator[Launch]:
    sandboxes: list[Pod] = []

    def start_one(**spec: Any) -> Pod:
        sandboxes.append(engine.launch(SandboxSpec(bash_image, **spec)))
        return sandboxes[-1]

    yield start_one
    for sandbox in sandboxes:
        sandbox.close()


def await_true(is_so: Callable[[], object]) -> None:
    limit = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.02)


def new_items(server: ApiServer, known: set[str]) -> set[str]:
    """Name what a cluster has; what earlier tests have left may go meanwhile."""
    return {name for items in server.items.values() for name in items} - known


@pytest.mark.slow
class TestContract(SandboxContract):
    @pytest.fixture
    def under_test(self, engine: KubernetesEngine, bash_image: str) -> BackendUnderTest:
        return BackendUnderTest(engine, bash_image)

    def test_processes(self, small: Sandbox) -> None:
        """Here, the limit is the kubelet's: no pod can ask for one."""
        start = "for n in $(seq 150); do sleep 1000 & done 2>&1; sleep 1000"
        assert b"Resource temporarily unavailable" in small.run(start, 5.0).output
        assert output_of(small, "ls /proc/self/fd >/dev/null && echo forked") == "forked\n"


@pytest.mark.slow
def test_bytes_in_both_directions(launch: Launch) -> None:
    """Every day, in place of the contract: frames of all sizes, and more than a socket takes."""
    sandbox = launch()
    data = bytes(range(256)) * 4096
    sandbox.unpack(pack(("data", data)))
    assert sandbox.run("head -c 200 /data", SOON).output == data[:200]
    assert sandbox.run("cat /data /data", SOON).digest == sha256(2 * data).hexdigest()
    assert output_of(sandbox, f"x={'y' * 200_000}; echo ${{#x}}") == "200000\n"
    assert sandbox.run("yes", 60).ended == "flood"
    assert output_of(sandbox, "echo ${#x}; tail -n +3 /proc/net/dev | wc -l") == "200000\n1\n"
    sandbox.mark()
    output_of(sandbox, "echo new >/new")
    assert set(sandbox.changes().entries) == {"/new"}


# -- which cluster it is


def test_a_context_is_named_where_none_is_the_current_one(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(server.kubeconfig.read_text())
    del config["current-context"]
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    cluster = Cluster("tests")
    assert (cluster.label, cluster.namespace) == ("of the context tests", "agents")
    assert cluster.read_pod("none") is None
    cluster.close()
    with pytest.raises(EngineUnavailable, match=r"^no cluster: .*current-context"):
        Cluster()


@pytest.mark.parametrize(
    "text", ["{", "a: b: c", "[]", "7", "contexts: 7", "current-context: a\ncontexts: [{}]", ""]
)
def test_what_is_not_a_kubeconfig_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    with pytest.raises(EngineUnavailable, match=r"^no cluster: ") as error:
        Cluster("a")
    assert "\n" not in str(error.value)


def test_a_certificate_that_is_not_accepted_is_not_asked_for_again(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path)
    config = json.loads(server.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = str(tmp_path / "client/ca.pem")
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    began = time.monotonic()
    with closing(Cluster()) as cluster, pytest.raises(ClusterError, match="certificate verify"):
        cluster.read_pod("none")
    assert time.monotonic() - began < SOON


def test_a_cluster_that_says_nothing_is_waited_for_as_long_as_was_said(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = json.loads(server.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        began = time.monotonic()
        with closing(Cluster()) as cluster, pytest.raises(ClusterError, match="does not answer"):
            cluster.list_all("pod", "a=b", 1.0)
        assert time.monotonic() - began < 10.0


# -- what a cluster is asked for


def test_what_a_cluster_is_asked_for() -> None:
    settings = SandboxSettings(
        "kubernetes", runtime="gvisor", kube_pull_secrets=["mirror"], kube_nodes={"pool": "agents"}
    )
    spec = SandboxSpec("debian", scratch=("/work",), variables=(("PRICE", "$(HOME) $5"),))
    manifest = manifests.pod("name", spec, "run", "owner", settings, "arm64")
    pod, [container] = manifest["spec"], manifest["spec"]["containers"]
    assert not schema_problems(manifest, "V1Pod")
    assert (pod["automountServiceAccountToken"], pod["restartPolicy"]) == (False, "Never")
    assert pod["activeDeadlineSeconds"] == manifests.DEADLINE
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    selector = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "pool": "agents"}
    assert pod["nodeSelector"] == selector
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName"} & pod.keys()
    assert all(volume.keys() == {"name", "emptyDir"} for volume in pod["volumes"])
    assert container["resources"]["limits"] == {
        **{"cpu": "1000m", "memory": str(512 * 1024**2)},
        **{"ephemeral-storage": str(10 * 1024**3)},
    }
    assert container["env"] == [{"name": "PRICE", "value": "$$(HOME) $$5"}]
    for policy in manifests.policies("run", "owner"):
        assert not schema_problems(policy, "V1NetworkPolicy")
        assert policy["spec"]["ingress"] == []


def test_no_credentials_of_a_machine_are_reached() -> None:
    rules = [p["spec"]["egress"] for p in manifests.policies("run", "owner")]
    [targets] = [rule["to"] for rules_of_one in rules for rule in rules_of_one[:1]]
    blocks = [ip_network(text) for item in targets for text in item["ipBlock"]["except"]]
    for address in (
        *("169.254.169.254", "169.254.169.252", "169.254.170.2", "169.254.170.23"),
        *("169.254.0.23", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe"),
    ):
        assert any(ip_address(address) in block for block in blocks), address
    # What a cache of names on each node has is no credential.
    assert not any(ip_address("169.254.20.10") in block for block in blocks)


@pytest.mark.parametrize(
    ("programs", "listens", "status"),
    [
        (("bash", "timeout", "sleep"), True, 4),
        (("bash", "timeout", "sleep"), False, 0),
        (("bash", "sleep"), True, 5),
    ],
)
def test_a_network_that_cannot_be_tried_is_not_taken_for_none(
    tmp_path: Path, programs: tuple[str, ...], listens: bool, status: int
) -> None:
    for program in programs:
        path = shutil.which(program)
        assert path is not None
        (tmp_path / program).symlink_to(path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not listens:
            listener.close()
        environment = {
            **{"PATH": str(tmp_path), "KUBERNETES_SERVICE_HOST": "127.0.0.1"},
            "KUBERNETES_SERVICE_PORT": str(port),
        }
        script = kubernetes_engine._NETWORK_PROBE.replace("{tries}", "1")
        run = subprocess.run(["bash", "-c", script], env=environment, check=False)
    assert run.returncode == status


def test_the_schema_sees_what_it_should() -> None:
    pod: dict[str, Any] = {"spec": {"containers": [{"name": "one", "stdln": True}]}}
    assert schema_problems(pod, "V1Pod") == ["V1Pod.spec.containers[0].stdln"]
    pod["spec"]["containers"][0] = {"name": 1}
    [problem] = schema_problems(pod, "V1Pod")
    assert "valid string" in problem


def test_the_role_has_what_is_used_and_no_more(server: ApiServer, launch: Launch) -> None:
    launch().close()
    settings = SandboxSettings("kubernetes")
    idle_engine = KubernetesEngine(settings)
    idle_engine.sweep()
    idle_engine._create_policies()
    idle_engine.close()
    assert ("", "pods", "get") in server.granted
    idle_engine.cluster.read_pod("none")
    assert server.used == server.granted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("pods", 'User "ada" cannot create resource "pods"; docs/kubernetes.md shows the Role'),
        ("networkpolicies", 'cannot create resource "networkpolicies"'),
        ("pods/attach", 'cannot create resource "pods/attach"'),
    ],
)
def test_what_is_forbidden_is_named(
    server: ApiServer, launch: Launch, monkeypatch: pytest.MonkeyPatch, resource: str, words: str
) -> None:
    monkeypatch.setattr(
        server, "granted", {right for right in server.granted if right[1:] != (resource, "create")}
    )
    with pytest.raises(SandboxError, match=re.escape(words)):
        KubernetesEngine(SandboxSettings("kubernetes")).launch(SandboxSpec(launch().spec.image))


# -- before anything has acted, it is tried again


@pytest.mark.slow
def test_a_busy_cluster_is_asked_again(server: ApiServer, launch: Launch) -> None:
    server.busy, server.failing, server.lost_answers = 2, 1, 1
    assert output_of(launch(), "echo ready") == "ready\n"
    assert (server.busy, server.failing, server.lost_answers) == (0, 0, 0)


def test_a_watch_that_is_gone_begins_again(server: ApiServer, launch: Launch) -> None:
    server.gone_watches = 2
    assert output_of(launch(), "echo ready") == "ready\n"
    assert server.gone_watches == 0


@pytest.mark.parametrize(
    "answer", ["<html>\n<body>Log in</body>", "", "no", "[]", "{}", '{"type": "ADDED"}\n', "7\n"]
)
def test_what_is_not_an_answer_of_a_cluster_is_one_line(server: ApiServer, answer: str) -> None:
    cluster = Cluster()
    server.foreign_answer = answer
    requests: list[Callable[[], object]] = [
        lambda: cluster.read_pod("name"),
        lambda: cluster.list_all("pod", "a=b"),
        lambda: cluster.create("pod", {}),
        # A line without its end is no event; a read follows a watch without events.
        *([lambda: list(cluster.watch_pod("name"))] if "\n" in answer else []),
    ]
    try:
        for request in requests:
            with pytest.raises(
                ClusterError, match=r"does not speak its API \(a proxy\?\); check that"
            ) as error:
                request()
            assert "\n" not in str(error.value)
        assert not cluster.delete("pod", "name")
    finally:
        server.foreign_answer = None
        cluster.close()


@pytest.mark.slow
def test_an_attach_that_is_lost_at_once(server: ApiServer, launch: Launch) -> None:
    launch()
    pods = set(server.items["pods"])
    server.lost_attaches = 2
    sandbox = launch()
    assert output_of(sandbox, "echo ready") == "ready\n"
    await_true(lambda: set(server.items["pods"]) == pods | {sandbox.name})
    server.lost_attaches = 3
    with pytest.raises(
        SandboxError, match="does not start as a sandbox: the connection to it was lost"
    ):
        launch()


@pytest.mark.slow
def test_a_pod_that_waits_for_a_node(server: ApiServer, launch: Launch) -> None:
    server.unschedulable = True
    with ThreadPoolExecutor(1) as threads:
        start = threads.submit(launch)
        await_true(lambda: "Insufficient memory" in json.dumps(server.items["pods"]))
        assert not start.done()
        server.schedule()
        assert output_of(start.result(SOON), "echo ready") == "ready\n"


@pytest.mark.slow
def test_watches_that_end_at_once_are_not_begun_again_without_a_pause(
    server: ApiServer, launch: Launch
) -> None:
    server.unschedulable = server.short_watches = True
    with ThreadPoolExecutor(1) as threads:
        start = threads.submit(launch)
        await_true(lambda: "Insufficient memory" in json.dumps(server.items["pods"]))
        first = len(server.requests)
        time.sleep(3)
        requests = server.requests[first:]
        server.schedule()
        assert output_of(start.result(SOON), "echo ready") == "ready\n"
    server.short_watches = False
    assert len(requests) <= 8, requests  # a watch and a reading each second


@pytest.mark.slow
def test_a_namespace_that_is_full(server: ApiServer, launch: Launch) -> None:
    first = launch()
    server.quota = len(server.items["pods"])
    try:
        with ThreadPoolExecutor(1) as threads:
            refused = len(server.requests)
            start = threads.submit(launch)
            await_true(lambda: server.requests[refused:] != [])
            first.close()
            assert output_of(start.result(SOON), "echo ready") == "ready\n"
    finally:
        server.quota = 1000


def test_credentials_that_expire(server: ApiServer, launch: Launch) -> None:
    sandbox = launch()
    server.renew_token()
    assert output_of(launch(), "echo ready") == "ready\n"
    server.renew_token(known=False)
    assert output_of(sandbox, "echo ready") == "ready\n"  # what is attached stays so
    with pytest.raises(
        SandboxError, match=r"credentials, which may have expired .* log in"
    ) as error:
        launch()
    assert "token-" not in str(error.value)
    server.renew_token()


def test_an_image_that_cannot_be_had(engine: KubernetesEngine) -> None:
    with pytest.raises(SandboxError, match=r"^no-such-image does not .* ImagePullBackOff: failed"):
        engine.launch(SandboxSpec("no-such-image"))


@pytest.mark.slow
def test_an_image_without_a_shell(engine: KubernetesEngine, docker_engine: DockerEngine) -> None:
    docker_engine.api.import_image_from_data(pack(("file", b"")), "intercode-no-shell", "1")
    with pytest.raises(SandboxError, match=r"it needs bash and setpriv \(StartError: .*bash"):
        engine.launch(SandboxSpec("intercode-no-shell:1"))
    docker_engine.api.remove_image("intercode-no-shell:1")


@pytest.mark.slow
def test_a_network_plugin_that_enforces_nothing(
    server: ApiServer, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.kubelet, "enforces", False)
    monkeypatch.setattr(kubernetes_engine, "_PROBE_TRIES", 1)
    with pytest.raises(SandboxError, match="network plugin does not enforce NetworkPolicies"):
        launch()
    assert output_of(launch(limits=Limits(network=True)), "echo ready") == "ready\n"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"readonly": (("/usr", "/opt/usr"),)}, "shares no folder"),
        ({"limits": Limits(hosts=("example.org",))}, "no limited network"),
    ],
)
def test_what_a_pod_cannot_have(launch: Launch, values: dict[str, Any], words: str) -> None:
    with pytest.raises(SandboxError, match=words):
        launch(**values)


# -- once something has acted


def _lose(server: ApiServer, sandbox: Pod, how: str) -> None:
    if how == "lost":
        server.drop_attaches()
    elif how == "deleted":
        server.remove(sandbox.name)
    else:
        server.evict(sandbox.name, how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("lost", "the connection to it was lost"),
        ("deleted", "somebody has deleted its pod"),
        ("The node was low on resource: memory.", "its node has evicted it: The node was low"),
    ],
)
def test_what_a_cluster_does_is_not_the_agents_fault(
    server: ApiServer, launch: Launch, how: str, words: str
) -> None:
    sandbox = launch()
    output_of(sandbox, "echo acted")
    _lose(server, sandbox, how)
    with pytest.raises(SandboxError, match=re.escape(words)):
        sandbox.run("echo again", SOON)


def test_a_full_disk_is_the_agents_fault(server: ApiServer, launch: Launch) -> None:
    sandbox = launch()
    output_of(sandbox, "echo acted")
    _lose(
        server, sandbox, "Pod ephemeral local storage usage exceeds the total limit of containers"
    )
    with pytest.raises(SandboxBroken):
        sandbox.run("echo again", SOON)


@pytest.mark.slow
def test_an_idle_pod_that_is_lost_is_given_to_nobody(
    server: ApiServer, engine: KubernetesEngine, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, other = launch(), launch()
    dropped: list[Pod] = []
    events = BackendEvents(
        drop=lambda is_lost: dropped.extend(pod for pod in (sandbox, other) if is_lost(pod))
    )
    monkeypatch.setattr(engine, "_events", events)
    server.remove(sandbox.name)
    await_true(sandbox.streams.hung_up)
    engine.check_pods()
    assert dropped == [sandbox]
    assert output_of(other, "echo ready") == "ready\n"  # it has had a ping


@pytest.mark.slow
def test_the_older_protocol(
    server: ApiServer, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "protocols", ("v4.channel.k8s.io",))
    sandbox = launch()
    assert output_of(sandbox, "echo ready") == "ready\n"
    sandbox.close()
    await_true(lambda: sandbox.name not in server.items["pods"])


# -- what is left

_CLIENT = """
import sys
from pytest_intercode.sandboxes.kubernetes.cluster import Cluster, ClusterError
from pytest_intercode.sandboxes.kubernetes.engine import KubernetesEngine
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
sandbox = KubernetesEngine(SandboxSettings("kubernetes")).launch(SandboxSpec(sys.argv[1]))
sandbox.run("(trap '' TERM HUP; setsid sleep 1000) & echo", 10)
print(sandbox.name, flush=True)
sandbox.run("sleep 1000", 1000)
"""


@pytest.mark.slow
def test_a_killed_client_leaves_nothing_that_runs(
    server: ApiServer, engine: KubernetesEngine, launch: Launch
) -> None:
    own = launch()
    words = [sys.executable, "-c", _CLIENT, own.spec.image]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        name = client.stdout.readline().strip()
        client.kill()
    await_true(lambda: server.items["pods"][name]["status"]["phase"] == "Failed")
    assert len(server.items["networkpolicies"]) == 4
    assert engine.sweep() == 1
    assert name not in server.items["pods"]
    assert len(server.items["networkpolicies"]) == 2
    assert output_of(own, "echo ready") == "ready\n"


def test_pods_of_other_machines_are_removed_long_after_their_end() -> None:
    def pod(ended: str | None, owner: str = "elsewhere 1 2") -> dict[str, Any]:
        state = {"terminated": {"finishedAt": ended}} if ended else {"running": {}}
        metadata = {"annotations": {manifests.OWNER: owner}, "creationTimestamp": _LONG_AGO}
        return {"metadata": metadata, "status": {"containerStatuses": [{"state": state}]}}

    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    is_left = kubernetes_engine._is_left
    assert [is_left(pod(ended)) for ended in (_LONG_AGO, now, None)] == [True, False, False]
    assert is_left(pod(None, owner_name(os.getpid()).rsplit(" ", 1)[0] + " 1"))


@pytest.mark.slow
def test_an_end_leaves_nothing(server: ApiServer, launch: Launch) -> None:
    image = launch().spec.image
    before = new_items(server, set())
    engine = KubernetesEngine(SandboxSettings("kubernetes"))
    engine.launch(SandboxSpec(image))
    assert new_items(server, before)
    engine.close()
    assert not new_items(server, before)


@pytest.mark.slow
def test_an_end_while_a_pod_waits_for_a_node(server: ApiServer, launch: Launch) -> None:
    image = launch().spec.image
    before = new_items(server, set())
    engine = KubernetesEngine(SandboxSettings("kubernetes"))
    server.unschedulable = True
    with ThreadPoolExecutor(1) as threads:
        start = threads.submit(engine.launch, SandboxSpec(image))
        await_true(lambda: "Insufficient memory" in json.dumps(server.items["pods"]))
        engine.close()
        with pytest.raises(SandboxError, match="the run is over"):
            start.result(SOON)
    server.schedule()
    assert not new_items(server, before)


@pytest.mark.slow
def test_a_long_run_has_rules_when_others_have_removed_them(
    server: ApiServer, engine: KubernetesEngine, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, later = launch().spec.image, time.time() + manifests.DEADLINE
    with closing(KubernetesEngine(SandboxSettings("kubernetes"))) as long_engine:
        long_engine.launch(SandboxSpec(image)).close()
        selector = f"{manifests.RUN_LABEL}={long_engine.run}"
        await_true(lambda: not long_engine.cluster.list_all("pod", selector))
        for rule in long_engine.cluster.list_all("network_policy", selector):
            metadata = server.items["networkpolicies"][rule["metadata"]["name"]]["metadata"]
            metadata["creationTimestamp"] = _LONG_AGO
        engine.sweep()
        assert not long_engine.cluster.list_all("network_policy", selector)
        monkeypatch.setattr(time, "time", lambda: later)
        assert output_of(long_engine.launch(SandboxSpec(image)), "echo ready") == "ready\n"


@pytest.mark.slow
def test_the_end_waits_once_for_a_cluster_that_is_gone(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_engine, "_END_TIMEOUT", 2.0)
    engine = KubernetesEngine(SandboxSettings("kubernetes"))
    server.failing = 1_000_000
    try:
        for number in range(40):
            engine._delete(f"pod-{number}")
        began = time.monotonic()
        engine.close()
        assert time.monotonic() - began < 8.0
    finally:
        server.failing = 0


# -- images


def test_images_that_the_nodes_pull() -> None:
    images = ClusterImages(
        SandboxSettings(platform="linux/arm64", base_images={"python:3": "mirror/python:3"}), print
    )
    assert images.resolve(ImageSource(image="python:3")) == "mirror/python:3"
    assert images.architecture("mirror/python:3") == "arm64"
    with pytest.raises(
        ImageError, match=r"bash.Dockerfile: a cluster builds no images: give --int"
    ):
        images.resolve(SOURCE)


def test_an_image_for_two_processors_is_refused() -> None:
    images = ClusterImages(SandboxSettings(), print)
    arm = ImageSource(image="python:3", platform=Platform("arm64"))
    assert images.resolve(ImageSource(image="python:3")) == "python:3"
    assert images.architecture("python:3") == ""
    assert images.resolve(arm) == images.resolve(ImageSource(image="python:3")) == "python:3"
    assert images.architecture("python:3") == "arm64"
    with pytest.raises(ImageError, match=r"needs it for linux/amd64, another for linux/arm"):
        images.resolve(ImageSource(image="python:3", platform=Platform("amd64")))


@pytest.mark.slow
def test_images_that_are_built_here(
    server: ApiServer, engine: KubernetesEngine, tmp_path: Path
) -> None:
    dockerfile = tmp_path / "small.Dockerfile"
    dockerfile.write_text("FROM debian:bookworm-slim\nRUN echo built >/built\n")
    registry = ImageRegistry(tmp_path)
    images = ClusterImages(SandboxSettings(registry=registry.where), print)
    try:
        name = images.resolve(ImageSource(dockerfile=dockerfile))
    finally:
        images.close()
        registry.stop()
    assert re.fullmatch(rf"{registry.where}/pytest-intercode@sha256:[0-9a-f]{{64}}", name)
    assert images.architecture(name) in ("amd64", "arm64")
    with closing(engine.launch(SandboxSpec(name))) as sandbox:
        assert output_of(sandbox, "cat /built") == "built\n"


# -- a run


@pytest.mark.slow
def test_the_pages_run(server: ApiServer, bash_image: str, pytester: pytest.Pytester) -> None:
    [(name, suite)] = re.findall(r"^```yaml (\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    pytester.path.joinpath(name).write_text(suite)
    [command] = re.findall(r"^    (pytest .*)$", PAGE, re.MULTILINE)
    before = new_items(server, set())
    result = pytester.runpytest_subprocess(
        *command.split()[1:], "--intercode-base-image", f"python:3.12={bash_image}", "-v"
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*kubernetes*"])
    assert any("pods/" in line for line in server.requests)
    assert not new_items(server, before)


# -- what another engine makes of a manifest

_INSIDE = (  # in one line: Podman writes others in a way that it cannot read
    "ulimit -f; ulimit -c; hostname; "
    r"sed -n 's/^\(CapEff\|NoNewPrivs\|Seccomp\):\s*/\1 /p' /proc/self/status; "
    "ls -l /proc/1/fd >/dev/null 2>&1 || echo guarded"
)


@pytest.mark.slow
def test_podman_plays_the_manifest(tmp_path: Path, bash_image: str) -> None:
    """What it starts has the rights and limits that are written; it opens no input."""
    if os.geteuid() or not all(map(shutil.which, ("podman", "runc", "catatonit"))):
        pytest.skip("needs root, podman, runc and catatonit")
    spec = SandboxSpec(f"localhost/{bash_image}", scratch=("/work",))
    manifest = manifests.pod("played", spec, "run", "owner", SandboxSettings("kubernetes"))
    [container] = manifest["spec"]["containers"]
    container["command"] += ["-c", _INSIDE]
    (tmp_path / "pod.json").write_text(json.dumps(manifest))
    storage, engine = tmp_path / "storage.conf", tmp_path / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{tmp_path}/g"\nrunroot = "{tmp_path}/r"\n'
    )
    engine.write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
    )
    places = {"CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_CONF": str(engine)}

    def podman(*words: str) -> str:
        command = ["podman", *words]
        environment = {**os.environ, **places}
        return subprocess.run(
            command, check=True, env=environment, stdout=subprocess.PIPE, text=True
        ).stdout

    archive = str(tmp_path / "image.tar")
    subprocess.run(["docker", "save", "-o", archive, bash_image], check=True)
    try:
        podman("load", "-q", "-i", archive)
        podman("kube", "play", "--network", "none", str(tmp_path / "pod.json"))
        podman("wait", "played-sandbox")
        output = podman("logs", "played-sandbox")
        [facts] = json.loads(podman("inspect", "played-sandbox"))
    finally:
        podman("system", "reset", "--force")
    capabilities = "00000000000000fb"  # the seven lowest but CAP_DAC_READ_SEARCH
    assert output == (
        f"262144\n0\nplayed\nCapEff {capabilities}\nNoNewPrivs 1\nSeccomp 2\nguarded\n"
    )
    limits = facts["HostConfig"]
    assert (limits["Memory"], limits["NanoCpus"]) == (512 * 1024**2, 1_000_000_000)
    assert limits["SecurityOpt"] == ["no-new-privileges"]
