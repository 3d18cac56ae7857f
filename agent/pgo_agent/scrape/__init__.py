"""Pull profiles from programs that answer at /debug/pprof, and submit them: `pgo-agent scrape`.

From targets to the collector: `targets_file`, `kubernetes` (with `pod`) and `catalog` (with `nomad_consul`)
find each `Target` (`target`), whose name decides which agent scrapes it and when. `schedule` keeps those
times, `scraper` gets the profiles and counts what happened, and `submit_queue` checks, spools and sends them.
`run` puts the parts together.

Outside this folder, use the names below. The command also uses `run` and `SubmitQueue`, and imports them only
when it runs, so that other commands start faster.
"""

from pgo_agent.scrape.target import TYPES, Shard, TargetDefaults

__all__ = ["TYPES", "Shard", "TargetDefaults"]
