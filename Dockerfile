# Two images of one tree: `api` answers requests and holds no torch, `worker` trains.
#
#     docker build --target api    --tag farthing-api .
#     docker build --target worker --tag farthing-worker .
#
# TORCH_INDEX   where pip also looks for torch; the default serves builds for the CPU, which are a tenth of the size.
#               `--build-arg TORCH_INDEX=` takes what the package index has, which brings CUDA: for GPU workers.
# WHEELS        an image with nothing but wheels in its root, which pip then finds; with PIP_NO_INDEX=1 it asks no index.
# pip_config    a secret, `--secret id=pip_config,src=/etc/pip.conf`: how pip reaches a mirror. It is in no layer.
#
# COMPILER_IMAGE  a Debian with Python, where the kernels are compiled; without a C compiler in it, its apt fetches gcc.
#               No compiler gets into what runs. `--build-arg COMPILED=no` leaves the kernels out: NumPy does their work.
#
# It needs BuildKit (DOCKER_BUILDKIT=1 before Docker 23).

ARG PYTHON_IMAGE=python:3.11-slim-bookworm
ARG COMPILER_IMAGE=${PYTHON_IMAGE}
ARG WHEELS=no-wheels

FROM ${PYTHON_IMAGE} AS base
WORKDIR /opt/farthing

FROM base AS no-wheels

FROM ${WHEELS} AS wheels

# The virtual environment gets no pip of its own: what runs cannot install.
FROM base AS api-packages
ARG PIP_NO_INDEX
ENV PIP_PYTHON=/opt/venv/bin/python \
    PIP_CONSTRAINT=/opt/farthing/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_FIND_LINKS=/wheels \
    PIP_NO_CACHE_DIR=1
COPY pyproject.toml constraints.txt README.md LICENSE ./
# An empty package stands for ours: its dependencies are installed again when they change, not when our code does.
RUN python3 -m venv --without-pip /opt/venv && mkdir farthing && touch farthing/__init__.py
RUN --mount=type=bind,from=wheels,target=/wheels --mount=type=secret,id=pip_config,target=/etc/pip.conf \
    python3 -m pip install '.[api,cluster]'

FROM api-packages AS worker-packages
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=wheels,target=/wheels --mount=type=secret,id=pip_config,target=/etc/pip.conf \
    PIP_EXTRA_INDEX_URL=$TORCH_INDEX python3 -m pip install '.[train,cluster]'

FROM ${COMPILER_IMAGE} AS kernels
ARG COMPILED=yes
WORKDIR /opt/farthing
RUN if [ "$COMPILED" = yes ] && ! command -v cc >/dev/null; then \
        apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev; \
    fi
COPY core/__init__.py core/__init__.py
COPY core/native core/native
RUN if [ "$COMPILED" = yes ]; then python3 -m core.native.build --required; fi

FROM base AS code
COPY migrations migrations
COPY farthing farthing
COPY core core
COPY workers workers
COPY api api
COPY --from=kernels /opt/farthing/core/native core/native
RUN python3 -m compileall -q .

# One user for both images, since they share the records and the witness.
FROM base AS runtime
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/farthing \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    FARTHING_CLUSTER=true \
    FARTHING_HOME=/var/lib/farthing \
    FARTHING_WITNESS=/var/lib/farthing-witness/witness.jsonl
RUN groupadd --gid 10001 farthing \
    && useradd --uid 10001 --gid farthing --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin farthing \
    && install --directory --owner farthing --group farthing --mode 0700 \
        /var/lib/farthing /var/lib/farthing-witness /var/lib/farthing-gpus
USER 10001:10001

FROM runtime AS worker
COPY --from=worker-packages /opt/venv /opt/venv
COPY --from=code /opt/farthing /opt/farthing
HEALTHCHECK --interval=30s --timeout=60s --start-period=60s --retries=3 CMD ["python", "-m", "workers.alive"]
CMD ["python", "-m", "workers.app"]

FROM runtime AS api
COPY --from=api-packages /opt/venv /opt/venv
COPY --from=code /opt/farthing /opt/farthing
ENV FARTHING_HOST=0.0.0.0 \
    FARTHING_PORT=8000
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=6 \
    CMD ["python", "-c", "import os, urllib.request as ask; ask.urlopen(f'http://127.0.0.1:{os.environ[\"FARTHING_PORT\"]}/readyz', timeout=4)"]
CMD ["python", "-m", "api"]
