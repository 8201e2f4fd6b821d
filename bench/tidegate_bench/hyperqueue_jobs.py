"""Runs a command by HyperQueue for each task of an array. Starts its own server and workers.

    hyperqueue_jobs.py DIR WORKERS TASKS COMMAND...

In COMMAND, `{}` is replaced by the number of the task, from 1 on. Standard output and error of each task go to
files in DIR. Exits with 1 if a task fails. This program needs the package `hyperqueue`, and is therefore not imported
by the rest of tidegate_bench.
"""

import sys
import tempfile
from pathlib import Path

from hyperqueue import Job, LocalCluster  # type: ignore[import-not-found]
from hyperqueue.cluster import WorkerConfig  # type: ignore[import-not-found]


def main(folder: Path, workers: int, tasks: int, command: list[str]) -> None:
    with tempfile.TemporaryDirectory() as server, LocalCluster(server) as cluster:
        for _ in range(workers):
            cluster.start_worker(WorkerConfig(cores=1))
        job = Job(max_fails=0)
        for number in range(1, tasks + 1):
            words = [word.replace("{}", str(number)) for word in command]
            log = str(folder / f"hyperqueue-{number}")
            job.program(words, stdout=f"{log}.out", stderr=f"{log}.err")
        client = cluster.client()
        client.wait_for_jobs([client.submit(job)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
