# The machine of the swe environment: git, and what the repositories of tasks/swe.yaml are written in.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bc ca-certificates diffutils file gcc git less libc6-dev lua5.4 make nodejs patch perl \
        procps python3 python3-pytest sqlite3 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*.log /var/log/apt
