"""Tests of the counts of dropped datagrams of processes, with a folder in place of /proc."""

from pathlib import Path

from tests.scratch import Scratch
from tidegate_bench import sockets

HEAD = "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops\n"


class DropsTest(Scratch):
    def process(self, pid: int, namespace: int, inode: int, table: dict[int, int]) -> Path:
        """Makes a process with the socket `inode`. `table` has the drops of each inode of its network namespace."""
        place = self.folder / str(pid)
        for folder in ("ns", "fd", "net"):
            (place / folder).mkdir(parents=True)
        (place / "ns/net").symlink_to(f"net:[{namespace}]")
        (place / "fd/3").symlink_to(f"socket:[{inode}]")
        row = "  1: 0100007F:13C4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 {} 2 0 {}\n"
        (place / "net/udp").write_text(HEAD + "".join(row.format(*entry) for entry in table.items()))
        (place / "net/udp6").write_text(HEAD)
        return place

    def test_drops_of_a_process_in_another_network_namespace_are_found(self) -> None:
        self.replace("tidegate_bench.sockets._PROC", self.folder)
        ours, theirs = {100: 1, 101: 20, 102: 300}, {200: 4000, 201: 50_000}
        # Two processes of our namespace. Another process there owns the third socket.
        self.process(1, 11, 100, ours)
        self.process(2, 11, 101, ours)
        self.process(3, 22, 200, theirs)
        self.assertEqual(sockets.drops([1, 2]), 21)
        self.assertEqual(sockets.drops([3]), 4000)
        self.assertEqual(sockets.drops([1, 2, 3]), 4021)
        self.assertEqual(sockets.drops([9]), 0, "a process that has ended")
