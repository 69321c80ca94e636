"""Measures the worker against pyarrow, Polars and DuckDB, on one machine in one run.

    make bench
    python tests/bench/bench.py [--repeat 3] [--only join,merge,memory,threads,filters,resume,requests]

The peers are the programs of a baseline folder (SIDECARJOB_BASELINE, or ../shared/baseline
beside the checkout). Programs take turns, so that a busy spell of the machine hits all of
them; each figure is the best of the repeats. Memory is the peak of one more run each.
The data is made once, in SIDECARJOB_BENCH_DATA or ~/.cache/sidecarjob/bench (about 7 GB).
Results are printed and written to results.json there.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import socket
import subprocess
import sys
import time

import data
import manifests
import measure

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sidecarjob"
WORKERS = "2"
MEMORY = "512MiB"


class Bench:
    """Where things are, and what has been found so far."""

    def __init__(self, folder, peers, worker, repeat):
        self.folder, self.peers, self.worker, self.repeat = folder, peers, worker, repeat
        self.scratch = folder / "out"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.table, self.targets = [], []
        self.main, self.index = data.joined(folder, peers, sys.executable)

    def ours(self, manifest, out, *arguments, watch=False, env=None, allowed=(0,), cores=None):
        """One run of the worker into `out`."""
        report = self.scratch / "report.json"
        command = [str(self.worker), "run", str(manifest), "--output-prefix", f"{out}/",
                   "--report", str(report), *arguments]
        for option, value in (("--memory", MEMORY), ("--threads", WORKERS)):
            if option not in arguments:
                command += [option, value]
        return measure.run(command, watch=watch, report=report, env=env, allowed=allowed, cores=cores)

    def peer(self, out, program, *arguments, watch=False):
        command = [sys.executable, "-B", str(self.peers / program), *map(str, arguments),
                   "--out", str(out), "--workers", WORKERS]
        return measure.run(command, cwd=self.peers, watch=watch)

    def contest(self, title, rows, entrants):
        """Lets all entrants run in turn; returns the best figures of each by name."""
        best = {}
        for turn in range(self.repeat + 1):
            watch = turn == self.repeat
            for name, entrant in entrants.items():
                out = self.scratch / name.replace(" ", "-")
                shutil.rmtree(out, ignore_errors=True)
                cost = entrant(out, watch)
                say = cost.report
                found = {
                    "wall_s": cost.wall_s,
                    "cpu_s": cost.cpu_s,
                    # The peers' own clocks leave out the start of their interpreter.
                    "own_wall_s": say.get("wall_s") or cost.wall_s,
                    "work_cpu_s": say.get("work_cpu_s") or timing(say, "shard_cpu_seconds"),
                    "index_cpu_s": timing(say, "index_pass_cpu_seconds"),
                }
                so_far = best.setdefault(name, {"rss_mib": 0, "pss_mib": 0})
                if watch:
                    so_far.update(rss_mib=cost.rss_mib, pss_mib=cost.pss_mib)
                    continue
                for key, value in found.items():
                    if value is not None:
                        so_far[key] = min(value, so_far.get(key, value))
        written = {name: footers(self.scratch / name.replace(" ", "-")) for name in entrants}
        if len(set(written.values())) > 1:
            raise SystemExit(f"bench: {title}: not the same shards and rows: {written}")
        for name, figures in best.items():
            self.table.append({"part": title, "program": name, "rows": rows, **figures})
        return best

    def target(self, what, value, unit, wanted, met):
        self.targets.append({"what": what, "value": value, "unit": unit, "wanted": wanted, "met": met})


def timing(report, name):
    return (report.get("timing") or {}).get(name)


def footers(folder):
    """Shards and rows of a folder, by its footers."""
    import pyarrow.parquet as pq
    files = sorted(folder.rglob("*.parquet"))
    return len(files), sum(pq.ParquetFile(path).metadata.num_rows for path in files)


def join(bench):
    main, index = bench.main / "main", bench.index
    _, rows = footers(main)
    manifest = manifests.write(bench.scratch / "join.yaml", manifests.join(main, index, bench.scratch / "unused"))
    base = ["--main", main, "--index", index]
    best = bench.contest("join", rows, {
        "ours": lambda out, watch: bench.ours(manifest, out, watch=watch),
        "pyarrow fork": lambda out, watch: bench.peer(out, "stage_b.py", *base, watch=watch),
        "pyarrow threads": lambda out, watch: bench.peer(out, "stage_b.py", *base, "--mode", "threads", watch=watch),
        "polars": lambda out, watch: bench.peer(out, "stage_b_polars.py", *base, watch=watch),
        "duckdb": lambda out, watch: bench.peer(out, "stage_b_duckdb.py", *base, watch=watch),
    })
    ours = best["ours"]
    peers = [figures for name, figures in best.items() if name != "ours"]
    cpu = ours["cpu_s"] / min(peer["cpu_s"] for peer in peers)
    bench.target("join: CPU, all of it, to the best peer's", cpu, "", "at most 0.50 (aim: 0.33)", cpu <= 0.5)
    wall = ours["wall_s"] / min(peer["own_wall_s"] for peer in peers)
    bench.target("join: wall time to the best peer's", wall, "", "below 1", wall < 1)
    theirs = min(peer["work_cpu_s"] for peer in peers if peer.get("work_cpu_s"))
    if ours.get("work_cpu_s"):
        ratio = theirs / ours["work_cpu_s"]
        bench.target("join: rows per CPU-second without the index pass, to pyarrow's", ratio, "x", "at least 4",
                     ratio >= 4)
    bench.target("join: peak memory (PSS)", ours["pss_mib"], "MiB", "at most 300", ours["pss_mib"] <= 300)


def merge(bench):
    base = bench.scratch / "pyarrow-fork"
    if not base.exists():
        bench.peer(base, "stage_b.py", "--main", bench.main / "main", "--index", bench.index)
    _, rows = footers(base)
    manifest = manifests.write(
        bench.scratch / "merge.yaml", manifests.merge(base, bench.main, bench.scratch / "unused"))
    siblings = ["--base", base,
                "--from", f"{bench.main}/score_dqm,mode=prefer_sidecar,columns=score_dqm,target_key=image_key",
                "--from", f"{bench.main}/score_aes,mode=prefer_sidecar",
                "--from", f"{bench.main}/recaption,mode=prefer_sidecar,required=0"]
    best = bench.contest("merge", rows, {
        "ours merge": lambda out, watch: bench.ours(manifest, out, watch=watch),
        "merge.py": lambda out, watch: bench.peer(out, "merge.py", *siblings, watch=watch),
    })
    ours, theirs = best["ours merge"], best["merge.py"]
    ratio = theirs["work_cpu_s"] / (ours.get("work_cpu_s") or ours["cpu_s"])
    bench.target("merge: rows per CPU-second of work, to merge.py's", ratio, "x", "at least 6", ratio >= 6)
    ratio = theirs["cpu_s"] / ours["cpu_s"]
    bench.target("merge: CPU, all of it, merge.py's to ours", ratio, "x", "(for comparison)", None)


def memory(bench):
    larger = data.larger_index(bench.folder, bench.index)
    main = bench.main / "main"
    peaks = {}
    for name, index in (("2 M keys", bench.index), ("20 M keys", larger)):
        manifest = manifests.write(bench.scratch / "memory.yaml", manifests.join(main, index, bench.scratch / "unused"))
        runs = []
        for _ in range(2):
            out = bench.scratch / "memory"
            shutil.rmtree(out, ignore_errors=True)
            runs.append(bench.ours(manifest, out, watch=True))
        peak = max(runs, key=lambda cost: cost.pss_mib)
        peaks[name] = peak.pss_mib
        bench.table.append({"part": "memory", "program": f"ours, {name}", "rows": 0, "rss_mib": peak.rss_mib,
                            "pss_mib": peak.pss_mib, "wall_s": min(r.wall_s for r in runs),
                            "cpu_s": min(r.cpu_s for r in runs)})
    small, large = peaks.values()
    bench.target("memory: peak PSS with ten times the keys", large, "MiB", "at most 300", large <= 300)
    ratio = large / small
    bench.target("memory: the same, to that with the smaller index", ratio, "", "at most 1.10", ratio <= 1.1)


def threads(bench):
    manifest = manifests.write(bench.scratch / "threads.yaml", manifests.join(
        bench.main / "main", bench.index, bench.scratch / "unused"))
    def entrant(count, cores=None):
        return lambda out, watch: bench.ours(
            manifest, out, "--threads", str(count), watch=watch, cores=cores)

    # Of one thread for the work, requests and files still go over another core if there is one.
    best = bench.contest("threads", 0, {
        "ours, one thread": entrant(1), "ours, one core": entrant(1, 1), "ours, two threads": entrant(2)})
    two = best["ours, two threads"]["wall_s"]
    speedup = best["ours, one core"]["wall_s"] / two
    bench.target("threads: two against one core, wall time", speedup, "x", "at least 1.8", speedup >= 1.8)
    speedup = best["ours, one thread"]["wall_s"] / two
    bench.target("threads: two against one, wall time", speedup, "x", "(for comparison)", None)


def filters(bench):
    made = data.images(bench.folder, bench.peers, sys.executable)
    main = made / "main"
    _, rows = footers(main)
    for title, ours, theirs, least in (("nine filters", manifests.NINE, [], 2.2),
                                       ("edge density alone", ["edgeDensity"], ["--filters", "edge_density"], 1.6)):
        manifest = manifests.write(bench.scratch / "filters.yaml", manifests.filters(
            main, bench.scratch / "unused", ours))
        megapixels = []

        def peer(out, watch, theirs=theirs, megapixels=megapixels):
            cost = bench.peer(out, "compute_filters.py", "--main", main, *theirs, watch=watch)
            megapixels.append(cost.report["megapixels"])
            return cost

        best = bench.contest(title, rows, {
            f"ours, {title}": lambda out, watch: bench.ours(manifest, out, watch=watch),
            f"ours, {title}, one core": lambda out, watch: bench.ours(
                manifest, out, "--threads", "1", watch=watch, cores=1),
            f"OpenCV, {title}": peer,
        })
        two, one, opencv = best.values()
        # Work to work: the peer's clock leaves out the start of its interpreter.
        speed = megapixels[0] / two["work_cpu_s"]
        bench.target(f"filters: megapixels per CPU-second, {title}", speed, "", "(for sizing)", None)
        ratio = speed / (megapixels[0] / opencv["work_cpu_s"])
        bench.target(f"filters: the same, to OpenCV's, {title}", ratio, "x", f"at least {least}", ratio >= least)
        ratio = opencv["cpu_s"] / two["cpu_s"]
        bench.target(f"filters: CPU, all of it, OpenCV's to ours, {title}", ratio, "x", "(for comparison)", None)
        speedup = one["wall_s"] / two["wall_s"]
        bench.target(f"filters: two threads against one core, wall time, {title}", speedup, "x", "at least 1.9",
                     speedup >= 1.9)
        peak = two["pss_mib"]
        bench.target(f"filters: peak memory (PSS), {title}", peak, "MiB", "at most 300", peak <= 300)
    large = data.large_row_group(bench.folder, made)
    manifest = manifests.write(bench.scratch / "large.yaml", manifests.filters(
        large / "main", bench.scratch / "unused", manifests.NINE))
    out = bench.scratch / "large"
    cost = bench.ours(manifest, out, watch=True)
    bench.table.append({"part": "row group", "program": "ours, 512 images of 5 MB", "rows": data.LARGE_IMAGES,
                        "wall_s": cost.wall_s, "cpu_s": cost.cpu_s, "rss_mib": cost.rss_mib, "pss_mib": cost.pss_mib})
    bench.target("filters: peak memory (PSS), a row group of 2.7 GB", cost.pss_mib, "MiB", "at most 300",
                 cost.pss_mib <= 300)


def resume(bench):
    tiny = data.tiny_shards(bench.folder, bench.main, bench.index)
    out = bench.scratch / "resume"
    manifest = manifests.write(bench.scratch / "resume.yaml", manifests.join(tiny / "main", tiny / "index", out))
    first = bench.ours(manifest, out)
    again = min((bench.ours(manifest, out) for _ in range(bench.repeat)), key=lambda cost: cost.wall_s)
    for name, cost in (("ours, first run", first), ("ours, second run", again)):
        bench.table.append({"part": "resume", "program": name, "rows": data.TINY_SHARDS * 4,
                            "wall_s": cost.wall_s, "cpu_s": cost.cpu_s})
    bench.target(f"resume: a run with nothing to do over {data.TINY_SHARDS:,} shards", again.wall_s, "s",
                 "below 2", again.wall_s < 2)


def requests(bench):
    """Counts requests a shard against a real S3 server: the difference of two runs' totals."""
    import pyarrow.fs as fs
    server = pathlib.Path(os.environ.get("SIDECARJOB_TOOLS") or CACHE / "tools/bin") / "versitygw"
    if not server.exists():
        print(f"bench: no requests counted, {server} is missing (make tools)", file=sys.stderr)
        return
    port = free_port()
    address = f"127.0.0.1:{port}"
    store, iam = bench.scratch / "s3", bench.scratch / "iam"
    store.mkdir()
    iam.mkdir()
    gateway = subprocess.Popen(
        [server, "--access", "benchkey", "--secret", "benchsecret1234567890", "--port", address, "--keep-alive",
         "--quiet", "--health", "/health", "--iam-dir", iam, "posix", store],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port)
        client = fs.S3FileSystem(
            access_key="benchkey", secret_key="benchsecret1234567890", endpoint_override=address, scheme="http",
            region="us-east-1", allow_bucket_creation=True)
        client.create_dir("bench")
        fs.copy_files(str(bench.main / "main"), "bench/main", fs.LocalFileSystem(), client)
        env = dict(os.environ, AWS_ACCESS_KEY_ID="benchkey", AWS_SECRET_ACCESS_KEY="benchsecret1234567890",
                   AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
        access = {"endpoint": f"http://{address}", "region": "us-east-1", "pathStyle": True}
        manifest = manifests.write(bench.scratch / "requests.yaml", manifests.join(
            "s3://bench/main", bench.index, "s3://bench/unused", storage=access))
        shards, _ = footers(bench.main / "main")
        half = shards // 2
        counts = {}
        for count in (half, shards):
            # In one chunk: reading the index twice is not a shard's own cost.
            cost = bench.ours(manifest, f"s3://bench/out-{count}", "--max-shards", str(count), "--memory", "4GiB",
                              env=env)
            counts[count] = request_counts(cost.report)
        if not counts[shards]["get"]:
            print("bench: the worker's report has no request counters", file=sys.stderr)
            return
        each = {kind: (counts[shards][kind] - counts[half][kind]) / (shards - half) for kind in ("get", "put")}
        bench.table.append({"part": "requests", "program": "ours, S3", "rows": 0,
                            "requests": {str(count): found for count, found in counts.items()}})
        bench.target("requests: GET a shard", each["get"], "", "at most 2", round(each["get"], 1) <= 2)
        bench.target("requests: PUT a shard", each["put"], "", "at most 1", round(each["put"], 1) <= 1)
    finally:
        gateway.terminate()
        gateway.wait()


def request_counts(report):
    """The counters of the report, names in lower case, summed over stores if there are several."""
    totals = {"get": 0, "put": 0}

    def add(node):
        for key, value in node.items():
            if isinstance(value, dict):
                add(value)
            elif isinstance(value, int):
                totals[key.lower()] = totals.get(key.lower(), 0) + value
    add(report.get("requests") or {})
    return totals


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port):
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("bench: versitygw did not start")


