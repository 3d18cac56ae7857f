# The collector, from the locks alone. The second stage holds what runs, and nothing that builds.

FROM python:3.11-slim-bookworm AS build
# As in agent/Dockerfile, so that both images share these layers.
COPY requirements/build.txt /src/requirements/
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --no-compile --require-hashes -r /src/requirements/build.txt
# The compiler of the merge engine; Python's headers are in the image. apt installs the versions of one release
# of Debian, which the base image names.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/collector.txt /src/requirements/
RUN python -m venv --without-pip /opt/pgo-collector \
    && /opt/build/bin/pip --python /opt/pgo-collector/bin/python install --no-cache-dir --require-hashes \
        -r /src/requirements/collector.txt
COPY proto /src/proto
COPY merge /src/merge
COPY collector /src/collector
# The engine is compiled by what it does with these.
COPY tests/testdata/profiles /src/tests/testdata/profiles
RUN PPROF_MERGE_PGO=1 /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /src/wheels \
        /src/proto /src/merge /src/collector \
    && /opt/build/bin/pip --python /opt/pgo-collector/bin/python install --no-cache-dir --no-deps --no-index /src/wheels/*.whl

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --user-group --no-create-home collector \
    && install -d -o collector -g collector -m 0700 /data
COPY --from=build /opt/pgo-collector /opt/pgo-collector
ENV PATH=/opt/pgo-collector/bin:$PATH \
    PGOF_BIND_ADDRESS=:8080 \
    PGOF_DIRECTORY=/data \
    PGOF_RULES_DIR=/rules
# By its number: Kubernetes can't tell from a name that it isn't root.
USER 10001
VOLUME /data
EXPOSE 8080
# Neither curl nor a proxy from the environment has a part in it.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "\
import http.client, os, sys;\
port = int(os.environ['PGOF_BIND_ADDRESS'].rpartition(':')[2]);\
connection = http.client.HTTPConnection('127.0.0.1', port, timeout=4);\
connection.request('GET', '/healthz');\
sys.exit(connection.getresponse().status != 200)"]
ENTRYPOINT ["pgo-collector"]
CMD ["serve"]
