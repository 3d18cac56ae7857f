"""The collector: an HTTP service that stores the profiles of a fleet and serves their merges.

Each folder is a room, whose `__init__` says what is inside. From the ground up: `model` has the values that
all others use. `catalog` says which blobs count, and `blobs` keeps their bytes; `store` has both, and
`starting` mends what a start finds there. `engine` is the work of the processes in `workers`. `submits` is
the way of a profile to the disk, `merges` the way back; `releases` and `queries` build on them, `upkeep`,
`hooks`, `debuginfod` and `backups` run beside them. `connections`, `http`, `routes` and `ui` answer requests,
`metrics` and `traces` say what happened. `readers` reads the formats of other profilers. `serve` puts
everything together, `checks` tries whether it would work, and `command` is the command line.

Used everywhere: `settings`, `errors`, `logs`, `resources` (Linux's view of the machine), `on_first_use`
(modules that a start does without), `background` (tasks
that start again) and `reloaded_file` (files that are read again).
"""