PARTS = {part.__name__: part for part in (join, merge, memory, threads, filters, resume, requests)}


def show(bench):
    print(f"\n{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
          f"best of {bench.repeat}; {WORKERS} workers; ours with --memory {MEMORY}\n")
    head = ("program", "wall s", "CPU s", "work CPU s", "rows/CPU-s", "PSS MiB", "RSS MiB")
    print("%-28s %9s %9s %11s %12s %9s %9s" % head)
    last = None
    for line in bench.table:
        if line["part"] != last:
            last = line["part"]
            print(f"[{last}]")
        rate = line["rows"] / line["cpu_s"] if line.get("cpu_s") and line.get("rows") else None
        print("%-28s %9s %9s %11s %12s %9s %9s" % (
            line["program"], number(line.get("wall_s"), 2), number(line.get("cpu_s"), 2),
            number(line.get("work_cpu_s"), 2), number(rate, 0), number(line.get("pss_mib"), 0),
            number(line.get("rss_mib"), 0)))
    print()
    for goal in bench.targets:
        mark = {True: "met", False: "MISSED", None: ""}[goal["met"]]
        print(f"{goal['what']:<68} {goal['value']:8.2f} {goal['unit']:<4} {goal['wanted']:<26} {mark}")


def number(value, digits):
    return f"{value:,.{digits}f}" if value else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, with commas between")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a target is missed")
    parser.add_argument("--worker", help="the worker's binary (default: built from this checkout)")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")

    peers = pathlib.Path(os.environ.get("SIDECARJOB_BASELINE") or ROOT.parent / "shared/baseline")
    if not (peers / "stage_b.py").exists():
        print(f"bench: no peers to measure against: {peers} has no stage_b.py.\n"
              "bench: set SIDECARJOB_BASELINE to the folder of the baseline programs "
              "(gen.py, stage_a.py, stage_b*.py, merge.py).", file=sys.stderr)
        return 2
    folder = pathlib.Path(os.environ.get("SIDECARJOB_BENCH_DATA") or CACHE / "bench")
    if options.worker:
        worker = pathlib.Path(options.worker)
    else:
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "shard-worker", "--bin", "shard-worker"],
                       cwd=ROOT, check=True)
        worker = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release/shard-worker"

    bench = Bench(folder.absolute(), peers.absolute(), worker.absolute(), options.repeat)
    for part in wanted:
        print(f"bench: {part}", flush=True)
        PARTS[part](bench)
    show(bench)
    results = folder / "results.json"
    results.write_text(json.dumps({"table": bench.table, "targets": bench.targets}, indent=1) + "\n")
    shutil.rmtree(bench.scratch)
    print(f"\nwritten to {results}")
    return 1 if options.check and any(goal["met"] is False for goal in bench.targets) else 0


if __name__ == "__main__":
    sys.exit(main())
