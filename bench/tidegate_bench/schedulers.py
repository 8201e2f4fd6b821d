"""Schedulers that run the shards of a scenario: GNU parallel, HyperQueue and Slurm."""

import getpass
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from tidegate_bench import program, tidegate
from tidegate_bench.process import Stage
from tidegate_bench.record import ROOT

WORKERS = 2
"""Number of shards that run at the same time."""
DEADLINE_S = 300.0

HYPERQUEUE = ROOT / "out" / "peers" / "hyperqueue" / "bin" / "python"
"""A Python with the package `hyperqueue`, which scripts/setup installs."""

Scheduler = Callable[[list[str], int, Path], None]
"""A function of the arguments of `tidegate lab run`, the number of shards, and a directory for logs. It runs the
command once for each shard."""


def _command(arguments: list[str], shards: int) -> list[str]:
    """Returns the command of a shard. The scheduler replaces `{}` by the number of the shard."""
    return [str(tidegate.built("tidegate")), "lab", "run", *arguments, "--jobs", "1", "--shard", f"{{}}/{shards}"]


def parallel(arguments: list[str], shards: int, logs: Path) -> None:
    """Runs the shards by GNU parallel, two at a time."""
    command = ["parallel", "--will-cite", "--jobs", str(WORKERS), "--joblog", str(logs / "parallel.log")]
    numbers = [str(number) for number in range(1, shards + 1)]
    program.output(*command, *_command(arguments, shards), ":::", *numbers)


def hyperqueue(arguments: list[str], shards: int, logs: Path) -> None:
    """Runs the shards by a HyperQueue server with two workers."""
    jobs = Path(__file__).with_name("hyperqueue_jobs.py")
    program.output(HYPERQUEUE, jobs, logs, WORKERS, shards, *_command(arguments, shards), timeout=DEADLINE_S)


def slurm(arguments: list[str], shards: int, logs: Path) -> None:
    """Runs the shards as the job array scripts/slurm-array, by a Slurm controller with one node of two processors."""
    with Stage() as stage:
        folder = stage.directory
        configuration = folder / "slurm.conf"
        configuration.write_text(_slurm_configuration(folder))
        environment = {"SLURM_CONF": str(configuration), "TIDEGATE": str(tidegate.built("tidegate"))}
        os.environ.update(environment)
        stage.start("slurmctld", ["slurmctld", "-D", "-c"])
        stage.start("slurmd", ["slurmd", "-D", "-c"])
        _wait_for_idle_node()
        output = logs / "slurm-%a.log"
        array = ["--wait", f"--array=1-{shards}", f"--output={output}", str(ROOT / "scripts" / "slurm-array")]
        program.output("sbatch", *array, *arguments, timeout=DEADLINE_S)


def _slurm_configuration(folder: Path) -> str:
    """Returns the configuration of a cluster of this machine alone, without other users and other daemons."""
    host, user = socket.gethostname(), getpass.getuser()
    return dedent(f"""\
        ClusterName=tidegate
        SlurmctldHost={host}(127.0.0.1)
        SlurmUser={user}
        SlurmdUser={user}
        AuthType=auth/none
        CredType=cred/none
        ProctrackType=proctrack/pgid
        TaskPlugin=task/none
        SelectType=select/cons_tres
        SelectTypeParameters=CR_CPU
        SchedulerParameters=sched_interval=1
        ReturnToService=2
        SlurmctldPort={_free_port()}
        SlurmdPort={_free_port()}
        StateSaveLocation={folder}/state
        SlurmdSpoolDir={folder}/spool
        SlurmctldPidFile={folder}/slurmctld.pid
        SlurmdPidFile={folder}/slurmd.pid
        SlurmctldLogFile={folder}/slurmctld.log
        SlurmdLogFile={folder}/slurmd.log
        NodeName={host} NodeAddr=127.0.0.1 CPUs={WORKERS} State=UNKNOWN
        PartitionName=all Nodes={host} Default=YES MaxTime=10 State=UP
        """)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for_idle_node() -> None:
    for _ in range(100):
        if program.output("sinfo", "--noheader", "--format=%T", ok=(0, 1)).strip() == "idle":
            return
        time.sleep(0.2)
    raise SystemExit("no node of Slurm is idle after 20 s")


ALL: dict[str, Scheduler] = {"parallel": parallel, "hyperqueue": hyperqueue, "slurm": slurm}
