"""Tops: the functions, packages or files that take most, of one service or of all."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from pprof_merge import Grouping, TopOrder, share_of

from pgo_collector.queries.answers import SampleType, ServiceTotal, ServiceValues, Top, TopRow
from pgo_collector.queries.tables import FleetTable

_MOST_SERVICES_A_ROW = 10


def top_of(found: FleetTable, by: Grouping, sort: TopOrder, most: int) -> Top:
    """The rows with most, by flat or cum."""
    table, total = found.table, found.total
    rows = table.order(0, sort)[:most]
    services = _services_of(found, rows, sort)
    totals = sorted(found.parts, key=lambda part: (-part.total, part.service))
    return Top(
        by=by,
        sort=sort,
        sample_type=SampleType.of(found.sample_type),
        others=found.others,
        profiles=found.profiles,
        left_out=len(found.left_out),
        coarse=len(found.coarse.blobs),
        coarse_labels=list(found.coarse.labels),
        total=total,
        services=[
            ServiceTotal(
                service=part.service,
                profiles=part.profiles,
                total=part.total,
                share=share_of(part.total, total),
            )
            for part in totals
        ],
        names=len(table.names),
        rows=[
            TopRow(
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


def _services_of(found: FleetTable, rows: list[int], sort: TopOrder) -> dict[int, list[ServiceValues]]:
    """For each of some rows, the services that have most of it."""
    is_wanted = np.zeros(len(found.table.names), np.bool_)
    is_wanted[rows] = True
    services: defaultdict[int, list[ServiceValues]] = defaultdict(list)
    for part in found.parts:
        for index in np.flatnonzero(is_wanted[part.rows]).tolist():
            flat, cum = int(part.flat[index]), int(part.cum[index])
            services[int(part.rows[index])].append(
                ServiceValues(
                    service=part.service,
                    flat=flat,
                    cum=cum,
                    flat_share=share_of(flat, part.total),
                    cum_share=share_of(cum, part.total),
                )
            )
    for values in services.values():
        values.sort(key=lambda value: (-getattr(value, sort), value.service))
        del values[_MOST_SERVICES_A_ROW:]
    return services
