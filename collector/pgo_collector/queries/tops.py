"""Tops: the functions, packages or files with the largest values, in one service or in all."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from pprof_merge.analysis import Grouping, TopOrder, share_of

from pgo_collector.queries import answers
from pgo_collector.queries.fleet_tables import FleetTable

_MAX_SERVICES_A_ROW = 10


def top_of(fleet: FleetTable, by: Grouping, sort: TopOrder, n_rows: int) -> answers.Top:
    """Return the `n_rows` rows with the largest flat or cumulative values."""
    table, total = fleet.table, fleet.total
    rows = table.order(0, sort)[:n_rows]
    services = _services_of(fleet, rows, sort)
    totals = sorted(fleet.parts, key=lambda part: (-part.total, part.service))
    return answers.Top(
        by=by,
        sort=sort,
        sample_type=answers.SampleType.of(fleet.sample_type),
        sample_types=[*map(answers.SampleType.of, fleet.sample_types)],
        basis=answers.ValuesBasis.of(fleet.basis, fleet.sample_type),
        others=fleet.others,
        profiles=fleet.profiles,
        left_out=len(fleet.left_out),
        coarse=len(fleet.coarse.blobs),
        coarse_labels=list(fleet.coarse.labels),
        total=total,
        whole=fleet.whole,
        services=[
            answers.ServiceTotal(
                service=part.service,
                profiles=part.profiles,
                total=part.total,
                share=share_of(part.total, total),
            )
            for part in totals
        ],
        names=len(table.names),
        rows=[
            answers.TopRow(
                name=table.names[row],
                flat=(flat := int(table.flat[row, 0])),
                cum=(cum := int(table.cum[row, 0])),
                flat_share=share_of(flat, total),
                cum_share=share_of(cum, total),
                services=services[row],
            )
            for row in rows
        ],
    )


def _services_of(
    fleet: FleetTable, rows: list[int], sort: TopOrder
) -> dict[int, list[answers.ServiceValues]]:
    """Return, for each of some rows, the services with the largest values."""
    is_wanted = np.zeros(len(fleet.table.names), np.bool_)
    is_wanted[rows] = True
    services: defaultdict[int, list[answers.ServiceValues]] = defaultdict(list)
    for part in fleet.parts:
        for index in np.flatnonzero(is_wanted[part.rows]).tolist():
            flat, cum = int(part.flat[index]), int(part.cum[index])
            services[int(part.rows[index])].append(
                answers.ServiceValues(
                    service=part.service,
                    flat=flat,
                    cum=cum,
                    flat_share=share_of(flat, part.total),
                    cum_share=share_of(cum, part.total),
                )
            )
    for values in services.values():
        values.sort(key=lambda value: (-abs(getattr(value, sort)), value.service))
        del values[_MAX_SERVICES_A_ROW:]
    return services
